//! What is told of a run, whoever is told: its document, or as much of it as a message has room for.

use serde_json::{Map, Value, json};
use telecine_pipeline::describe;
use telecine_queue::{Queue, QueueError, Run};

/// What is left of a run's document that is too long without its files, too.
const ESSENTIAL: [&str; 12] = [
    "id",
    "object",
    "external_id",
    "recipe",
    "status",
    "priority",
    "progress",
    "created_at",
    "started_at",
    "playable_at",
    "finished_at",
    "error",
];

/// The document of a run. One that no recipe made, or of which only the row is left, has what the queue knows.
pub(crate) async fn document(queue: &dyn Queue, run: &Run, is_of_recipe: bool) -> Result<Value, QueueError> {
    let described = if is_of_recipe { describe(queue, &run.id).await? } else { None };
    let Some(document) = described else {
        let Run { id, external_id, name, state, created_at, finished_at, .. } = run;
        return Ok(json!({
            "id": id, "object": "run", "external_id": external_id, "name": name, "status": state,
            "created_at": created_at, "finished_at": finished_at,
        }));
    };
    serde_json::to_value(document).map_err(|error| QueueError::Unexpected { reason: error.to_string() })
}

/// A document and what it lacks.
pub(crate) type Shortened = (Value, &'static [&'static str]);

/// Without its lists of files.
pub(crate) fn without_files(document: &Value) -> Shortened {
    let mut document = document.clone();
    let outputs = document.get_mut("outputs").and_then(Value::as_array_mut);
    for output in outputs.into_iter().flatten().filter_map(Value::as_object_mut) {
        output.remove("files");
    }
    (document, &["run.outputs.files"])
}

/// With little more than how it ended.
pub(crate) fn essential(document: &Value) -> Shortened {
    let essential: Map<String, Value> =
        ESSENTIAL.iter().filter_map(|name| Some(((*name).to_owned(), document.get(name)?.clone()))).collect();
    let omitted = &["run.input", "run.steps", "run.outputs", "run.warnings", "run.metadata"];
    (Value::Object(essential), omitted)
}
