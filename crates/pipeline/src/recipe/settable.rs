//! What a run may set of a recipe, with what it is otherwise.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::with::misplaced;
use super::{Does, Recipe, Step};

/// One value that a run may set.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Param {
    /// The step, and the keys below it: `hls.segment_seconds`.
    pub path: String,
    #[serde(rename = "type")]
    pub kind: ParamType,
    /// What it is unless a run sets it.
    pub default: Value,
}

/// As far as what it is by default tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ParamType {
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
    /// It is not set.
    Unknown,
}

impl Recipe {
    /// Every value that [`Recipe::with_params`] takes, down to those that are no tables.
    pub fn params(&self) -> Vec<Param> {
        let mut params = Vec::new();
        for step in &self.steps {
            if !(step.required && step.enabled) {
                params.push(Param::of(format!("{}.enabled", step.name), json!(step.enabled)));
            }
            match &step.does {
                Does::Exec(spec) => {
                    let path = |key: &str| format!("{}.params.{key}", step.name);
                    params.extend(spec.params.iter().map(|(key, value)| Param::of(path(key), value.clone())));
                }
                _ => add_all(&step.name, self.settable(step), &mut params),
            }
        }
        params
    }

    /// What a step is done with, as far as a run may say otherwise.
    pub fn settable(&self, step: &Step) -> Value {
        // What joins the segments of another step has nothing of its own to set.
        if self.segments_for(step).is_some() {
            return json!({});
        }
        let mut with = serde_json::to_value(&step.does).expect("a step is plain data")["with"].take();
        if let Value::Object(with) = &mut with {
            for (key, _) in misplaced(step.does.kind()) {
                with.remove(*key);
            }
            // A file of the operator's machine.
            if let Some(Value::Object(mark)) = with.get_mut("watermark") {
                mark.remove("image");
            }
        }
        with
    }
}

fn add_all(path: &str, value: Value, params: &mut Vec<Param>) {
    match value {
        Value::Object(values) if !values.is_empty() => {
            let values: Map<String, Value> = values;
            for (key, value) in values {
                add_all(&format!("{path}.{key}"), value, params);
            }
        }
        Value::Object(_) => {}
        value => params.push(Param::of(path.to_owned(), value)),
    }
}

impl Param {
    fn of(path: String, default: Value) -> Self {
        let kind = match &default {
            Value::Null => ParamType::Unknown,
            Value::Bool(_) => ParamType::Boolean,
            Value::Number(number) if number.is_f64() => ParamType::Number,
            Value::Number(_) => ParamType::Integer,
            Value::String(_) => ParamType::String,
            Value::Array(_) => ParamType::Array,
            Value::Object(_) => ParamType::Object,
        };
        Self { path, kind, default }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::Recipes;
    use super::*;

    /// `{"a": {"b": value}}` of `a.b`.
    fn nested(path: &str, value: &Value) -> BTreeMap<String, Value> {
        let (step, rest) = path.split_once('.').unwrap();
        let value = rest.rsplit('.').fold(value.clone(), |value, key| json!({ key: value }));
        BTreeMap::from([(step.to_owned(), value)])
    }

    #[test]
    fn every_param_that_is_told_of_can_be_set_to_what_it_is() {
        for listed in Recipes::built_in().listed() {
            let recipe = listed.recipe.as_ref().unwrap();
            let params = recipe.params();
            assert!(!params.is_empty(), "{}", listed.name);
            for param in params
                .iter()
                .filter(|param| param.default != json!(false) || !param.path.ends_with(".enabled"))
            {
                let set = recipe.with_params(&nested(&param.path, &param.default));
                assert_eq!(set.as_ref(), Ok(recipe), "{} {}", listed.name, param.path);
            }
        }
    }

    #[test]
    fn a_param_tells_its_type_and_what_it_is() {
        let recipes = Recipes::built_in();
        let params = recipes.get("web-video").unwrap().params();
        let of = |path: &str| {
            params.iter().find(|param| param.path == path).map(|param| (param.kind, param.default.clone()))
        };

        assert_eq!(of("mp4.enabled"), Some((ParamType::Boolean, json!(false))));
        assert_eq!(of("hls.enabled"), None, "the recipe requires it");
        assert_eq!(of("hls.packaging"), Some((ParamType::Array, json!(["hls", "dash"]))));
        assert_eq!(of("hls.crf"), Some((ParamType::Unknown, Value::Null)));
        assert!(matches!(of("hls.segment_seconds"), Some((ParamType::Integer, _))));
        assert!(params.iter().all(|param| !param.path.starts_with("mp4.") || param.path == "mp4.enabled"));
    }
}
