//! Pages for people: the API out of its own description, and what each code of a problem means.
//!
//! Written once when the server starts. No script, nothing from elsewhere: they work without a network and under a policy
//! that allows a page nothing but its style.

mod meaning;
mod schema;

use std::sync::Arc;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderValue, header};
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;
use utoipa::openapi::OpenApi;

use crate::app::App;
use crate::problem::Code;

const STYLE: &str = include_str!("docs/style.css");
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const METHODS: [&str; 7] = ["get", "head", "post", "put", "patch", "delete", "options"];

pub(crate) fn routes(description: &OpenApi) -> Router<Arc<App>> {
    let description = serde_json::to_value(description).unwrap_or_default();
    let api = written(&api_page(&description));
    let errors = written(&errors_page());
    Router::new()
        .route("/docs", get(async move || page(api.clone())))
        .route("/docs/errors", get(async move || page(errors.clone())))
        .route("/docs/style.css", get(async || ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE)))
}

fn written(page: &Markup) -> Bytes {
    Bytes::from(page.0.clone())
}

fn page(page: Bytes) -> impl IntoResponse {
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    ([(header::CONTENT_TYPE, html), (header::CONTENT_SECURITY_POLICY, POLICY)], page)
}

fn framed(title: &str, aside: &Markup, main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                link rel="stylesheet" href="/docs/style.css";
            }
            body {
                nav {
                    p.brand { a href="/docs" { "Telecine" } }
                    (aside)
                    p.more { a href="/docs/errors" { "Errors" } " · " a href="/openapi.json" { "openapi.json" } }
                }
                main { (main) }
            }
        }
    }
}

/// An operation and where it is.
struct Operation<'a> {
    method: &'static str,
    path: &'a str,
    value: &'a Value,
}

impl Operation<'_> {
    fn id(&self) -> String {
        let path = self.path.trim_matches('/').replace(['/', '{', '}'], "-");
        format!("{}-{path}", self.method)
    }

    fn tag(&self) -> &str {
        self.value["tags"][0].as_str().unwrap_or("other")
    }
}

/// What newcomers need comes first.
fn rank(tag: &str) -> usize {
    const FIRST: [&str; 5] = ["uploads", "runs", "events", "files", "recipes"];
    FIRST.iter().position(|first| *first == tag).unwrap_or(FIRST.len())
}

fn operations(description: &Value) -> Vec<Operation<'_>> {
    let paths = description["paths"].as_object().into_iter().flatten();
    let each = paths.flat_map(|(path, item)| {
        METHODS
            .into_iter()
            .filter_map(move |method| item.get(method).map(|value| Operation { method, path, value }))
    });
    let mut each: Vec<_> = each.collect();
    each.sort_by(|one, other| (rank(one.tag()), one.tag()).cmp(&(rank(other.tag()), other.tag())));
    each
}

fn api_page(description: &Value) -> Markup {
    let operations = operations(description);
    let groups: Vec<&[Operation<'_>]> = operations.chunk_by(|one, other| one.tag() == other.tag()).collect();
    let aside = html! {
        @for group in &groups {
            h2 { a href={ "#" (group[0].tag()) } { (group[0].tag()) } }
            ul {
                @for operation in *group {
                    li { a href={ "#" (operation.id()) } { (badge(operation.method)) " " (operation.path) } }
                }
            }
        }
        h2 { a href="#schemas" { "schemas" } }
    };
    let main = html! {
        h1 { (text(&description["info"]["title"])) }
        p.lead { (text(&description["info"]["description"])) }
        (introduction())
        @for group in &groups {
            section id=(group[0].tag()) {
                h2 { (group[0].tag()) }
                @for operation in *group { (shown(operation)) }
            }
        }
        section id="schemas" {
            h2 { "schemas" }
            @for (name, schema) in description["components"]["schemas"].as_object().into_iter().flatten() {
                (schema::component(name, schema))
            }
        }
    };
    framed("Telecine: the API", &aside, &main)
}

fn introduction() -> Markup {
    html! {
        ul {
            li { "Send a key as " code { "Authorization: Bearer tk_…" } "; " code { "telecine key new" } " makes one. Programs on the server's own machine need none, unless it was told otherwise." }
            li { "Whatever is no success is " code { "application/problem+json" } " with a stable " code { "code" } ": " a href="/docs/errors" { "what each means" } "." }
            li { "Each answer has an " code { "X-Request-Id" } ": your own, or a new one. The server's log has it too." }
        }
    }
}

fn shown(operation: &Operation<'_>) -> Markup {
    let value = operation.value;
    let parameters: Vec<&Value> = value["parameters"].as_array().into_iter().flatten().collect();
    html! {
        article id=(operation.id()) {
            h3 { (badge(operation.method)) " " code { (operation.path) } }
            p { (prose(text(&value["summary"]))) }
            @if let Some(description) = value["description"].as_str() { p { (prose(description)) } }
            @if !parameters.is_empty() {
                h4 { "Parameters" }
                table {
                    @for parameter in parameters { (parameter_row(parameter)) }
                }
            }
            @if let Some(body) = value.get("requestBody") {
                h4 { "Body" }
                (contents(body))
            }
            h4 { "Answers" }
            table {
                @for (status, response) in value["responses"].as_object().into_iter().flatten() {
                    tr {
                        td.name { code { (status) } }
                        td { (prose(text(&response["description"]))) " " (contents(response)) }
                    }
                }
            }
        }
    }
}

fn parameter_row(parameter: &Value) -> Markup {
    let is_required = parameter["required"].as_bool().unwrap_or_default();
    html! {
        tr {
            td.name { code { (text(&parameter["name"])) } @if is_required { span.required { " required" } } }
            td.kind { (text(&parameter["in"])) }
            td { (schema::kind(&parameter["schema"])) " " (prose(text(&parameter["description"]))) }
        }
    }
}

/// What a body is, by media type.
fn contents(holder: &Value) -> Markup {
    html! {
        @for (media_type, content) in holder["content"].as_object().into_iter().flatten() {
            div.content { code { (media_type) } " " (schema::kind(&content["schema"])) }
        }
    }
}

fn errors_page() -> Markup {
    let codes: Vec<(Code, &str)> = Code::all().into_iter().map(|code| (code, meaning::of(code))).collect();
    let aside = html! {
        h2 { "codes" }
        ul { @for (code, _) in &codes { li { a href={ "#" (code.name()) } { (code.name()) } } } }
    };
    let main = html! {
        h1 { "Errors" }
        p.lead {
            "Every answer that is no success is " code { "application/problem+json" } " (RFC 9457). Match on "
            code { "code" } ", which stays as it is; " code { "detail" } " is for people and may change."
        }
        p {
            "A run that failed was accepted, so it is no problem of a request: its document has an " code { "error" }
            " with a code and a hint of its own."
        }
        table {
            @for (code, meaning) in &codes {
                tr id=(code.name()) {
                    td.name { code { (code.name()) } }
                    td.kind { (code.status().as_u16()) }
                    td { (prose(meaning)) }
                }
            }
        }
    };
    framed("Telecine: errors", &aside, &main)
}

fn badge(method: &str) -> Markup {
    html! { span class={ "method " (method) } { (method.to_uppercase()) } }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Text with `code` in it; an example for programmers of Rust, which comments may end with, is none for callers.
fn prose(text: &str) -> Markup {
    let text = text.split("```").next().unwrap_or_default().trim_end();
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 0 { (part) } @else { code { (part) } }
        }
    }
}
