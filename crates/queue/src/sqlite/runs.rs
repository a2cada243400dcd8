//! Runs as a whole: `list_runs`, `run_steps`, `cancel_run`, `prioritise_run`, `delete_run`.

use rusqlite::{Connection, params};

use super::edit::{cancel_one, forget_ended};
use super::finish::end_one;
use super::row::{self, Columns};
use super::sql;
use super::writer::Tx;
use crate::error::{QueueError, Result};
use crate::job::JobId;
use crate::run::{ListedRuns, Run, RunFilter, RunId, RunPage, RunState, StepCount};

/// State by state, all of them at one instant, or a run that changes its state meanwhile could be missed.
pub(super) fn list(
    connection: &Connection,
    filter: &RunFilter,
    page: &RunPage,
) -> rusqlite::Result<ListedRuns> {
    let reading = connection.unchecked_transaction()?;
    let mut data = Vec::new();
    for state in filter.states() {
        data.extend(list_in_state(&reading, state, filter, page)?);
    }
    data.sort_unstable_by(|one: &Run, other| other.id.cmp(&one.id));
    Ok(ListedRuns::of(data, page))
}

fn list_in_state(
    connection: &Connection,
    state: RunState,
    filter: &RunFilter,
    page: &RunPage,
) -> rusqlite::Result<Vec<Run>> {
    // One more than the page holds tells whether there is another page.
    let (state, before, name, rows) =
        (state.as_str(), page.upper_bound(), filter.name.as_deref(), page.rows() + 1);
    match (&filter.external_id, &filter.tenant) {
        (Some(external_id), tenant) => connection
            .prepare_cached(sql!("list_runs_of_external"))?
            .query_map(params![state, before, name, rows, external_id, tenant], row::run)?
            .collect(),
        (None, Some(tenant)) => connection
            .prepare_cached(sql!("list_runs_of_tenant"))?
            .query_map(params![state, before, name, rows, tenant], row::run)?
            .collect(),
        (None, None) => connection
            .prepare_cached(sql!("list_runs"))?
            .query_map(params![state, before, name, rows], row::run)?
            .collect(),
    }
}

pub(super) fn steps(connection: &Connection, id: &RunId) -> rusqlite::Result<Vec<StepCount>> {
    let mut statement = connection.prepare_cached(sql!("run_steps"))?;
    let rows = statement.query_map([id.as_str()], |row| {
        let mut column = Columns::of(row);
        let (step, state) = (column.next()?, column.parsed()?);
        let jobs = column.next::<i64>()?.unsigned_abs();
        Ok(StepCount { step, state, jobs, progress: column.next()? })
    })?;
    Ok(StepCount::sorted(rows.collect::<rusqlite::Result<_>>()?))
}

/// All live jobs of the run end, so what waited for one of them has nothing to follow.
pub(super) fn cancel(tx: &Tx<'_>, id: &RunId) -> Result<u64> {
    let state = state_of(tx, id)?;
    let live = live(tx, id)?;
    if live.is_empty() {
        return Err(wrong_state(id, state, "it has already ended"));
    }
    for job in &live {
        cancel_one(tx, *job, end_one)?;
    }
    Ok(live.len() as u64)
}

pub(super) fn prioritise(tx: &Tx<'_>, id: &RunId, priority: u8) -> Result<u64> {
    let state = state_of(tx, id)?;
    let jobs = tx.run(sql!("prioritise_run"), params![id.as_str(), priority])?;
    if jobs == 0 {
        return Err(wrong_state(id, state, "it has already ended"));
    }
    tx.run(sql!("run_prioritise"), params![id.as_str(), priority])?;
    Ok(jobs as u64)
}

pub(super) fn delete(tx: &Tx<'_>, id: &RunId) -> Result<()> {
    let state = state_of(tx, id)?;
    if !state.is_terminal() {
        return Err(wrong_state(id, state, "cancel it first"));
    }
    if let Some(sink) = tx.first(sql!("run_untold"), [id.as_str()], |row| row.get::<_, String>(0))? {
        return Err(QueueError::untold(id, state, &sink));
    }
    for job in tx.all(sql!("delete_run_jobs"), [id.as_str()], |row| row.get(0).map(JobId))? {
        forget_ended(tx, job)?;
    }
    tx.run(sql!("record_forget"), [id.as_str()])?;
    tx.run(sql!("delete_run_keys"), [id.as_str()])?;
    tx.run(sql!("delete_run"), [id.as_str()]).map(drop)
}

fn live(tx: &Tx<'_>, id: &RunId) -> Result<Vec<JobId>> {
    tx.all(sql!("run_live"), [id.as_str()], |row| row.get(0).map(JobId))
}

fn state_of(tx: &Tx<'_>, id: &RunId) -> Result<RunState> {
    let run = tx.first(sql!("get_run"), [id.as_str()], row::run)?;
    run.map(|run| run.state).ok_or_else(|| QueueError::NoSuchRun(id.clone()))
}

fn wrong_state(id: &RunId, state: RunState, hint: &str) -> QueueError {
    QueueError::WrongRunState { id: id.clone(), state, hint: hint.into() }
}
