//! Who gets in: keys, sessions, this machine; what they may; how often.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use libtest_mimic::Trial;
use serde_json::{Value, json};
use telecine_server::keys::{self, NewKey};
use telecine_server::{Scope, ServeError, Server};

use crate::support::{PATIENCE, Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("callers::a_key_lets_its_tenant_in_until_it_is_revoked", a_key_lets_its_tenant_in),
        trial("callers::what_is_no_key_lets_nobody_in", what_is_no_key),
        trial("callers::a_key_allows_what_its_scopes_say", a_key_allows_what_its_scopes_say),
        trial("callers::no_secret_is_stored", no_secret_is_stored),
        trial("callers::this_machine_needs_no_key_unless_told", this_machine_needs_no_key),
        trial("callers::pages_and_proxies_on_this_machine_do", pages_and_proxies_do),
        trial("callers::no_public_address_without_a_key", no_public_address_without_a_key),
        trial("callers::a_session_is_a_cookie_that_only_our_pages_can_use", a_session_is_a_cookie),
        trial("callers::a_session_ends_with_its_key", a_session_ends_with_its_key),
        trial("callers::a_key_has_only_so_many_sessions", a_key_has_only_so_many_sessions),
        trial("callers::over_https_a_cookie_is_of_this_host_alone", a_cookie_is_of_this_host_alone),
        trial("callers::other_sites_cannot_begin_a_session", other_sites_cannot_begin_a_session),
        trial("callers::one_key_that_asks_too_often_is_slowed_down_alone", one_key_is_slowed_down),
        trial("callers::without_a_key_an_address_is_slowed_down", an_address_is_slowed_down),
        trial("callers::a_wrong_key_that_is_sent_again_costs_as_much", a_wrong_key_sent_again_costs),
        trial("callers::other_origins_are_let_in_by_name_alone", other_origins_by_name),
    ]
}

/// Nobody is trusted for where they are.
async fn strict() -> Served {
    Served::with(|_, options| options.trust_loopback = false).await
}

async fn a_key_lets_its_tenant_in() {
    let served = strict().await;
    let (key, text) = served.key("acme", &[Scope::Read]).await;

    let shown: Value =
        served.get("/v1/session").bearer_auth(&text).send().await.unwrap().json().await.unwrap();
    assert_eq!(shown, json!({"object": "session", "tenant": "acme", "scopes": ["read"], "key": key.id}));
    keys::revoke(served.queue.as_ref(), &key.id).await.unwrap().unwrap();

    // It may be believed for a moment longer.
    served
        .until(async || served.get("/v1/session").bearer_auth(&text).send().await.unwrap().status() == 401)
        .await;
    let refused = problem(served.get("/v1/recipes").bearer_auth(&text).send().await.unwrap()).await;
    assert_eq!(refused["code"], "unauthorized");
    served.stop().await;
}

async fn what_is_no_key() {
    let served = strict().await;
    let (key, text) = served.key("", &[Scope::Admin]).await;
    let (_, of_other) = served.key("", &[Scope::Admin]).await;
    let other_secret = format!("tk_{}_{}", key.id, of_other.rsplit_once('_').unwrap().1);

    for authorization in [
        format!("Bearer {other_secret}"),
        format!("Bearer {}", &text[..text.len() - 1]),
        format!("Bearer {text}x"),
        format!("Bearer {}", key.id),
        "Bearer".into(),
        "Bearer ".into(),
        format!("Basic {text}"),
        text.clone(),
        format!("Bearer tk_{}_{}", "a".repeat(12), "b".repeat(43)),
        format!("Bearer {}", "é".repeat(2000)),
    ] {
        let refused = served.get("/v1/recipes").header("authorization", &authorization).send().await.unwrap();
        assert_eq!(refused.headers()["www-authenticate"], "Bearer");
        assert_eq!(problem(refused).await["code"], "unauthorized", "{authorization}");
    }
    let silent = served.get("/v1/recipes").send().await.unwrap();
    assert_eq!(problem(silent).await["code"], "unauthorized");
    let right =
        served.get("/v1/recipes").header("authorization", format!("bearer {text}")).send().await.unwrap();
    assert_eq!(right.status(), 200);
    served.stop().await;
}

