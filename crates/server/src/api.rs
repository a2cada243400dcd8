//! One file per resource. Each has `routes()`; the same line routes a handler and documents it.

mod claims;
mod events;
mod files;
mod health;
mod jobs;
mod lanes;
mod limits;
mod metrics;
mod plan;
mod playback;
mod recipes;
mod runs;
mod scan;
mod session;
pub(crate) mod transcode;
pub(crate) mod uploads;
mod webhooks;
mod workers;

use std::sync::Arc;

use axum::routing::get;
use axum::{Router, middleware};
use bytes::Bytes;
use http::header;
use utoipa::openapi::schema::AdditionalProperties;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Object, OpenApi as Description, RefOr, Schema};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;

pub(crate) use files::Shelves;
pub(crate) use plan::Looks;
pub(crate) use playback::SECRET as PLAYBACK_SECRET;

use crate::app::App;
use crate::problem::{Code, Problem, ProblemDocument};
use crate::{caller, cors, docs, observe, sessions};

#[derive(OpenApi)]
#[openapi(
    info(title = "Telecine", description = "Media in, verified outputs out; no accepted run is lost."),
    components(schemas(ProblemDocument)),
    modifiers(&WaysIn),
    security(("key" = []), ("session" = []))
)]
struct Base;

/// How a caller shows who it is.
struct WaysIn;

impl Modify for WaysIn {
    fn modify(&self, description: &mut Description) {
        let components = description.components.get_or_insert_default();
        let key = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("tk_…").build();
        components.add_security_scheme("key", SecurityScheme::Http(key));
        let session = ApiKeyValue::with_description(
            sessions::COOKIE,
            "Of a page of this server; over https it is called `__Host-telecine_session`",
        );
        let session = ApiKey::Cookie(session);
        components.add_security_scheme("session", SecurityScheme::ApiKey(session));
    }
}

/// Every resource, each under its own path.
fn resources() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Base::openapi())
        .merge(claims::routes())
        .merge(events::routes())
        .merge(files::routes())
        .merge(health::routes())
        .merge(jobs::routes())
        .merge(lanes::routes())
        .merge(limits::routes())
        .merge(plan::routes())
        .merge(playback::routes())
        .merge(metrics::routes())
        .merge(recipes::routes())
        .merge(session::routes())
        .merge(runs::routes())
        .merge(webhooks::routes())
        .merge(workers::routes())
        .merge(scan::routes())
        .merge(transcode::routes())
        .merge(uploads::routes())
}

/// Of a choice of objects with one name each nobody takes a second name; the macro leaves that unsaid.
fn close_choices(description: &mut Description) {
    let Some(components) = &mut description.components else { return };
    for schema in components.schemas.values_mut() {
        let RefOr::T(Schema::OneOf(choice)) = schema else { continue };
        for option in &mut choice.items {
            if let RefOr::T(Schema::Object(object)) = option
                && object.properties.len() == 1
                && object.required.len() == 1
            {
                close(object);
                for inner in object.properties.values_mut() {
                    if let RefOr::T(Schema::Object(inner)) = inner {
                        close(inner);
                    }
                }
            }
        }
    }
}

fn close(object: &mut Object) {
    object.additional_properties.get_or_insert_with(|| Box::new(AdditionalProperties::FreeForm(false)));
}

/// All resources, and what is said of them.
fn described() -> (Router<Arc<App>>, Description) {
    let (router, description) = resources().split_for_parts();
    let mut description = without_stars(description);
    close_choices(&mut description);
    (router, description)
}

/// The API, ready to be served.
pub fn router(app: &Arc<App>) -> Router {
    let (router, description) = described();
    // It is large and always the same: written once.
    let written = Bytes::from(serde_json::to_vec(&description).unwrap_or_default());
    let router = router.merge(docs::routes(&description)).route(
        "/openapi.json",
        get(async move || ([(header::CONTENT_TYPE, "application/json")], written.clone())),
    );
    layered(router, app)
}

/// What is for those alone who look after a process.
pub(crate) fn watched(app: &Arc<App>) -> Router {
    let (router, _) = OpenApiRouter::new().merge(health::routes()).merge(metrics::routes()).split_for_parts();
    layered(router, app)
}

/// What every route has around it.
pub(crate) fn layered(router: Router<Arc<App>>, app: &Arc<App>) -> Router {
    router
        .fallback(async || {
            Problem::new(Code::NotFound, "there is nothing at this address; see /openapi.json")
        })
        .method_not_allowed_fallback(async || {
            Problem::new(Code::MethodNotAllowed, "this address does not take this method; see /openapi.json")
        })
        .layer(middleware::from_fn_with_state(Arc::clone(app), caller::recognise))
        .layer(middleware::from_fn_with_state(Arc::clone(app), cors::allow_named_origins))
        .layer(middleware::from_fn_with_state(Arc::clone(app), observe::observe))
        .with_state(Arc::clone(app))
}

/// What `openapi.json` says.
pub fn openapi() -> Description {
    described().1
}

/// The router marks a parameter that is the rest of a path with a star; the description has no word for it.
fn without_stars(mut description: Description) -> Description {
    let paths = std::mem::take(&mut description.paths.paths);
    description.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    description
}
