//! Runs as a whole: `list_runs`, `run_steps`, `cancel_run`, `prioritise_run`, `delete_run`.

use sqlx::postgres::PgRow;

use super::connect::Database;
use super::failure::Tried;
use super::finish::{Ending, end};
use super::limits::{balance, note};
use super::read::{big_number, parsed, run, value};
use super::session::{Session, close, statement};
use super::{events, sql};
use crate::bell::Ring;
use crate::claim::AttemptOutcome;
use crate::error::QueueError;
use crate::job::JobState;
use crate::limit::Bounds;
use crate::run::{ListedRuns, Run, RunFilter, RunId, RunPage, RunState, StepCount};

pub(super) async fn list(database: &Database, filter: &RunFilter, page: &RunPage) -> Tried<ListedRuns> {
    let states: Vec<&str> = filter.states().into_iter().map(RunState::as_str).collect();
    let narrowest = match (&filter.external_id, &filter.tenant) {
        (Some(_), _) => sql!("list_runs_of_external"),
        (None, Some(_)) => sql!("list_runs_of_tenant"),
        (None, None) => sql!("list_runs"),
    };
    let mut listing = statement(narrowest)
        .bind(states)
        .bind(page.upper_bound())
        .bind(filter.name.as_deref())
        // One more than the page holds tells whether there is another page.
        .bind(i64::from(page.rows()) + 1);
    if let Some(external_id) = &filter.external_id {
        listing = listing.bind(external_id).bind(filter.tenant.as_deref());
    } else if let Some(tenant) = &filter.tenant {
        listing = listing.bind(tenant);
    }
    let mut connection = database.connection().await?;
    let rows = listing.fetch_all(&mut connection).await?;
    Ok(ListedRuns::of(rows.iter().map(run).collect::<Tried<Vec<Run>>>()?, page))
}

pub(super) async fn steps(database: &Database, id: &RunId) -> Tried<Vec<StepCount>> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("run_steps")).bind(id.as_str()).fetch_all(&mut connection).await?;
    let read = |row: &PgRow| {
        Ok(StepCount {
            step: value(row, "step")?,
            state: parsed(row, "state")?,
            jobs: big_number(row, "jobs")?,
            progress: value(row, "progress")?,
        })
    };
    Ok(StepCount::sorted(rows.iter().map(read).collect::<Tried<Vec<_>>>()?))
}

/// A run whose jobs nobody else can move, end or add to before this transaction is over.
struct Held {
    state: RunState,
    /// In order of id.
    live: Vec<PgRow>,
}

impl Held {
    fn refuse_if_ended(&self, id: &RunId) -> Tried<()> {
        match self.live.is_empty() {
            true => Err(wrong_state(id, self.state, "it has already ended").into()),
            false => Ok(()),
        }
    }
}

/// Locks in the order of whoever ends a job: that job, the run, what waited for it. While we wait for the run, others may
/// add jobs to it, or free waiting ones; to lock those now would be the wrong order, so we let go of the run and begin
/// anew, but keep the jobs: nobody claims or ends them meanwhile, and a run whose jobs add others without end is caught up
/// with.
async fn hold(connection: &mut Session<'_>, id: &RunId) -> Tried<Held> {
    loop {
        let jobs = statement(sql!("run_hold_jobs")).bind(id.as_str()).fetch_all(&mut *connection).await?;
        let jobs = jobs.iter().map(|row| value(row, "id")).collect::<Tried<Vec<i64>>>()?;
        statement(sql!("run_hold_savepoint")).execute(&mut *connection).await?;
        let run = statement(sql!("run_hold")).bind(id.as_str()).fetch_optional(&mut *connection).await?;
        let Some(run) = run else { return Err(QueueError::NoSuchRun(id.clone()).into()) };
        let missed = statement(sql!("run_missed")).bind(id.as_str()).bind(jobs);
        if missed.fetch_optional(&mut *connection).await?.is_some() {
            statement(sql!("run_hold_undo")).execute(&mut *connection).await?;
            continue;
        }
        let live = statement(sql!("run_live")).bind(id.as_str()).fetch_all(connection).await?;
        return Ok(Held { state: parsed(&run, "state")?, live });
    }
}

/// One transaction, in which all live jobs of the run end: none is left that could spawn another.
pub(super) async fn cancel(database: &Database, id: &RunId) -> Tried<(u64, Ring)> {
    let mut tx = database.begin().await?;
    let outcome = cancel_live(&mut tx, id).await;
    close(tx, outcome).await
}

async fn cancel_live(connection: &mut Session<'_>, id: &RunId) -> Tried<(u64, Ring)> {
    let held = hold(connection, id).await?;
    held.refuse_if_ended(id)?;
    let (mut bounds, mut running) = (Bounds::new(), Vec::new());
    let mut endings = Vec::with_capacity(held.live.len());
    for row in &held.live {
        note(&mut bounds, row)?;
        let ending = Ending::cancelled(value(row, "id")?, row)?;
        if parsed::<JobState>(row, "state")? == JobState::Running {
            running.push(ending.id);
        }
        endings.push(ending);
    }
    let revoked = !running.is_empty();
    statement(sql!("attempt_add"))
        .bind(running)
        .bind(AttemptOutcome::Cancelled.as_str())
        .bind(None::<String>)
        .execute(&mut *connection)
        .await?;
    end(connection, &endings, &mut bounds).await?;
    let ring = balance(connection, &bounds).await?.and(events::ring());
    Ok((endings.len() as u64, ring.and(Ring { revoked, ..Ring::default() })))
}

pub(super) async fn prioritise(database: &Database, id: &RunId, priority: u8) -> Tried<u64> {
    let mut tx = database.begin().await?;
    let outcome = prioritise_live(&mut tx, id, priority).await;
    close(tx, outcome).await
}

async fn prioritise_live(connection: &mut Session<'_>, id: &RunId, priority: u8) -> Tried<u64> {
    hold(connection, id).await?.refuse_if_ended(id)?;
    let row = statement(sql!("prioritise_run"))
        .bind(id.as_str())
        .bind(i32::from(priority))
        .fetch_one(connection)
        .await?;
    big_number(&row, "jobs")
}

pub(super) async fn delete(database: &Database, id: &RunId) -> Tried<()> {
    let mut tx = database.begin().await?;
    let outcome = forget(&mut tx, id).await;
    close(tx, outcome).await
}

/// Whoever starts a job of the run over, or tells of it, holds the run.
async fn forget(connection: &mut Session<'_>, id: &RunId) -> Tried<()> {
    let run = statement(sql!("run_hold")).bind(id.as_str()).fetch_optional(&mut *connection).await?;
    let Some(run) = run else { return Err(QueueError::NoSuchRun(id.clone()).into()) };
    let state: RunState = parsed(&run, "state")?;
    if !state.is_terminal() {
        return Err(wrong_state(id, state, "cancel it first").into());
    }
    let untold = statement(sql!("run_untold")).bind(id.as_str()).fetch_optional(&mut *connection).await?;
    if let Some(untold) = untold {
        return Err(QueueError::untold(id, state, value(&untold, "sink")?).into());
    }
    statement(sql!("delete_run")).bind(id.as_str()).fetch_one(connection).await?;
    Ok(())
}

fn wrong_state(id: &RunId, state: RunState, hint: &str) -> QueueError {
    QueueError::WrongRunState { id: id.clone(), state, hint: hint.into() }
}