async fn a_key_allows_what_its_scopes_say() {
    let served = strict().await;
    for (scopes, status) in [
        (vec![Scope::Read], 200),
        (vec![Scope::Read, Scope::Write], 200),
        (vec![Scope::Admin], 200),
        (vec![Scope::Write], 403),
        (vec![Scope::Work], 403),
    ] {
        let (_, text) = served.key("acme", &scopes).await;
        let answer = served.get("/v1/recipes").bearer_auth(&text).send().await.unwrap();
        assert_eq!(answer.status(), status, "{scopes:?}");
        if status == 403 {
            assert_eq!(problem(answer).await["code"], "forbidden");
        }
    }
    let none = NewKey { name: String::new(), tenant: String::new(), scopes: BTreeSet::new() };
    assert!(keys::make(served.queue.as_ref(), none).await.is_err(), "it would allow nothing");
    served.stop().await;
}

async fn no_secret_is_stored() {
    let served = strict().await;
    let (key, text) = served.key("acme", &[Scope::Read]).await;
    let begun = served.post("/v1/session").json(&json!({"key": text})).send().await.unwrap();
    let cookie = begun.headers()["set-cookie"].to_str().unwrap().to_owned();
    let session = cookie.split(['=', ';']).nth(1).unwrap();

    let stored = [
        served.queue.entries("api_key", None, 10).await.unwrap(),
        served.queue.entries("session", None, 10).await.unwrap(),
    ];

    let stored = format!("{stored:?}");
    assert!(stored.contains(&key.id), "{stored}");
    for token in [text.as_str(), session] {
        let secret = token.rsplit_once('_').unwrap().1;
        assert!(secret.len() == 43 && !stored.contains(secret), "{stored}");
    }
    served.stop().await;
}

async fn this_machine_needs_no_key() {
    let trusting = Served::start().await;
    let strict = strict().await;

    let shown: Value = trusting.get("/v1/session").send().await.unwrap().json().await.unwrap();
    assert_eq!(
        shown,
        json!({"object": "session", "tenant": "", "scopes": ["read", "write", "work", "admin"], "key": null})
    );
    let wrong = trusting.get("/v1/session").bearer_auth("tk_wrong").send().await.unwrap();
    assert_eq!(problem(wrong).await["code"], "unauthorized", "who shows a key is known by it alone");
    let untrusted = strict.get("/v1/session").send().await.unwrap();
    assert_eq!(problem(untrusted).await["code"], "unauthorized");
    trusting.stop().await;
    strict.stop().await;
}

async fn pages_and_proxies_do() {
    let served = Served::start().await;
    let port = served.address.port();
    let own = format!("http://127.0.0.1:{port}");
    for (header, value) in [
        ("host", "evil.example".to_owned()),
        ("host", format!("evil.example:{port}")),
        ("origin", "https://evil.example".to_owned()),
        ("origin", "null".to_owned()),
        ("origin", "http://127.0.0.1:1".to_owned()),
        ("sec-fetch-site", "cross-site".to_owned()),
        ("x-forwarded-for", "192.0.2.7".to_owned()),
        ("forwarded", "for=192.0.2.7".to_owned()),
    ] {
        let refused = served.get("/v1/recipes").header(header, &value).send().await.unwrap();
        assert_eq!(problem(refused).await["code"], "unauthorized", "{header}: {value}");
    }
    let own_page = served.get("/v1/recipes").header("origin", own).header("sec-fetch-site", "same-origin");
    assert_eq!(own_page.send().await.unwrap().status(), 200);
    served.stop().await;
}

async fn no_public_address_without_a_key() {
    let served = Served::start().await;
    let everywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();

    let refused = Server::start(&served.app, everywhere).await.unwrap_err();
    assert!(matches!(refused, ServeError::NoKey { address } if address == everywhere), "{refused}");
    let (key, _) = served.key("", &[Scope::Admin]).await;
    let public = Server::start(&served.app, everywhere).await.unwrap();
    assert!(public.stop(PATIENCE).await);
    keys::revoke(served.queue.as_ref(), &key.id).await.unwrap();
    assert!(Server::start(&served.app, everywhere).await.is_err(), "a revoked key is none");
    served.stop().await;
}

