//! Lanes: the slots of all workers, how busy they are, and what waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use telecine_queue::{Count, JobState, Pausable, Paused, Worker};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::jobs::require_name;
use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::extract::{Json, Path};
use crate::problem::{Problem, ProblemDocument};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(pause)).routes(routes!(resume))
}

/// A lane over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
struct Lane {
    name: String,
    /// Of workers that live and are not leaving.
    slots: u64,
    /// Jobs that run.
    busy: u64,
    /// Jobs that are ready and wait for a slot.
    depth: u64,
    /// Jobs that wait for other jobs, for their time or for a limit.
    later: u64,
    /// Nothing is claimed from it.
    paused: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct LaneList {
    data: Vec<Lane>,
    /// Always null: the list is whole.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Every lane that has slots, jobs or a pause.
#[utoipa::path(
    get, path = "/v1/lanes", tag = "lanes",
    responses((status = 200, body = LaneList), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<LaneList>, Problem> {
    caller.require(Scope::Admin)?;
    Ok(Json(LaneList { data: look(&app).await?, next_cursor: None }))
}

async fn look(app: &App) -> Result<Vec<Lane>, Problem> {
    let queue = app.queue();
    Ok(drawn(&queue.workers().await?, &queue.counts().await?, &queue.paused().await?))
}

fn drawn(workers: &[Worker], counts: &[Count], paused: &[Paused]) -> Vec<Lane> {
    let mut lanes: BTreeMap<String, Lane> = BTreeMap::new();
    for worker in workers.iter().filter(|worker| worker.alive && !worker.draining) {
        for (name, slots) in &worker.slots {
            lanes.entry(name.clone()).or_default().slots += u64::from(*slots);
        }
    }
    for count in counts.iter().filter(|count| count.jobs > 0 && !count.state.is_terminal()) {
        let lane = lanes.entry(count.lane.clone()).or_default();
        match count.state {
            JobState::Running => lane.busy += count.jobs,
            JobState::Pending => lane.depth += count.jobs,
            _ => lane.later += count.jobs,
        }
    }
    for paused in paused {
        if let Pausable::Lane(name) = &paused.what {
            lanes.entry(name.clone()).or_default().paused = true;
        }
    }
    lanes.into_iter().map(|(name, lane)| Lane { name, ..lane }).collect()
}

/// Lets nobody claim from a lane; what runs goes on. Pausing a paused lane changes nothing.
#[utoipa::path(
    post, path = "/v1/lanes/{lane}/pause", tag = "lanes",
    params(("lane" = String, Path, pattern = "^[ -~]{1,200}$")),
    responses((status = 200, body = Lane), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn pause(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Lane>, Problem> {
    caller.require(Scope::Admin)?;
    require_name("lane", &name)?;
    app.queue().pause(&Pausable::Lane(name.clone())).await?;
    one(&app, name).await
}

/// Lets workers claim from a lane again. Resuming one that is not paused changes nothing.
#[utoipa::path(
    post, path = "/v1/lanes/{lane}/resume", tag = "lanes",
    params(("lane" = String, Path, pattern = "^[ -~]{1,200}$")),
    responses((status = 200, body = Lane), (status = "default", body = ProblemDocument, content_type = "application/problem+json"))
)]
async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Lane>, Problem> {
    caller.require(Scope::Admin)?;
    require_name("lane", &name)?;
    app.queue().resume(&Pausable::Lane(name.clone())).await?;
    one(&app, name).await
}

/// A lane without slots, jobs or a pause is an empty one.
async fn one(app: &App, name: String) -> Result<Json<Lane>, Problem> {
    let known = look(app).await?.into_iter().find(|lane| lane.name == name);
    Ok(Json(known.unwrap_or(Lane { name, ..Lane::default() })))
}
