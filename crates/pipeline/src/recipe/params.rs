//! What a run may change of its recipe: values of `with`, and whether a step is done.
//!
//! Parameters come from callers who must not gain what the recipe's author has: they change no program that is run, name
//! no file of this machine, and leave out no step that the author requires.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use toml::de::DeValue;

use super::with::misplaced;
use super::{Does, Recipe, Step};
use crate::nearest::{did_you_mean, in_plain_words};

/// Everything that is wrong with the parameters of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(transparent)]
pub struct ParamErrors(pub Vec<ParamError>);

/// One mistake and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParamError {
    /// As `--set` writes it: `hls.ladder.heights`.
    pub path: String,
    pub message: String,
}

impl fmt::Display for ParamErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<String> =
            self.0.iter().map(|error| format!("{}: {}", error.path, error.message)).collect();
        f.write_str(&told.join("\n"))
    }
}

impl ParamError {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl Recipe {
    /// The recipe as one run wants it: `{"hls": {"ladder": {"heights": [720]}}, "mp4": {"enabled": true}}`.
    pub fn with_params(&self, params: &BTreeMap<String, Value>) -> Result<Self, ParamErrors> {
        let mut changed = self.clone();
        let mut errors = Vec::new();
        for (name, values) in params {
            let Some(nth) = self.steps.iter().position(|step| step.name == *name) else {
                let known: Vec<&str> = self.steps.iter().map(|step| step.name.as_str()).collect();
                let near = did_you_mean(name, &known);
                errors.push(ParamError::new(
                    name,
                    format!("the recipe `{}` has no such step{near}", self.name),
                ));
                continue;
            };
            match values {
                Value::Object(values) => {
                    let joins = self.segments_for(&self.steps[nth]).map(|film| film.name.as_str());
                    match changed_step(&self.steps[nth], joins, values) {
                        Ok(step) => changed.steps[nth] = step,
                        Err(wrong) => errors.extend(wrong),
                    }
                }
                _ => errors.push(ParamError::new(
                    name,
                    "a step's values are an object, such as {\"enabled\": true}",
                )),
            }
        }
        if errors.is_empty() {
            errors.extend(changed.needs_that_are_not_enabled());
        }
        if errors.is_empty() { Ok(changed) } else { Err(ParamErrors(errors)) }
    }

