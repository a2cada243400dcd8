//! Whether this process lives, and whether it can work.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::extract::Json;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(live))
}

#[derive(Debug, Serialize, ToSchema)]
struct Live {
    #[schema(examples("ok"))]
    status: &'static str,
}

/// The process answers. Looks at nothing else, so it is cheap and never wrong about a restart.
#[utoipa::path(get, path = "/health/live", tag = "health", security(()), responses((status = 200, body = Live)))]
async fn live() -> Json<Live> {
    Json(Live { status: "ok" })
}
