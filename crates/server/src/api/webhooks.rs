//! Webhooks: who is told of a tenant's runs, and what came of each delivery.

mod deliveries;
mod endpoints;

use std::sync::Arc;

use telecine_connect::webhooks::WebhookError;
use telecine_connect::{WebhookOptions, Webhooks};
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::problem::{Code, Mistake, Problem};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().merge(endpoints::routes()).merge(deliveries::routes())
}

fn webhooks(app: &App) -> Webhooks {
    let options =
        WebhookOptions { allow_private_urls: app.shop.allow_private_urls, ..WebhookOptions::default() };
    Webhooks::new(Arc::clone(&app.shop.queue), options)
}

/// What has the right shape, or the handler would have said so, and still cannot be done.
impl From<WebhookError> for Problem {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::Invalid { field, reason } => {
                let mistake = Mistake { path: field.into(), code: "invalid".into(), message: reason.clone() };
                Self::new(Code::Unprocessable, format!("{field}: {reason}")).with_errors(vec![mistake])
            }
            WebhookError::NotFound { what } => Self::not_found(what),
            WebhookError::Conflict { reason } => Self::new(Code::Conflict, reason),
            WebhookError::Queue(error) => error.into(),
            WebhookError::NoRandomness(error) => {
                tracing::error!(%error, "the system gives no randomness");
                Self::new(Code::Internal, "no secret can be made")
            }
        }
    }
}
