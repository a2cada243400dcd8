//! Schemas in words.

use maud::{Markup, html};
use serde_json::Value;

use super::{prose, text};

/// One named schema with its fields.
pub(super) fn component(name: &str, schema: &Value) -> Markup {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields: Vec<(&String, &Value)> = schema["properties"].as_object().into_iter().flatten().collect();
    html! {
        article.schema id={ "schema-" (name) } {
            h3 { (name) }
            @if let Some(description) = schema["description"].as_str() { p { (prose(description)) } }
            @if fields.is_empty() {
                p { (kind(schema)) }
            } @else {
                table {
                    @for (field, of_field) in fields {
                        tr {
                            td.name {
                                code { (field) }
                                @if required.contains(&field.as_str()) { span.required { " required" } }
                            }
                            td { (kind(of_field)) " " (prose(text(&of_field["description"]))) }
                        }
                    }
                }
            }
        }
    }
}

/// What a value may be, in a few words.
pub(super) fn kind(schema: &Value) -> Markup {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return html! { a.kind href={ "#schema-" (name) } { (name) } };
    }
    for (key, joint) in [("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")] {
        if let Some(choices) = schema[key].as_array() {
            return html! {
                @for (index, choice) in choices.iter().enumerate() {
                    @if index > 0 { (joint) }
                    (kind(choice))
                }
            };
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        return html! {
            @for (index, value) in values.iter().enumerate() {
                @if index > 0 { " | " }
                code { (plain(value)) }
            }
        };
    }
    html! {
        span.kind {
            (type_names(schema))
            @if let Some(items) = schema.get("items") { " of " (kind(items)) }
            @for bound in bounds(schema) { ", " (bound) }
        }
        (inner_fields(schema))
    }
}

/// Of an object that has no name of its own.
fn inner_fields(schema: &Value) -> Markup {
    html! {
        @if let Some(fields) = schema["properties"].as_object() {
            ul {
                @for (field, of_field) in fields {
                    li { code { (field) } " " (kind(of_field)) " " (prose(text(&of_field["description"]))) }
                }
            }
        }
    }
}

fn type_names(schema: &Value) -> String {
    let names = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "anything".into(),
    };
    match schema["format"].as_str() {
        Some(format) => format!("{names} ({format})"),
        None => names,
    }
}

fn bounds(schema: &Value) -> Vec<String> {
    let said = [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "length at least"),
        ("maxLength", "length at most"),
        ("minItems", "items at least"),
        ("maxItems", "items at most"),
        ("pattern", "as"),
        ("default", "otherwise"),
    ];
    said.into_iter()
        .filter_map(|(key, words)| schema.get(key).map(|bound| format!("{words} {}", plain(bound))))
        .collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