async fn a_session_is_a_cookie() {
    let served = strict().await;
    let (key, text) = served.key("acme", &[Scope::Read]).await;

    let begun = served.post("/v1/session").json(&json!({"key": text})).send().await.unwrap();
    assert_eq!(begun.status(), 201);
    let cookie = begun.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"), "{cookie}");
    assert!(cookie.contains("; Path=/;") && !cookie.contains("Secure"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let shown: Value = begun.json().await.unwrap();
    assert_eq!(shown["tenant"], "acme");
    assert!(shown["expires_at"].as_str().unwrap().ends_with('Z'), "{shown}");

    let seen: Value = served
        .get("/v1/session")
        .header("cookie", format!("a=b; {cookie}"))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(seen["key"], key.id);
    let end = || served.client.delete(served.url("/v1/session")).header("cookie", &cookie);
    for forged in
        [end(), end().header("origin", "https://evil.example"), end().header("sec-fetch-site", "same-site")]
    {
        assert_eq!(problem(forged.send().await.unwrap()).await["code"], "forbidden");
    }
    let ended = end().header("origin", &served.base).send().await.unwrap();
    assert_eq!(ended.status(), 204);
    assert!(ended.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    let over = served.get("/v1/session").header("cookie", &cookie).send().await.unwrap();
    assert_eq!(problem(over).await["code"], "unauthorized");

    let over_https = served
        .post("/v1/session")
        .header("x-forwarded-proto", "https")
        .json(&json!({"key": text}))
        .send()
        .await
        .unwrap();
    assert!(over_https.headers()["set-cookie"].to_str().unwrap().ends_with("; Secure"));
    served.stop().await;
}

async fn a_session_ends_with_its_key() {
    let served = strict().await;
    let (key, text) = served.key("acme", &[Scope::Read]).await;
    let begun = served.post("/v1/session").json(&json!({"key": text})).send().await.unwrap();
    let cookie = begun.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let status = async || served.get("/v1/session").header("cookie", &cookie).send().await.unwrap().status();
    assert_eq!(status().await, 200);

    keys::revoke(served.queue.as_ref(), &key.id).await.unwrap();

    served.until(async || status().await == 401).await;
    let again = served.post("/v1/session").json(&json!({"key": text})).send().await.unwrap();
    assert_eq!(problem(again).await["code"], "unauthorized");
    served.stop().await;
}

async fn a_key_has_only_so_many_sessions() {
    let served = strict().await;
    let (_, text) = served.key("acme", &[Scope::Read]).await;
    let (_, of_other) = served.key("acme", &[Scope::Read]).await;
    let begin = async |key: &str| {
        let begun = served.post("/v1/session").json(&json!({"key": key})).send().await.unwrap();
        assert_eq!(begun.status(), 201);
        begun.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
    };
    let (other, first) = (begin(&of_other).await, begin(&text).await);

    let mut last = String::new();
    for _ in 0..40 {
        last = begin(&text).await;
    }

    let status = async |cookie: &str| {
        served.get("/v1/session").header("cookie", cookie).send().await.unwrap().status()
    };
    assert!(served.queue.entries("session", None, 100).await.unwrap().len() <= 33);
    assert_eq!(status(&first).await, 401, "the oldest gave way");
    assert_eq!((status(&last).await.as_u16(), status(&other).await.as_u16()), (200, 200));
    served.stop().await;
}

async fn a_cookie_is_of_this_host_alone() {
    let served = strict().await;
    let (_, text) = served.key("acme", &[Scope::Read]).await;
    let begin = served.post("/v1/session").header("x-forwarded-proto", "https");
    let begun = begin.json(&json!({"key": text})).send().await.unwrap();
    let cookie = begun.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.starts_with("__Host-telecine_session=ts_") && cookie.ends_with("; Secure"), "{cookie}");
    let pair = cookie.split(';').next().unwrap();

    let status = async |cookie: &str| {
        let ask = served.get("/v1/session").header("x-forwarded-proto", "https").header("cookie", cookie);
        ask.send().await.unwrap().status().as_u16()
    };

    assert_eq!(status(pair).await, 200);
    // Another host of the same domain can set a cookie of any other name here.
    assert_eq!(status(pair.strip_prefix("__Host-").unwrap()).await, 401);
    served.stop().await;
}

async fn other_sites_cannot_begin_a_session() {
    let served = Served::start().await;
    let (_, text) = served.key("acme", &[Scope::Read]).await;

    let begin = || served.post("/v1/session").json(&json!({"key": text}));
    let forged = begin().header("origin", "https://evil.example").send().await.unwrap();

    assert_eq!(problem(forged).await["code"], "forbidden");
    assert_eq!(begin().header("origin", &served.base).send().await.unwrap().status(), 201);
    served.stop().await;
}

async fn one_key_is_slowed_down() {
    let served = Served::with(|_, options| {
        options.trust_loopback = false;
        options.requests_per_second = 1;
    })
    .await;
    let (_, loud) = served.key("loud", &[Scope::Read]).await;
    let (_, quiet) = served.key("quiet", &[Scope::Read]).await;

    let mut slowed = None;
    served
        .until(async || {
            let answer = served.get("/v1/recipes").bearer_auth(&loud).send().await.unwrap();
            slowed = (answer.status() == 429).then_some(answer);
            slowed.is_some()
        })
        .await;

    let slowed = slowed.unwrap();
    assert_eq!(slowed.headers()["retry-after"], "1");
    assert_eq!(problem(slowed).await["code"], "rate_limited");
    assert_eq!(served.get("/v1/recipes").bearer_auth(&quiet).send().await.unwrap().status(), 200);
    served.stop().await;
}

async fn an_address_is_slowed_down() {
    let served = Served::with(|_, options| {
        options.trust_loopback = false;
        options.requests_per_second = 1;
    })
    .await;

    served.until(async || served.get("/v1/recipes").send().await.unwrap().status() == 429).await;
    // Another key each time: each costs a look.
    let mut guesses = 0;
    served
        .until(async || {
            guesses += 1;
            let ask = served.get("/v1/recipes").bearer_auth(format!("tk_a{guesses}_b"));
            ask.send().await.unwrap().status() == 429
        })
        .await;
    for _ in 0..50 {
        assert_eq!(served.get("/health/live").send().await.unwrap().status(), 200, "it must always be told");
    }
    served.stop().await;
}

async fn a_wrong_key_sent_again_costs() {
    let served = Served::with(|_, options| {
        options.trust_loopback = false;
        options.requests_per_second = 1;
    })
    .await;
    let ask = || served.get("/v1/recipes").bearer_auth("tk_a_b").send();
    assert_eq!(ask().await.unwrap().status(), 401);

    let flood = futures_util::future::join_all((0..60).map(|_| ask())).await;

    let slowed = flood.into_iter().filter(|answer| answer.as_ref().unwrap().status() == 429).count();
    assert!(slowed > 0, "that it is none was known, and nobody was charged");
    served.stop().await;
}

async fn other_origins_by_name() {
    let closed = Served::start().await;
    let open = Served::with(|_, options| options.cors_origins = vec!["https://app.example".into()]).await;
    let asks = |served: &Served, origin: &str| {
        served
            .client
            .request(reqwest::Method::OPTIONS, served.url("/v1/recipes"))
            .header("origin", origin)
            .header("access-control-request-method", "GET")
            .send()
    };

    let refused = asks(&closed, "https://app.example").await.unwrap();
    assert!(!refused.headers().contains_key("access-control-allow-origin"));
    let allowed = asks(&open, "https://app.example").await.unwrap();
    assert_eq!(allowed.status(), 204);
    assert_eq!(allowed.headers()["access-control-allow-origin"], "https://app.example");
    let headers = allowed.headers()["access-control-allow-headers"].to_str().unwrap();
    for needed in ["authorization", "range", "if-range", "last-event-id"] {
        assert!(headers.split(", ").any(|header| header == needed), "{needed}: {headers}");
    }
    assert!(!allowed.headers().contains_key("access-control-allow-credentials"));
    for origin in ["https://app.example.evil", "https://APP.example", "null"] {
        let refused = asks(&open, origin).await.unwrap();
        assert!(!refused.headers().contains_key("access-control-allow-origin"), "{origin}");
    }

    let (_, text) = open.key("", &[Scope::Read]).await;
    let called = open
        .get("/v1/recipes")
        .bearer_auth(text)
        .header("origin", "https://app.example")
        .send()
        .await
        .unwrap();
    assert_eq!((called.status().as_u16(), &called.headers()["vary"]), (200, &"origin".parse().unwrap()));
    assert_eq!(called.headers()["access-control-allow-origin"], "https://app.example");
    // Being let in by the browser is not being known: without a key even this machine's trust does not reach that far.
    let keyless = open.get("/v1/recipes").header("origin", "https://app.example").send().await.unwrap();
    assert_eq!(problem(keyless).await["code"], "unauthorized");
    closed.stop().await;
    open.stop().await;
}
