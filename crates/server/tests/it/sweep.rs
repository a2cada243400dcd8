//! Promises of every operation there is, read from the description: so a new one is held to them without another test.

use libtest_mimic::Trial;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("sweep::without_a_key_only_what_says_so_is_open", without_a_key),
        trial("sweep::garbage_is_refused_with_a_code_and_never_breaks_anything", garbage),
    ]
}

struct Operation {
    method: Method,
    path: String,
    is_open: bool,
}

impl Operation {
    /// With something in each place of the path.
    fn path_with(&self, id: &str) -> String {
        let mut path = self.path.clone();
        while let (Some(from), Some(to)) = (path.find('{'), path.find('}')) {
            path.replace_range(from..=to, id);
        }
        path
    }

    fn at(&self, served: &Served, path: &str) -> RequestBuilder {
        served.client.request(self.method.clone(), served.url(path))
    }
}

async fn operations(served: &Served) -> Vec<Operation> {
    let description: Value = served.get("/openapi.json").send().await.unwrap().json().await.unwrap();
    let mut operations = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let Ok(method) = method.to_uppercase().parse::<Method>() else { continue };
            let ways_in = operation.get("security").and_then(Value::as_array);
            let is_open = ways_in.is_some_and(|ways| ways.iter().all(|way| way == &serde_json::json!({})));
            operations.push(Operation { method, path: path.clone(), is_open });
        }
    }
    assert!(operations.len() > 20, "the description is read as it is written");
    operations
}

async fn without_a_key() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let operations = operations(&served).await;
    let (open, closed): (Vec<_>, Vec<_>) = operations.into_iter().partition(|operation| operation.is_open);

    let mut let_in = Vec::new();
    for operation in closed {
        for id in ["1", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
            let asked =
                operation.at(&served, &operation.path_with(id)).header("content-type", "application/json");
            let status = asked.body("{}").send().await.unwrap().status();
            if status != 401 {
                let_in.push(format!("{} {}: {status}", operation.method, operation.path));
            }
        }
    }

    assert_eq!(let_in, Vec::<String>::new());
    assert!(open.iter().any(|operation| operation.path == "/health/live"), "some are open");
    served.stop().await;
}

async fn garbage() {
    let served = Served::start().await;
    let huge = "9".repeat(3_000);
    let ids = [
        "0",
        "-1",
        "99999999999999999999999999",
        &huge,
        "%00",
        "..%2f..%2fetc%2fpasswd",
        "%ff%fe",
        "%E2%80%AE",
        "'%20OR%201=1--",
        "%7B%7D",
        "null",
        "run_",
        "*",
    ];
    let bodies = [
        "",
        "{",
        "[]",
        "null",
        "\"text\"",
        "{\"no_such_field\": 1}",
        "{\"key\": {\"deep\": [[[]]]}}",
        "\u{0}",
        "9e999",
    ];
    for operation in operations(&served).await {
        // Streams have no end to wait for, and what is garbage in an id they refuse as the others do.
        let ids = if operation.path.contains('{') { &ids[..] } else { &ids[..1] };
        for id in ids {
            check(&operation, operation.at(&served, &operation.path_with(id)), id).await;
        }
        for body in bodies {
            let asked = operation
                .at(&served, &operation.path_with("1"))
                .header("content-type", "application/json")
                .body(body);
            check(&operation, asked, body).await;
        }
        for (name, value) in [
            ("range", "bytes=9-1,,x"),
            ("last-event-id", "\u{a0}"),
            ("idempotency-key", &huge),
            ("upload-offset", "-1"),
            ("tus-resumable", "9.9.9"),
            ("upload-metadata", "@@@ ,,"),
            ("cookie", "telecine_session=;;=;"),
            ("traceparent", "00-zz"),
            ("content-type", "multipart/form-data"),
        ] {
            check(&operation, operation.at(&served, &operation.path_with("1")).header(name, value), name)
                .await;
        }
        for query in
            ["limit=-1", "limit=x&limit=y", "cursor=%00", "no_such_parameter=1", "%ff=%ff", "status=%00"]
        {
            let path = format!("{}?{query}", operation.path_with("1"));
            check(&operation, operation.at(&served, &path), query).await;
        }
    }

    assert_eq!(served.get("/health/live").send().await.unwrap().status(), 200);
    served.stop().await;
}

async fn check(operation: &Operation, asked: RequestBuilder, garbage: &str) {
    let answer = asked.send().await.unwrap_or_else(|error| {
        panic!("{} {} with {garbage:.100}: {error}", operation.method, operation.path)
    });
    let status = answer.status();
    let told = format!("{} {} with {garbage:.100}: {status}", operation.method, operation.path);
    assert!(!status.is_server_error() || status == 503, "{told}");
    if status.is_client_error() && operation.method != Method::HEAD {
        problem(answer).await;
    }
}
