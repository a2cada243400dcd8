//! Requests as they come: ids, and bodies that are not what they should be.

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("requests::each_has_an_id_that_the_answer_repeats", each_has_an_id),
        trial("requests::what_is_wrong_in_a_body_is_said_with_its_place", what_is_wrong_in_a_body),
        trial("requests::what_has_defaults_alone_needs_no_body", what_has_defaults_alone_needs_no_body),
        trial("requests::what_of_tus_is_spoken_is_told_to_everybody", what_of_tus_is_spoken),
        trial("requests::the_description_is_there_for_everybody", the_description_is_there),
        trial("requests::its_pages_have_every_operation_and_every_code", its_pages),
    ]
}

async fn each_has_an_id() {
    let served = Served::start().await;

    let own = served.get("/health/live").header("x-request-id", "order-42.a:b_c").send().await.unwrap();
    assert_eq!(own.headers()["x-request-id"], "order-42.a:b_c");
    let own = served.get("/v1/nothing").header("x-request-id", "order-43").send().await.unwrap();
    assert_eq!(problem(own).await["request_id"], "order-43");
    let long = "a".repeat(129);
    for id in ["", "two words", "<script>", "a\tb", &long] {
        let made = served.get("/v1/nothing").header("x-request-id", id).send().await.unwrap();
        let made = problem(made).await["request_id"].as_str().unwrap().to_owned();
        assert!(made.starts_with("req_") && made.len() == 30, "{id}: {made}");
    }
    served.stop().await;
}

async fn what_is_wrong_in_a_body() {
    let served = Served::start().await;
    let send = async |body: &str| {
        let sent =
            served.post("/v1/session").header("content-type", "application/json").body(body.to_owned());
        problem(sent.send().await.unwrap()).await
    };
    for (body, path, said) in [
        ("", "", "EOF"),
        ("{", "", "EOF"),
        ("nonsense", "", "expected"),
        ("[]", "", ""),
        ("null", "", "expected"),
        ("{}", "", "missing field `key`"),
        (r#"{"key": 7}"#, "key", "expected a string"),
        (r#"{"key": null}"#, "key", "expected a string"),
        (r#"{"key": "a", "kex": "b"}"#, "kex", "unknown field `kex`"),
        (r#"{"key": "a", "key": "b"}"#, "", "duplicate field"),
        (r#"{"key": "a"} {"key": "b"}"#, "", "goes on after its end"),
        (r#"{"key": "\ud800"}"#, "key", ""),
    ] {
        let refused = send(body).await;
        assert_eq!(
            (&refused["code"], &refused["status"]),
            (&json!("invalid_request"), &json!(400)),
            "{body}"
        );
        assert_eq!(refused["errors"][0]["path"], path, "{body}: {refused}");
        assert!(refused["errors"][0]["message"].as_str().unwrap().contains(said), "{body}: {refused}");
    }
    let deep = format!("{}{}", r#"{"key":"#, "[".repeat(100_000));
    assert_eq!(send(&deep).await["code"], "invalid_request");
    let huge = format!(r#"{{"key": "{}"}}"#, "a".repeat(300 * 1024));
    assert_eq!(send(&huge).await["code"], "too_large");
    let no_text =
        served.post("/v1/session").header("content-type", "application/json").body(vec![0xff, 0xfe]);
    assert_eq!(problem(no_text.send().await.unwrap()).await["code"], "invalid_request");
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
        let sent = served.post("/v1/session").header("content-type", kind).body("{}");
        assert_eq!(problem(sent.send().await.unwrap()).await["code"], "unsupported_media_type", "{kind}");
    }
    let with_charset =
        served.post("/v1/session").header("content-type", "application/json; charset=utf-8").body("{}");
    assert_eq!(problem(with_charset.send().await.unwrap()).await["code"], "invalid_request");
    served.stop().await;
}

async fn the_description_is_there() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;

    let description: serde_json::Value =
        served.get("/openapi.json").send().await.unwrap().json().await.unwrap();

    assert!(description["paths"]["/v1/session"]["post"].is_object(), "{description}");
    assert_eq!(description["components"]["securitySchemes"]["key"]["scheme"], "bearer");
    served.stop().await;
}

async fn its_pages() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let read = async |path: &str| {
        let answer = served.get(path).send().await.unwrap();
        let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
        (answer.headers()["content-type"].to_str().unwrap().to_owned(), policy, answer.text().await.unwrap())
    };
    let description: serde_json::Value =
        served.get("/openapi.json").send().await.unwrap().json().await.unwrap();

    let (kind, policy, api) = read("/docs").await;
    let (_, _, errors) = read("/docs/errors").await;
    let (style, ..) = read("/docs/style.css").await;

    assert_eq!(kind, "text/html; charset=utf-8");
    assert!(policy.starts_with("default-src 'none'; style-src 'self';"), "{policy}");
    assert!(style.starts_with("text/css"), "{style}");
    for path in description["paths"].as_object().unwrap().keys() {
        assert!(api.contains(&format!("<code>{path}</code>")), "{path}");
    }
    for name in description["components"]["schemas"].as_object().unwrap().keys() {
        assert!(api.contains(&format!("id=\"schema-{name}\"")), "{name}");
    }
    let codes = description["components"]["schemas"]["Code"]["enum"].as_array().unwrap();
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes {
        let code = code.as_str().unwrap();
        assert!(errors.contains(&format!("<tr id=\"{code}\">")), "{code}");
    }
    // Nothing of somebody else's is linked to or loaded.
    for page in [api, errors] {
        assert!(!page.contains("href=\"http") && !page.contains("href=\"//"), "{page}");
        assert!(!page.contains("<script") && !page.contains(" style=") && !page.contains(" src="), "{page}");
    }
    served.stop().await;
}

async fn what_has_defaults_alone_needs_no_body() {
    let served = Served::start().await;
    std::fs::write(served.file("film.mp4"), b"no film").unwrap();
    let run = json!({
        "recipe": "web-video", "input": { "path": served.file("film.mp4") }, "run_at": "2100-01-01T00:00:00Z"
    });
    let run: Value = served.post("/v1/runs").json(&run).send().await.unwrap().json().await.unwrap();
    let path = format!("/v1/runs/{}/playback", run["id"].as_str().unwrap());

    for signed in
        [served.post(&path), served.post(&path).json(&json!({})), served.post(&path).json(&json!(null))]
    {
        let signed = signed.send().await.unwrap();
        assert_eq!(signed.status(), 200);
        assert!(signed.json::<Value>().await.unwrap()["url_prefix"].is_string());
    }
    let no_json = problem(served.post(&path).body("hello").send().await.unwrap()).await;
    assert_eq!(no_json["code"], "unsupported_media_type");
    served.stop().await;
}

async fn what_of_tus_is_spoken() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;

    let told =
        served.client.request(reqwest::Method::OPTIONS, served.url("/v1/uploads")).send().await.unwrap();

    assert_eq!((told.status().as_u16(), &told.headers()["tus-version"]), (204, &"1.0.0".parse().unwrap()));
    served.stop().await;
}
