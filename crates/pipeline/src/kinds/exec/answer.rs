//! What a program says on stdout.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::failure::{Attempted, Failed};

/// One JSON object. Nothing at all is an empty one.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Answer {
    /// Without it, all files in `out/` are one output.
    pub(super) outputs: Option<Vec<AnsweredOutput>>,
    pub(super) facts: Map<String, Value>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnsweredOutput {
    pub(super) name: String,
    pub(super) kind: Option<String>,
    /// By their paths in `out/`, the one to begin with first.
    pub(super) files: Vec<String>,
    #[serde(default)]
    pub(super) facts: Map<String, Value>,
}

pub(super) fn invalid(message: impl Into<String>) -> Failed {
    let hint = "print one JSON object to stdout: {\"outputs\": [{\"name\", \"kind\", \"files\", \"facts\"}], \"facts\": {}}";
    Failed::for_good("exec_answer_invalid", message, hint)
}

impl Answer {
    pub(super) fn parse(stdout: &[u8]) -> Attempted<Self> {
        let text = stdout.trim_ascii();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let value: Value = serde_json::from_slice(text)
            .map_err(|error| invalid(format!("what the program wrote to stdout is no JSON: {error}")))?;
        if !value.is_object() {
            return Err(invalid("what the program wrote to stdout is no JSON object"));
        }
        require_storable(&value)?;
        let answer: Self = serde_path_to_error::deserialize(value)
            .map_err(|error| invalid(format!("stdout: {}: {}", error.path(), error.inner())))?;
        for output in answer.outputs.iter().flatten() {
            let kind = output.kind.as_ref();
            [Some(&output.name), kind].into_iter().flatten().try_for_each(|name| require_name(name))?;
        }
        Ok(answer)
    }
}

/// Postgres stores no NUL in text, and other strings pass through as they are.
fn require_storable(value: &Value) -> Attempted<()> {
    let without_nul = |text: &str| match text.contains('\0') {
        true => Err(invalid("a text on stdout contains a NUL character")),
        false => Ok(()),
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        Value::String(text) => without_nul(text),
        Value::Array(items) => items.iter().try_for_each(require_storable),
        Value::Object(fields) => fields.iter().try_for_each(|(name, field)| {
            without_nul(name)?;
            require_storable(field)
        }),
    }
}

/// It becomes a part of keys and addresses.
fn require_name(name: &str) -> Attempted<()> {
    let is_proper = (1..=64).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if is_proper {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    Err(invalid(format!("{shown:?} cannot be a name: 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_object_of_known_keys() {
        let answer = br#" {"outputs": [{"name": "labels", "files": ["a.json"]}], "facts": {"n": 1}} "#;
        let answer = Answer::parse(answer).unwrap();

        assert_eq!(answer.facts["n"], 1);
        assert_eq!(answer.outputs.unwrap()[0].files, ["a.json"]);
        assert_eq!(Answer::parse(b" \n").unwrap(), Answer::default());
    }

    #[test]
    fn anything_else_is_refused_with_what_is_wrong() {
        for (stdout, told) in [
            ("hello", "no JSON"),
            ("{} {}", "no JSON"),
            ("[]", "no JSON object"),
            (r#"{"output": []}"#, "unknown field `output`"),
            (r#"{"outputs": [{"files": []}]}"#, "missing field `name`"),
            (r#"{"outputs": [{"name": "x", "files": [1]}]}"#, "outputs[0].files[0]"),
            (r#"{"outputs": [{"name": "../x", "files": []}]}"#, "cannot be a name"),
            (r#"{"outputs": [{"name": "", "files": []}]}"#, "cannot be a name"),
            (r#"{"outputs": [{"name": "x", "kind": "a/b", "files": []}]}"#, "cannot be a name"),
            (r#"{"facts": {"a\u0000": 1}}"#, "NUL"),
            (r#"{"facts": [1]}"#, "facts"),
        ] {
            let failed = Answer::parse(stdout.as_bytes()).unwrap_err();
            assert!(failed.message.contains(told) && !failed.retryable, "{stdout}: {failed:?}");
            assert_eq!(failed.code, "exec_answer_invalid");
        }
    }
}
