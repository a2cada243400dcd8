"""How the property tester writes the bodies of tus, and how long it waits for a job."""

import schemathesis


@schemathesis.serializer("application/offset+octet-stream")
def offset_octet_stream(ctx, value):
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.hook
def before_call(context, case, kwargs):
    """A claim may wait for a minute; a test has not got it."""
    wait_ms = case.body.get("wait_ms") if isinstance(case.body, dict) else None
    if isinstance(wait_ms, (int, float)) and 50 < wait_ms <= 60_000:
        case.body["wait_ms"] = 50