    fn needs_that_are_not_enabled(&self) -> Vec<ParamError> {
        let mut errors = Vec::new();
        if self.enabled_steps().next().is_none() {
            errors.push(ParamError::new("enabled", "no step would be left"));
        }
        for step in self.enabled_steps() {
            for need in step.needs.iter().filter(|need| self.step(need).is_some_and(|step| !step.enabled)) {
                let message = format!("it needs `{need}`, which is not enabled: set {need}.enabled too");
                errors.push(ParamError::new(format!("{}.enabled", step.name), message));
            }
        }
        errors
    }
}

/// Each value is tried alone, so that all wrong ones are told, and then all together.
fn changed_step(
    step: &Step,
    joins: Option<&str>,
    values: &Map<String, Value>,
) -> Result<Step, Vec<ParamError>> {
    let mut errors = Vec::new();
    let mut changed = step.clone();
    let mut wanted = Map::new();
    for (key, value) in values {
        let path = format!("{}.{key}", step.name);
        let tried = match key.as_str() {
            "enabled" => enabled(step, value).map(|enabled| changed.enabled = enabled),
            _ => may_change(step, joins, key, value).and_then(|()| {
                wanted.insert(key.clone(), value.clone());
                merged(step, &Map::from_iter([(key.clone(), value.clone())])).map(drop)
            }),
        };
        errors.extend(tried.err().map(|(below, message)| ParamError::new(path + &below, message)));
    }
    if errors.is_empty() && !wanted.is_empty() {
        match merged(step, &wanted) {
            Ok(does) => changed.does = does,
            Err((below, message)) => errors.push(ParamError::new(step.name.clone() + &below, message)),
        }
    }
    if errors.is_empty() { Ok(changed) } else { Err(errors) }
}

/// Where below the key, and why.
type Refused = (String, String);

fn enabled(step: &Step, value: &Value) -> Result<bool, Refused> {
    match value.as_bool() {
        Some(false) if step.enabled && step.required => {
            Err((String::new(), "the recipe requires this step; only optional ones can be left out".into()))
        }
        Some(enabled) => Ok(enabled),
        None => Err((String::new(), "this is true or false".into())),
    }
}

fn may_change(step: &Step, joins: Option<&str>, key: &str, value: &Value) -> Result<(), Refused> {
    if let Some(film) = joins {
        let message = format!("this step joins the segments of `{film}`; set {film}.{key}");
        return Err((String::new(), message));
    }
    if matches!(step.does, Does::Exec(_)) && key != "params" {
        let message = "of a step that runs a program only `params` can be set; the rest is the recipe's";
        return Err((String::new(), message.into()));
    }
    if let Some((_, why)) = misplaced(step.does.kind()).iter().find(|(misplaced, _)| *misplaced == key) {
        return Err((String::new(), format!("this does not belong here: {why}")));
    }
    if key == "watermark" && value.get("image").is_some() {
        return Err((".image".into(), "only the recipe can name a file of this machine".into()));
    }
    Ok(())
}

/// What the step does, with some values changed.
fn merged(step: &Step, values: &Map<String, Value>) -> Result<Does, Refused> {
    let mut document = serde_json::to_value(&step.does).expect("a step is plain data");
    overlay(&mut document["with"], &Value::Object(values.clone()));
    let does: Does = typed(step.does.kind(), document["with"].take())?;
    let below = |path: &[String]| path.iter().skip(1).map(|key| format!(".{key}")).collect::<String>();
    does.check().map_err(|fault| (below(&fault.path), fault.reason))?;
    Ok(does)
}

/// Objects are merged; everything else is replaced.
fn overlay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                overlay(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

fn typed(kind: &str, with: Value) -> Result<Does, Refused> {
    Ok(match kind {
        "hls" => Does::Hls(as_type(with)?),
        "mp4" => Does::Mp4(as_type(with)?),
        "pictures" => Does::Pictures(as_type(with)?),
        "image" => Does::Image(as_type(with)?),
        "audio" => Does::Audio(as_type(with)?),
        _ => Does::Exec(as_type(with)?),
    })
}

fn as_type<T: serde::de::DeserializeOwned>(with: Value) -> Result<T, Refused> {
    serde_path_to_error::deserialize(with).map_err(|error| {
        let path = error.path().to_string();
        let below = path.find(['.', '[']).map_or("", |at| &path[at..]).to_owned();
        (below, in_plain_words(&error.inner().to_string()))
    })
}

/// `hls.ladder.heights=[720]` and the like, as the parameters that they mean. Values are TOML; a bare word is a text, and
/// `null` takes away what the recipe has.
pub fn parse_params<S: AsRef<str>>(settings: &[S]) -> Result<BTreeMap<String, Value>, ParamErrors> {
    let mut params = Value::Object(Map::new());
    let mut errors = Vec::new();
    for setting in settings {
        match parse_setting(setting.as_ref()) {
            Ok(setting) => overlay(&mut params, &setting),
            Err(error) => errors.push(error),
        }
    }
    let Value::Object(params) = params else { return Err(ParamErrors(errors)) };
    if errors.is_empty() { Ok(params.into_iter().collect()) } else { Err(ParamErrors(errors)) }
}

fn parse_setting(text: &str) -> Result<Value, ParamError> {
    let Some((path, value)) = text.split_once('=') else {
        return Err(ParamError::new(text, "a setting is STEP.KEY=VALUE, such as hls.ladder.heights=[720]"));
    };
    let (path, value) = (path.trim(), value.trim());
    let keys: Vec<&str> = path.split('.').collect();
    let is_proper = |key: &&str| !key.is_empty() && !key.contains(char::is_whitespace);
    if keys.len() < 2 || !keys.iter().all(is_proper) {
        return Err(ParamError::new(path, "a setting names a step and a key, such as mp4.enabled=true"));
    }
    let value = parse_value(value).map_err(|message| ParamError::new(path, message))?;
    Ok(keys
        .into_iter()
        .rev()
        .fold(value, |value, key| Value::Object(Map::from_iter([(key.to_owned(), value)]))))
}

fn parse_value(text: &str) -> Result<Value, String> {
    let is_bare = !text.is_empty() && !text.contains(['"', '\'', '[', ']', '{', '}', ',', '=']);
    match DeValue::parse(text) {
        Ok(value) => json_of(value.get_ref()),
        Err(_) if text == "null" => Ok(Value::Null),
        Err(_) if is_bare => Ok(text.into()),
        Err(error) => Err(format!("`{text}` is neither a word nor a TOML value: {}", error.message())),
    }
}

fn json_of(value: &DeValue<'_>) -> Result<Value, String> {
    let out_of_range = |text: &str| format!("the number {text} is out of range");
    Ok(match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
            .map_err(|_| out_of_range(digits.as_str()))?
            .into(),
        DeValue::Float(digits) => {
            let number = digits.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            number.ok_or_else(|| out_of_range(digits.as_str()))?.into()
        }
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Datetime(instant) => instant.to_string().into(),
        DeValue::Array(elements) => {
            elements.iter().map(|element| json_of(element.get_ref())).collect::<Result<_, _>>()?
        }
        DeValue::Table(table) => {
            let entries =
                table.iter().map(|(key, value)| Ok((key.get_ref().to_string(), json_of(value.get_ref())?)));
            Value::Object(entries.collect::<Result<_, String>>()?)
        }
    })
}
