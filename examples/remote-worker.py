#!/usr/bin/env python3
"""A Telecine worker in Python, with nothing but the standard library.

Runs jobs of kind `word_count` ({"text": "…"}) until it is asked to drain or finds nothing for IDLE_MS.
    TELECINE_URL=http://127.0.0.1:8700 TELECINE_KEY=tk_… ./remote-worker.py
"""
import json, os, threading, urllib.error, urllib.request

URL, KEY = os.environ.get("TELECINE_URL", "http://127.0.0.1:8700"), os.environ.get("TELECINE_KEY")
IDLE_MS, LEASE_MS = int(os.environ.get("IDLE_MS", 20000)), int(os.environ.get("LEASE_MS", 30000))

def post(path, body, timeout=90):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {KEY}"} if KEY else {})
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.loads(answer.read() or "null")  # 204: nothing to do

class Lost(Exception):
    """The claim is over: cancelled, or another's. Whatever we made does not count."""

def keep(claim, state, done):
    """Beats until the work is done, so that nobody else takes the job."""
    while not done.wait(claim["beat_within_ms"] / 1000):
        beat = {"token": claim["token"], "progress": state["progress"], "checkpoint": state["checkpoint"]}
        try:
            state["drain"] |= post(f"/v1/claims/{claim['job']['id']}/beat", beat)["drain"]
        except urllib.error.HTTPError as refused:
            state["over"] |= refused.code in (409, 410)
        except OSError:
            pass  # The server is away: go on; the work counts as long as nobody took the job.

def word_count(job, state):
    lines = job["payload"]["text"].splitlines()
    at, words = (job["checkpoint"] or {}).get("at", 0), (job["checkpoint"] or {}).get("words", 0)
    for at in range(at, len(lines)):
        if state["over"]:
            raise Lost
        words += len(lines[at].split())
        threading.Event().wait(job["payload"].get("ms_per_line", 0) / 1000)
        state.update(progress=(at + 1) / len(lines), checkpoint={"at": at + 1, "words": words})
    return {"words": words}

def run(claim):
    job, done = claim["job"], threading.Event()
    state = {"progress": 0.0, "checkpoint": job["checkpoint"], "over": False, "drain": False}
    threading.Thread(target=keep, args=(claim, state, done), daemon=True).start()
    try:
        outcome = {"complete": {"result": word_count(job, state)}}
    except Lost:
        return state["drain"]
    except Exception as error:
        outcome = {"fail": {"code": "python_error", "message": repr(error), "for_good": False}}
    finally:
        done.set()
    try:  # Safe to repeat: the same token gives the same answer.
        post(f"/v1/claims/{job['id']}/finish", {"token": claim["token"], "outcome": outcome})
    except urllib.error.HTTPError as refused:
        print("job", job["id"], "does not count:", json.load(refused)["code"], flush=True)
    return state["drain"]

wanted = {"kinds": ["word_count"], "wait_ms": IDLE_MS, "lease_ms": LEASE_MS, "name": "python"}
while (claim := post("/v1/claims", wanted)) is not None:
    print("job", claim["job"]["id"], "attempt", claim["job"]["attempt"], flush=True)
    if run(claim):
        break
