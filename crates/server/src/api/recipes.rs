//! The recipes that runs can name.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::Json;
use crate::problem::{Problem, ProblemDocument};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

#[derive(Debug, Serialize, ToSchema)]
struct RecipeList {
    data: Vec<RecipeShown>,
}

#[derive(Debug, Serialize, ToSchema)]
struct RecipeShown {
    name: String,
}

/// All recipes, built in and the operator's own.
#[utoipa::path(
    get, path = "/v1/recipes", tag = "recipes",
    responses((status = 200, body = RecipeList), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<RecipeList>, Problem> {
    caller.require(Scope::Read)?;
    let data = app.recipes.listed().map(|recipe| RecipeShown { name: recipe.name.clone() }).collect();
    Ok(Json(RecipeList { data }))
}
