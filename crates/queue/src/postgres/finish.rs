//! `finish`: from running to history, or back into the queue.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::postgres::PgRow;

use super::connect::{Database, ms};
use super::events;
use super::failure::Tried;
use super::limits::{balance, balance_after};
use super::read::{number, parsed, value};
use super::session::{Session, statement};
use super::{graph, sql};
use crate::bell::Ring;
use crate::claim::{AttemptOutcome, Finish, Settled};
use crate::job::{JobError, JobState};
use crate::limit::{Bound, Bounds};
use crate::settle::Verdict;

/// Jobs and the fences of the claims that settled them: a stale claim of the same job is not among them.
pub(super) type Claims = HashSet<(i64, i64)>;

/// A job on its way to history.
pub(super) struct Ending {
    pub(super) id: i64,
    /// The fence the job must have.
    pub(super) fence: i64,
    /// Refuse a job that this fence has settled before. Off for who holds the row's lock and has decided.
    pub(super) guarded: bool,
    pub(super) fence_after: i64,
    pub(super) settled_after: i64,
    pub(super) state: JobState,
    pub(super) result: Option<String>,
    pub(super) error: Option<String>,
    pub(super) attempt: u32,
    /// `None`: as it is, without the loss of a claim that came back.
    pub(super) lost: Option<u32>,
    pub(super) slot: Option<u32>,
    /// Whether it may end a run.
    pub(super) in_run: bool,
}

impl Ending {
    /// Of a live job, by its row, which the caller holds. The fence rises: whatever a claim of it still writes is refused.
    pub(super) fn cancelled(id: i64, live: &PgRow) -> Tried<Self> {
        let fence: i64 = value(live, "fence")?;
        Ok(Self {
            id,
            fence,
            guarded: false,
            fence_after: fence + 1,
            settled_after: fence + 1,
            state: JobState::Cancelled,
            result: None,
            error: None,
            attempt: number(live, "attempt")?,
            lost: Some(number(live, "lost")?),
            slot: None,
            in_run: true,
        })
    }
}

/// A job on its way back into the queue.
pub(super) struct Return {
    pub(super) id: i64,
    pub(super) fence: i64,
    pub(super) delay: Duration,
    pub(super) attempt: u32,
    pub(super) outcome: AttemptOutcome,
    pub(super) error: Option<String>,
    pub(super) slot: Option<u32>,
}

pub(super) async fn finish(database: &Database, batch: &[Finish]) -> Tried<(Vec<Settled>, Ring)> {
    let (plain, mut others): (Vec<&Finish>, Vec<&Finish>) =
        batch.iter().partition(|finish| finish.plain_result().is_some());
    let left_over = complete(database, &plain).await?;
    // A claim that was taken for lost has more to settle.
    others.extend(plain.into_iter().filter(|finish| left_over.contains(&key(finish))));
    if others.is_empty() {
        return Ok((vec![Settled::Accepted; batch.len()], Ring::default()));
    }
    let (settled, ring) = judge(database, &others).await?;
    let answers = batch.iter().map(|finish| {
        let completed = finish.plain_result().is_some() && !left_over.contains(&key(finish));
        match completed || settled.contains(&key(finish)) {
            true => Settled::Accepted,
            false => Settled::Refused,
        }
    });
    Ok((answers.collect(), ring))
}

/// The short way of most jobs; says which could not take it.
async fn complete(database: &Database, plain: &[&Finish]) -> Tried<Claims> {
    if plain.is_empty() {
        return Ok(HashSet::new());
    }
    let mut plain = plain.to_vec();
    // Everyone locks jobs in order of id.
    plain.sort_by_key(|finish| finish.job());
    let results = plain.iter().map(|finish| finish.plain_result().map(ToString::to_string));
    let mut connection = database.connection().await?;
    let left_over = statement(sql!("finish_completed"))
        .bind(plain.iter().map(|finish| finish.job().0).collect::<Vec<_>>())
        .bind(plain.iter().map(|finish| finish.claim.fence().0).collect::<Vec<_>>())
        .bind(results.collect::<Vec<_>>())
        .bind(plain.iter().map(|finish| finish.claim.slot.map(small)).collect::<Vec<_>>())
        .fetch_all(&mut connection)
        .await?;
    connection.commit().await?;
    left_over.iter().map(claim_of).collect()
}

