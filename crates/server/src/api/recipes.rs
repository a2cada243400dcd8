//! The recipes that runs can name.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use telecine_pipeline::{Does, Listed, MediaType, Param, Recipe, RecipeOrigin, Step};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path};
use crate::problem::{Problem, ProblemDocument};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get))
}

#[derive(Debug, Serialize, ToSchema)]
struct RecipeList {
    /// By name.
    data: Vec<RecipeShown>,
    /// Always null: the list is whole.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// A recipe, or what is wrong with it.
#[derive(Debug, Serialize, ToSchema)]
struct RecipeShown {
    name: String,
    origin: Origin,
    /// Whether a run can name it.
    is_valid: bool,
    /// Empty of a recipe that is not valid.
    description: String,
    /// In the order in which they can be done. None of a recipe that is not valid.
    steps: Vec<StepShown>,
    /// What a run may set: `params` of a request, by step.
    params: Vec<Param>,
    /// Why it is not valid. Where in its file is told to keys with the scope `admin`.
    errors: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Origin {
    BuiltIn,
    /// A file of the operator's.
    File,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RecipeStep)]
struct StepShown {
    name: String,
    /// `hls`, `mp4`, `pictures`, `image`, `audio` or `exec`.
    kind: &'static str,
    /// What an input must be for it, by its content; empty is anything.
    #[serde(rename = "for")]
    takes: Vec<MediaType>,
    /// Steps that must end first.
    needs: Vec<String>,
    /// Whether its failure fails the run.
    required: bool,
    /// Whether it is done unless a run says otherwise.
    enabled: bool,
    /// With what it is done. Of an operator's own program only what a run may set.
    #[schema(value_type = Object)]
    with: Value,
}

/// All recipes, built in and the operator's own, also those that are not valid.
#[utoipa::path(
    get, path = "/v1/recipes", tag = "recipes", operation_id = "list_recipes",
    responses((status = 200, body = RecipeList), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<RecipeList>, Problem> {
    caller.require(Scope::Read)?;
    let data = app.recipes.listed().map(|listed| RecipeShown::of(listed, &caller)).collect();
    Ok(Json(RecipeList { data, next_cursor: None }))
}

/// One recipe.
#[utoipa::path(
    get, path = "/v1/recipes/{name}", tag = "recipes", operation_id = "get_recipe",
    params(("name" = String, Path, description = "The recipe's name")),
    responses(
        (status = 200, body = RecipeShown),
        (status = 404, description = "There is no such recipe", body = ProblemDocument, content_type = "application/problem+json"),
        (status = "default", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<RecipeShown>, Problem> {
    caller.require(Scope::Read)?;
    let listed = app.recipes.listed().find(|listed| listed.name == name);
    let shown = listed.map(|listed| RecipeShown::of(listed, &caller));
    shown.map(Json).ok_or_else(|| Problem::not_found("recipe"))
}

impl RecipeShown {
    fn of(listed: &Listed, caller: &Caller) -> Self {
        let origin = match &listed.origin {
            RecipeOrigin::BuiltIn => Origin::BuiltIn,
            RecipeOrigin::File(_) => Origin::File,
        };
        let nothing = Self {
            name: listed.name.clone(),
            origin,
            is_valid: false,
            description: String::new(),
            steps: Vec::new(),
            params: Vec::new(),
            errors: Vec::new(),
        };
        match &listed.recipe {
            Ok(recipe) => Self {
                is_valid: true,
                description: recipe.description.clone(),
                steps: recipe.steps.iter().map(|step| StepShown::of(recipe, step)).collect(),
                params: recipe.params(),
                ..nothing
            },
            Err(errors) if caller.require(Scope::Admin).is_ok() => {
                let told = |error: &telecine_pipeline::RecipeError| {
                    format!("{}:{}:{}: {}", error.file, error.line, error.column, error.message)
                };
                Self { errors: errors.0.iter().map(told).collect(), ..nothing }
            }
            Err(errors) => {
                Self { errors: errors.0.iter().map(|error| error.message.clone()).collect(), ..nothing }
            }
        }
    }
}

impl StepShown {
    fn of(recipe: &Recipe, step: &Step) -> Self {
        Self {
            name: step.name.clone(),
            kind: step.does.kind(),
            takes: step.takes.clone(),
            needs: step.needs.clone(),
            required: step.required,
            enabled: step.enabled,
            with: match &step.does {
                Does::Exec(spec) => serde_json::json!({ "params": spec.params }),
                _ => recipe.settable(step),
            },
        }
    }
}
