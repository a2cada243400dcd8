//! What nobody asks for: uploads that expired, and those that were whole when their process died.

use std::sync::Arc;
use std::time::Duration;

use super::receive::on_disk;
use super::stage::{Hold, Told};
use super::tus;
use crate::app::App;
use crate::problem::Problem;

const EVERY: Duration = Duration::from_secs(60);

/// Removes uploads that expired and what dead processes left, and stores what is whole, until the process stops.
pub(crate) async fn keep_uploads(app: Arc<App>) {
    let every = (app.options.uploads.keep_unfinished / 2).clamp(Duration::from_millis(50), EVERY);
    loop {
        if let Err(problem) = keep_once(&app).await {
            tracing::warn!(?problem, "the folder of uploads was not looked through");
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
    }
}

async fn keep_once(app: &Arc<App>) -> Result<(), Problem> {
    let stage = app.uploads.stage.clone();
    let listed = on_disk(move || {
        let removed = stage.remove_strays()?;
        if removed > 0 {
            tracing::info!(removed, "removed what was left of unfinished uploads");
        }
        stage.list()
    });
    for (id, told) in listed.await? {
        if app.stopping.is_cancelled() {
            return Ok(());
        }
        // One that cannot be kept in order must not keep the others from it.
        if let Err(problem) = keep_one(app, id.clone(), told).await {
            tracing::warn!(upload = id, ?problem, "an upload could not be looked after");
        }
    }
    Ok(())
}

async fn keep_one(app: &Arc<App>, id: String, told: Told) -> Result<(), Problem> {
    let (stage, tenant, named) = (app.uploads.stage.clone(), told.tenant.clone(), id.clone());
    let seen = on_disk(move || stage.look(&tenant, &named)).await?;
    let Some(seen) = seen.filter(|seen| seen.is_whole() || seen.has_expired()) else { return Ok(()) };
    if seen.is_whole() {
        // What the store refuses now is tried again the next time; the reason is logged where it is known.
        let _ = tus::store_if_free(app, &told.tenant, &id).await?;
        return Ok(());
    }
    let stage = app.uploads.stage.clone();
    on_disk(move || match stage.hold(&told.tenant, &id)? {
        // Somebody may have added to it meanwhile.
        Hold::Held(held) if held.has_expired()? => {
            tracing::info!(upload = id, "upload expired");
            held.remove()
        }
        Hold::Held(_) | Hold::Busy | Hold::Missing => Ok(()),
    })
    .await
}
