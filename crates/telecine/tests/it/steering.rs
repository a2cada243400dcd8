//! Limits, pauses, and many jobs at once.

use serde_json::json;

use crate::telecine::Place;

#[test]
fn a_limit_is_set_listed_and_removed() {
    let place = Place::new();

    let set = place.run(&["limits", "set", "provider:one", "--max-running", "2", "--per-minute", "90"]);
    place.run(&["jobs", "push", "pause", "--count", "5", "--limit-key", "provider:one"]);

    assert_eq!(set.code, Some(0), "{set:?}");
    let limit = place.json(&["limits", "ls"])["data"][0].clone();
    assert_eq!((&limit["key"], &limit["max_running"]), (&json!("provider:one"), &json!(2)));
    assert_eq!((&limit["per_minute"], &limit["pace"]), (&json!(90.0), &json!(1.0)));
    assert_eq!(limit["parked"], 4, "there is a token for the first only");
    assert!(place.run(&["limits", "ls"]).stdout.contains("provider:one"));
    assert!(place.run(&["jobs", "show", "5"]).stdout.contains("limit `provider:one` has no room"));
    assert_eq!(place.run(&["limits", "rm", "provider:one"]).code, Some(0));
    let again = place.run(&["limits", "rm", "provider:one"]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("`telecine limits ls`"), "{again:?}");
    assert_eq!(place.json(&["jobs", "ls", "--state", "parked"])["data"], json!([]));
}

#[test]
fn a_limit_needs_a_bound() {
    let place = Place::new();

    assert_eq!(place.run(&["limits", "set", "key"]).code, Some(2));
    let refused = place.run(&["limits", "set", "key", "--per-minute", "0"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("set max_running to 0"), "{refused:?}");
}

#[test]
fn a_tenants_share_and_cap_are_set_listed_and_removed() {
    let place = Place::new();

    let set = place.run(&["tenants", "set", "acme", "--max-running", "2"]);
    place.run(&["tenants", "set", "acme", "--weight", "3"]);
    place.run(&["jobs", "push", "pause", "--count", "5", "--tenant", "acme"]);

    assert_eq!(set.code, Some(0), "{set:?}");
    let tenant = place.json(&["tenants", "ls"])["data"][0].clone();
    let told = (&tenant["name"], &tenant["weight"], &tenant["max_running"]);
    assert_eq!(told, (&json!("acme"), &json!(3.0), &json!(2)), "the one leaves the other as it is");
    assert_eq!(
        (&tenant["running"], &tenant["pending"], &tenant["parked"]),
        (&json!(0), &json!(2), &json!(3))
    );
    assert!(place.run(&["tenants", "ls"]).stdout.contains("acme"));
    assert!(place.run(&["jobs", "show", "5"]).stdout.contains("`telecine tenants ls`"));
    assert_eq!(place.run(&["tenants", "set", "acme", "--no-max-running"]).code, Some(0));
    assert_eq!(place.json(&["tenants", "ls"])["data"][0]["max_running"], json!(null));
    assert_eq!(place.json(&["jobs", "ls", "--state", "parked"])["data"], json!([]));
    assert_eq!(place.run(&["tenants", "rm", "acme"]).code, Some(0));
    let again = place.run(&["tenants", "rm", "acme"]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("`telecine tenants ls`"), "{again:?}");
}

#[test]
fn a_bad_policy_of_a_tenant_is_refused() {
    let place = Place::new();

    assert_eq!(place.run(&["tenants", "set", "acme"]).code, Some(2), "nothing to set");
    assert_eq!(place.run(&["tenants", "set", "acme", "--max-running", "-1"]).code, Some(2));
    assert_eq!(
        place.run(&["tenants", "set", "acme", "--max-running", "1", "--no-max-running"]).code,
        Some(2)
    );
    let refused = place.run(&["tenants", "set", "acme", "--weight", "0"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("between 0.001 and 1000"), "{refused:?}");
}

#[test]
fn lanes_and_kinds_are_paused_and_resumed() {
    let place = Place::new();
    place.run(&["jobs", "push", "pause"]);

    for (scope, name) in [("lanes", "cpu"), ("kinds", "pause")] {
        assert_eq!(place.run(&[scope, "pause", name]).code, Some(0));
        assert_eq!(place.json(&[scope, "ls"])["data"][0]["name"], name);
        assert!(
            place.run(&["jobs", "show", "1"]).stdout.contains(&format!("`telecine {scope} resume {name}`"))
        );
        assert_eq!(place.run(&[scope, "resume", name]).code, Some(0));
        assert_eq!(place.run(&[scope, "resume", name]).code, Some(1));
        assert_eq!(place.json(&[scope, "ls"])["data"], json!([]));
    }
}

#[test]
fn many_jobs_are_cancelled_and_retried_at_once() {
    let place = Place::new();
    place.run(&["jobs", "push", "pause", "--count", "5"]);
    place.run(&["jobs", "push", "other", "--any-kind"]);

    let cancelled = place.run(&["jobs", "cancel", "--all", "--kind", "pause", "--state", "pending"]);
    let retried = place.run(&["jobs", "retry", "--all", "--state", "cancelled"]);

    assert!(cancelled.stderr.contains("5 jobs are cancelled"), "{cancelled:?}");
    assert!(retried.stderr.contains("5 jobs start over"), "{retried:?}");
    assert_eq!(place.run(&["jobs", "cancel"]).code, Some(2), "neither ids nor --all");
    assert_eq!(place.run(&["jobs", "cancel", "1", "--all"]).code, Some(2), "both");
    assert_eq!(
        place.run(&["jobs", "cancel", "1", "--kind", "pause"]).code,
        Some(2),
        "a filter without --all"
    );
}