/// Settles any outcomes of any claims; says which were accepted.
async fn judge(database: &Database, batch: &[&Finish]) -> Tried<(Claims, Ring)> {
    let (endings, returns) = sort_out(batch);
    let keys = batch.iter().filter_map(|finish| finish.claim.job.limit_key.clone());
    let bounds: Bounds = keys.map(Bound::Key).collect();
    let in_runs = batch.iter().any(|finish| finish.claim.in_run());
    let (mut settled, ring) = match in_runs {
        true => settle_in_runs(database, batch, &endings, &returns, bounds).await?,
        false => settle(database, &endings, &returns, bounds).await?,
    };
    let unmatched: Vec<&Finish> =
        batch.iter().filter(|finish| !settled.contains(&key(finish))).copied().collect();
    if !unmatched.is_empty() {
        settled.extend(settled_before(database, &unmatched).await?);
    }
    let told = endings.iter().any(|ending| ending.in_run);
    Ok((settled, if told { ring.and(events::ring()) } else { ring }))
}

fn key(finish: &Finish) -> (i64, i64) {
    (finish.job().0, finish.claim.fence().0)
}

/// The claim that a row tells of.
fn claim_of(row: &PgRow) -> Tried<(i64, i64)> {
    Ok((value(row, "id")?, value(row, "fence")?))
}

fn sort_out(batch: &[&Finish]) -> (Vec<Ending>, Vec<Return>) {
    let (mut endings, mut returns) = (Vec::new(), Vec::new());
    for finish in batch {
        let (job, slot) = (&finish.claim.job, finish.claim.slot);
        let (id, fence) = (job.id.0, job.fence.0);
        match finish.verdict() {
            Verdict::Done { state, result, error } => endings.push(Ending {
                id,
                fence,
                guarded: true,
                fence_after: fence,
                settled_after: fence,
                state,
                result: result.map(ToString::to_string),
                error: error.map(error_json),
                attempt: job.attempt,
                lost: None,
                slot,
                in_run: job.run.is_some(),
            }),
            Verdict::Back { delay, attempt, outcome, error } => {
                let error = error.map(error_json);
                returns.push(Return { id, fence, delay, attempt, outcome, error, slot });
            }
        }
    }
    // Everyone locks jobs in order of id.
    endings.sort_by_key(|ending| ending.id);
    returns.sort_by_key(|back| back.id);
    (endings, returns)
}

/// A batch that goes one way is one statement, which commits by itself: one round trip instead of three.
async fn settle(
    database: &Database,
    endings: &[Ending],
    returns: &[Return],
    mut bounds: Bounds,
) -> Tried<(Claims, Ring)> {
    if returns.is_empty() && bounds.is_empty() {
        let mut connection = database.connection().await?;
        let ended = end(&mut connection, endings, &mut bounds).await?;
        connection.commit().await?;
        return Ok((ended, balance_after(database, &bounds).await));
    }
    if endings.is_empty() && bounds.is_empty() {
        let mut connection = database.connection().await?;
        let (back, ring) = put_back(&mut connection, returns, &mut bounds).await?;
        connection.commit().await?;
        return Ok((back, ring.and(balance_after(database, &bounds).await)));
    }
    let mut tx = database.begin().await?;
    let mut settled = end(&mut tx, endings, &mut bounds).await?;
    let (back, ring) = put_back(&mut tx, returns, &mut bounds).await?;
    let ring = ring.and(balance(&mut tx, &bounds).await?);
    tx.commit().await?;
    settled.extend(back);
    Ok((settled, ring))
}

/// Jobs of runs may spawn others, write records, and be waited for.
async fn settle_in_runs(
    database: &Database,
    batch: &[&Finish],
    endings: &[Ending],
    returns: &[Return],
    mut bounds: Bounds,
) -> Tried<(Claims, Ring)> {
    let mut tx = database.begin().await?;
    let claims: Vec<(i64, i64)> = batch.iter().map(|finish| key(finish)).collect();
    let held = graph::hold(&mut tx, &claims).await?;
    let mut ring = Ring::default();
    let run_of = |finish: &Finish| held.get(&key(finish)).and_then(Option::as_ref);
    let mut in_runs: Vec<_> = batch.iter().filter_map(|finish| Some((run_of(finish)?, *finish))).collect();
    in_runs.sort_by_key(|(run, _)| *run);
    let tells = |finish: &Finish| finish.playable || finish.records.iter().any(|it| it.tells.is_some());
    if in_runs.iter().any(|(_, finish)| finish.spawned().is_some() || tells(finish)) {
        graph::hold_runs(&mut tx, in_runs.iter().map(|(run, _)| run.as_str()).collect()).await?;
    }
    for (run, finish) in in_runs {
        for record in &finish.records {
            ring = ring.and(graph::write_record_of_job(&mut tx, run, record).await?);
        }
        if finish.playable {
            ring = ring.and(graph::mark_playable(&mut tx, run).await?);
        }
        if let Some(jobs) = finish.spawned() {
            ring = ring.and(graph::spawn(&mut tx, run, jobs, &mut bounds).await?);
        }
    }
    let mut settled = end(&mut tx, endings, &mut bounds).await?;
    let ended = endings.iter().filter(|ending| settled.contains(&(ending.id, ending.fence)));
    let ended = ended.map(|ending| (ending.id, ending.state)).collect();
    ring = ring.and(graph::follow(&mut tx, ended, &mut bounds).await?);
    let (back, rung) = put_back(&mut tx, returns, &mut bounds).await?;
    ring = ring.and(rung).and(balance(&mut tx, &bounds).await?);
    tx.commit().await?;
    settled.extend(back);
    Ok((settled, ring))
}

