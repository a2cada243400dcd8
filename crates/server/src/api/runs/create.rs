//! `POST /v1/runs`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use telecine_pipeline::{NoSubmission, RequestFault, RunDocument, RunRequest, Submission, describe, submit};
use telecine_queue::{QueueError, RunId};

use crate::api::jobs::require_priority;
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::Json;
use crate::problem::{Code, Mistake, Problem, ProblemDocument};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const TRACEPARENT: &str = "traceparent";

/// Submits a run. When this answers with success, the run is never lost.
///
/// With an `Idempotency-Key` a repeated request gives the run that the first one made, as it is by then: a client that
/// did not get an answer sends the same again.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "create_run",
    params(
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 200, pattern = "^[!-~]([ -~]*[!-~])?$",
            description = "Kept for 30 days. The same key with another body is refused."),
        ("traceparent" = Option<String>, Header,
            description = "The caller's span as W3C Trace Context writes it; carried into jobs and webhooks. One that is not valid is ignored."),
    ),
    request_body = RunRequest,
    responses(
        (status = 201, description = "A new run", body = RunDocument,
            headers(("location" = String, description = "The run's address"))),
        (status = 200, description = "The key made this run before", body = RunDocument,
            headers(("location" = String, description = "The run's address"))),
        (status = 409, description = "`key_reused`: the key was used with another body", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "As documented, but it asks for what is not here: `errors` says where", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    Json(request): Json<RunRequest>,
) -> Result<Response, Problem> {
    caller.require(Scope::Write)?;
    let key = idempotency_key(&headers)?;
    request.require_well_formed().map_err(refused)?;
    require_priority(&caller, Some(request.priority))?;
    if let Some(key) = &key
        && let Some(run) = made_before(&app, &caller, key, &request).await?
    {
        return answer(&app, StatusCode::OK, &run).await;
    }
    let submission =
        request.into_submission(&caller.tenant, &app.recipes, &app.shop).await.map_err(refused)?;
    let submission = Submission { idempotency_key: key, traceparent: traceparent(&headers), ..submission };
    // A request that is as documented and too much for the queue all the same.
    let submitted = submit(app.queue(), submission).await.map_err(|error| match error {
        QueueError::Invalid { reason } => Problem::new(Code::Unprocessable, reason),
        error => error.into(),
    })?;
    let status = if submitted.replayed { StatusCode::OK } else { StatusCode::CREATED };
    answer(&app, status, &submitted.run).await
}

/// Looked up before anything else is: the upload may have expired and the recipe be another since the run was made.
async fn made_before(
    app: &App,
    caller: &Caller,
    key: &str,
    request: &RunRequest,
) -> Result<Option<RunId>, Problem> {
    let known = app.queue().known_push(&caller.tenant, key, &request.canonical()).await?;
    Ok(known.and_then(|pushed| pushed.run))
}

async fn answer(app: &App, status: StatusCode, run: &RunId) -> Result<Response, Problem> {
    let document = describe(app.queue(), run).await?.ok_or_else(|| {
        Problem::new(Code::Conflict, "the run that this key made was deleted; use another key")
    })?;
    let location = HeaderValue::try_from(format!("/v1/runs/{run}")).ok();
    let mut response = (status, Json(document)).into_response();
    if let Some(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=200).contains(&key.len()));
    let key = key.filter(|key| !key.chars().any(char::is_control));
    let wrong = || Problem::invalid("Idempotency-Key", "1 to 200 visible characters of ASCII");
    key.map(|key| Some(key.to_owned())).ok_or_else(wrong)
}

/// By the standard, one that cannot be understood is as if there were none.
fn traceparent(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(TRACEPARENT)?.to_str().ok()?;
    is_traceparent(value).then(|| value.to_owned())
}

/// `version-trace_id-parent_id-flags` in lowercase hexadecimal digits; ids of zeros are none, and version ff is not to be.
fn is_traceparent(value: &str) -> bool {
    let parts: Vec<&str> = value.split('-').collect();
    let is_hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str, digits| is_hex(part, digits) && part.bytes().any(|byte| byte != b'0');
    match parts.as_slice() {
        [version, trace, parent, flags, rest @ ..] => {
            is_hex(version, 2)
                && *version != "ff"
                && is_id(trace, 32)
                && is_id(parent, 16)
                && is_hex(flags, 2)
                && (rest.is_empty() || (*version != "00" && value.len() <= 512))
        }
        _ => false,
    }
}

/// A request that does not become a run, as a problem.
pub(in crate::api) fn refused(refusal: NoSubmission) -> Problem {
    match refusal {
        NoSubmission::Malformed(faults) => with_faults(Code::InvalidRequest, faults),
        NoSubmission::Impossible(faults) => with_faults(Code::Unprocessable, faults),
        NoSubmission::Unavailable(failed) => Problem::from(failed),
    }
}

fn with_faults(code: Code, faults: Vec<RequestFault>) -> Problem {
    let told: Vec<String> = faults.iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect();
    let mistake = |RequestFault { path, code, message }| Mistake { path, code, message };
    Problem::new(code, told.join("\n")).with_errors(faults.into_iter().map(mistake).collect())
}

#[cfg(test)]
mod tests {
    use super::is_traceparent;

    #[test]
    fn a_traceparent_is_taken_only_as_the_standard_writes_it() {
        let right = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_traceparent(right));
        assert!(is_traceparent(&format!("01{}-later", &right[2..])));

        for wrong in [
            "",
            "00",
            &right.to_uppercase(),
            &format!("{right}-more"),
            &format!("ff{}", &right[2..]),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        ] {
            assert!(!is_traceparent(wrong), "{wrong}");
        }
    }
}