/// Moves jobs to history; says which. The caller balances the caps of tenants that this notes.
pub(super) async fn end(
    connection: &mut Session<'_>,
    endings: &[Ending],
    bounds: &mut Bounds,
) -> Tried<Claims> {
    if endings.is_empty() {
        return Ok(HashSet::new());
    }
    let each = endings.iter();
    let rows = statement(sql!("finish_done"))
        .bind(each.clone().map(|ending| ending.id).collect::<Vec<_>>())
        .bind(each.clone().map(|ending| ending.fence).collect::<Vec<_>>())
        .bind(each.clone().map(|ending| ending.guarded).collect::<Vec<_>>())
        .bind(each.clone().map(|ending| ending.fence_after).collect::<Vec<_>>())
        .bind(each.clone().map(|ending| ending.settled_after).collect::<Vec<_>>())
        .bind(each.clone().map(|ending| ending.state.as_str()).collect::<Vec<_>>())
        .bind(each.clone().map(|ending| ending.result.as_deref()).collect::<Vec<_>>())
        .bind(each.clone().map(|ending| ending.error.as_deref()).collect::<Vec<_>>())
        .bind(each.clone().map(|ending| small(ending.attempt)).collect::<Vec<_>>())
        .bind(each.clone().map(|ending| ending.lost.map(small)).collect::<Vec<_>>())
        .bind(each.map(|ending| ending.slot.map(small)).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    for row in &rows {
        bounds.extend(value::<Option<String>>(row, "capped")?.map(Bound::Tenant));
    }
    rows.iter().map(claim_of).collect()
}

/// Puts jobs back into the queue; says which, and whom to wake. The caller balances the caps of tenants that this notes.
pub(super) async fn put_back(
    connection: &mut Session<'_>,
    returns: &[Return],
    bounds: &mut Bounds,
) -> Tried<(Claims, Ring)> {
    let (mut ids, mut ring) = (HashSet::new(), Ring::default());
    if returns.is_empty() {
        return Ok((ids, ring));
    }
    let each = returns.iter();
    let rows = statement(sql!("finish_back"))
        .bind(each.clone().map(|back| back.id).collect::<Vec<_>>())
        .bind(each.clone().map(|back| back.fence).collect::<Vec<_>>())
        .bind(each.clone().map(|back| ms(back.delay)).collect::<Vec<_>>())
        .bind(each.clone().map(|back| small(back.attempt)).collect::<Vec<_>>())
        .bind(each.clone().map(|back| back.outcome.as_str()).collect::<Vec<_>>())
        .bind(each.clone().map(|back| back.error.as_deref()).collect::<Vec<_>>())
        .bind(each.map(|back| back.slot.map(small)).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    for row in &rows {
        ids.insert(claim_of(row)?);
        bounds.extend(value::<Option<String>>(row, "capped")?.map(Bound::Tenant));
        ring = ring.and(ring_of(parsed(row, "state")?));
    }
    Ok((ids, ring))
}

/// Whom a job that comes to this state concerns.
pub(super) fn ring_of(state: JobState) -> Ring {
    Ring { ready: state == JobState::Pending, scheduled: state == JobState::Scheduled, ..Ring::default() }
}

/// Of the claims that changed nothing, those that had settled their job before: only that answer was lost.
async fn settled_before(database: &Database, unmatched: &[&Finish]) -> Tried<Claims> {
    let mut connection = database.connection().await?;
    let rows = statement(sql!("finish_settled"))
        .bind(unmatched.iter().map(|finish| finish.job().0).collect::<Vec<_>>())
        .bind(unmatched.iter().map(|finish| finish.claim.fence().0).collect::<Vec<_>>())
        .fetch_all(&mut connection)
        .await?;
    rows.iter().map(claim_of).collect()
}

pub(super) fn error_json(error: &JobError) -> String {
    serde_json::to_string(error).expect("an error is two strings")
}

/// Counters are far below this; the column is an INTEGER.
pub(super) fn small(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
