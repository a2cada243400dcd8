//! The rows of a push: jobs in one statement, and who already holds their unique keys.

use std::collections::{BTreeSet, HashMap};

use super::failure::{Tried, unreadable};
use super::finish::{ring_of, small};
use super::read::{parsed, value};
use super::session::{Session, statement};
use super::sql;
use crate::bell::Ring;
use crate::error::QueueError;
use crate::job::{JobId, JobState, NewJob};
use crate::limit::{Bound, Bounds, tenant_step_us};
use crate::push::Push;
use crate::run::RunId;
use crate::timestamp::Timestamp;

/// How often a unique key may change hands while we look at who holds it.
const LOOKS: u32 = 20;

/// One job of a push, on its way into the table.
pub(super) struct JobRow<'a> {
    tenant: &'a str,
    run: Option<&'a str>,
    /// Where its run stands in line; `None`: at the time of the push.
    fair_from_us: Option<i64>,
    /// How far behind that it stands itself.
    fair_after_us: i64,
    job: &'a NewJob,
}

impl JobRow<'_> {
    pub(super) fn limit_key(&self) -> Option<&str> {
        self.job.limit_key.as_deref()
    }
}

/// What a pushed job came to.
pub(super) struct Stored {
    pub(super) id: JobId,
    /// Not so when another job had its unique key.
    pub(super) is_new: bool,
}

/// The jobs of a run stand behind each other by their cost, so that a long run does not stand before a short
/// one that came later; a named tenant's stand behind its backlog in the same way.
pub(super) fn rows_of<'a>(
    push: &'a Push,
    run: Option<&'a RunId>,
    backlogs: &mut Backlogs,
) -> Vec<JobRow<'a>> {
    let run = run.map(RunId::as_str);
    let Some(backlog) = backlogs.0.get_mut(&push.tenant) else {
        return rows_in_line(&push.jobs, &push.tenant, run, None);
    };
    let row = |job| JobRow {
        tenant: &push.tenant,
        run,
        fair_from_us: None,
        fair_after_us: backlog.place(job),
        job,
    };
    push.jobs.iter().map(row).collect()
}

/// Jobs that a run gets later stand behind those it had.
pub(super) fn rows_in_line<'a>(
    jobs: &'a [NewJob],
    tenant: &'a str,
    run: Option<&'a str>,
    fair_from_us: Option<i64>,
) -> Vec<JobRow<'a>> {
    let mut cost_us = 0;
    let mut rows = Vec::with_capacity(jobs.len());
    for job in jobs {
        rows.push(JobRow { tenant, run, fair_from_us, fair_after_us: cost_us, job });
        if run.is_some() {
            cost_us += i64::from(job.cost_ms) * 1_000;
        }
    }
    rows
}

/// The summed cost of jobs.
pub(super) fn cost_us(jobs: &[NewJob]) -> i64 {
    jobs.iter().map(|job| i64::from(job.cost_ms) * 1_000).sum()
}

/// Where the backlogs of named tenants end.
pub(super) struct Backlogs(HashMap<String, Backlog>);

struct Backlog {
    /// How far behind now its last job stands; `None` when there is none.
    last_after_us: Option<i64>,
    weight: f64,
}

impl Backlogs {
    /// Two pushes of one tenant at the same moment may find the same end: the line is fair, not exact.
    pub(super) async fn of(connection: &mut Session<'_>, pushes: &[Push]) -> Tried<Self> {
        let tenants: BTreeSet<&str> =
            pushes.iter().map(|push| push.tenant.as_str()).filter(|tenant| !tenant.is_empty()).collect();
        if tenants.is_empty() {
            return Ok(Self(HashMap::new()));
        }
        let tenants: Vec<&str> = tenants.into_iter().collect();
        let rows = statement(sql!("push_backlog")).bind(tenants).fetch_all(connection).await?;
        let read = |row| {
            let backlog =
                Backlog { last_after_us: value(row, "last_after_us")?, weight: value(row, "weight")? };
            Ok((value(row, "tenant")?, backlog))
        };
        rows.iter().map(read).collect::<Tried<_>>().map(Self)
    }
}

impl Backlog {
    fn place(&mut self, job: &NewJob) -> i64 {
        let step_us = (tenant_step_us(job.cost_ms) as f64 / self.weight) as i64;
        let place = self.last_after_us.map_or(0, |last| (last + step_us).max(0));
        self.last_after_us = Some(place);
        place
    }
}

/// Stores jobs, in the order given, and tells other processes if asked to. `None`: a live job has the same unique key.
/// The caller balances the bounds that this notes: those of jobs that wait to be let in.
async fn insert(
    connection: &mut Session<'_>,
    rows: &[&JobRow<'_>],
    limited: &BTreeSet<String>,
    tell: Option<Ring>,
    bounds: &mut Bounds,
) -> Tried<Vec<(Option<i64>, Ring)>> {
    let named: BTreeSet<&str> =
        rows.iter().map(|row| row.tenant).filter(|tenant| !tenant.is_empty()).collect();
    let (each, job) = (rows.iter(), || rows.iter().map(|row| row.job));
    let stored = statement(sql!("push"))
        .bind(each.clone().map(|row| row.tenant).collect::<Vec<_>>())
        .bind(each.clone().map(|row| row.run).collect::<Vec<_>>())
        .bind(job().map(|job| job.step.as_deref()).collect::<Vec<_>>())
        .bind(job().map(|job| job.kind.as_str()).collect::<Vec<_>>())
        .bind(job().map(|job| job.lane.as_str()).collect::<Vec<_>>())
        .bind(job().map(|job| i32::from(job.priority)).collect::<Vec<_>>())
        .bind(each.map(|row| row.fair_after_us).collect::<Vec<_>>())
        .bind(job().map(|job| job.run_at.map(Timestamp::to_datetime)).collect::<Vec<_>>())
        .bind(job().map(|job| job.timeout_ms.map(u64::cast_signed)).collect::<Vec<_>>())
        .bind(job().map(|job| i32::from(job.max_attempts)).collect::<Vec<_>>())
        .bind(job().map(|job| i32::from(job.max_lost)).collect::<Vec<_>>())
        .bind(job().map(|job| i64::from(job.backoff.base_ms)).collect::<Vec<_>>())
        .bind(job().map(|job| i64::from(job.backoff.factor)).collect::<Vec<_>>())
        .bind(job().map(|job| i64::from(job.backoff.cap_ms)).collect::<Vec<_>>())
        .bind(job().map(|job| job.limit_key.as_deref()).collect::<Vec<_>>())
        .bind(job().map(|job| job.unique_key.as_deref()).collect::<Vec<_>>())
        .bind(job().map(|job| job.scratch_bytes.cast_signed()).collect::<Vec<_>>())
        .bind(job().map(|job| i64::from(job.cost_ms)).collect::<Vec<_>>())
        .bind(job().map(|job| job.payload.to_string()).collect::<Vec<_>>())
        .bind(job().map(|job| job.required).collect::<Vec<_>>())
        .bind(job().map(|job| small(job.needs_count())).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.fair_from_us).collect::<Vec<_>>())
        .bind(limited.iter().map(String::as_str).collect::<Vec<_>>())
        .bind(tell.map(|ring| ring.to_byte().to_string()))
        .bind(named.into_iter().collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    let mut answers = Vec::with_capacity(rows.len());
    for (row, stored) in rows.iter().zip(&stored) {
        let state = parsed(stored, "state")?;
        if state == JobState::Parked {
            let capped = value::<Option<&str>>(stored, "parked_on")? == Some("tenant");
            let capped = capped.then(|| row.tenant.to_owned());
            bounds.extend(Bound::of_job(row.job.limit_key.clone(), capped));
        }
        answers.push((value(stored, "id")?, ring_of(state)));
    }
    Ok(answers)
}

/// Stores jobs that collide with nothing; says their ids, in the order given, and whom to wake.
pub(super) async fn insert_plain(
    connection: &mut Session<'_>,
    rows: &[JobRow<'_>],
    tell: Option<Ring>,
    bounds: &mut Bounds,
) -> Tried<(Vec<JobId>, Ring)> {
    if are_alike(rows) {
        let ids = insert_alike(connection, rows, tell).await?;
        return Ok((ids, ring_of(JobState::Pending)));
    }
    let (mut ids, mut ring) = (Vec::with_capacity(rows.len()), Ring::default());
    let rows: Vec<&JobRow<'_>> = rows.iter().collect();
    for (id, rung) in insert(connection, &rows, &BTreeSet::new(), tell, bounds).await? {
        ids.push(JobId(id.ok_or_else(|| unreadable("push", "a job without a unique key was not stored"))?));
        ring = ring.and(rung);
    }
    Ok((ids, ring))
}

/// Whether jobs differ only in what `push_alike.sql` takes for each.
fn are_alike(rows: &[JobRow<'_>]) -> bool {
    let Some(first) = rows.first() else { return false };
    let traits = |row: &JobRow<'_>| {
        let job = row.job;
        let retries = (job.timeout_ms, job.max_attempts, job.max_lost, job.backoff);
        (job.priority, retries, job.scratch_bytes, job.cost_ms, job.required)
    };
    rows.iter().all(|row| {
        let job = row.job;
        // A tenant with a name may have a cap.
        row.tenant.is_empty()
            && row.run.is_none()
            && row.fair_from_us.is_none()
            && job.step.is_none()
            && job.run_at.is_none()
            && job.needs_count() == 0
            && job.unique_key.is_none()
            && job.limit_key.is_none()
            && (&job.kind, &job.lane) == (&first.job.kind, &first.job.lane)
            && traits(row) == traits(first)
    })
}

async fn insert_alike(
    connection: &mut Session<'_>,
    rows: &[JobRow<'_>],
    tell: Option<Ring>,
) -> Tried<Vec<JobId>> {
    let (row, job) = (&rows[0], rows[0].job);
    let stored = statement(sql!("push_alike"))
        .bind(rows.iter().map(|row| row.job.payload.to_string()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.fair_after_us).collect::<Vec<_>>())
        .bind(row.tenant)
        .bind(job.kind.as_str())
        .bind(job.lane.as_str())
        .bind(i32::from(job.priority))
        .bind(job.timeout_ms.map(u64::cast_signed))
        .bind(i32::from(job.max_attempts))
        .bind(i32::from(job.max_lost))
        .bind(i64::from(job.backoff.base_ms))
        .bind(i64::from(job.backoff.factor))
        .bind(i64::from(job.backoff.cap_ms))
        .bind(job.scratch_bytes.cast_signed())
        .bind(i64::from(job.cost_ms))
        .bind(job.required)
        .bind(tell.map(|ring| ring.to_byte().to_string()))
        .fetch_all(connection)
        .await?;
    let mut ids = stored.iter().map(|row| value(row, "id").map(JobId)).collect::<Tried<Vec<_>>>()?;
    ids.sort_unstable();
    Ok(ids)
}

/// Stores jobs, or finds those that already hold their unique keys.
///
/// First the insert, which waits for whoever is about to free or take the same key; then, in a statement that
/// sees what they did, the look for a job that completed. In the other order one could complete in between,
/// unseen.
pub(super) async fn insert_unique(
    connection: &mut Session<'_>,
    rows: &[JobRow<'_>],
    limited: &BTreeSet<String>,
    bounds: &mut Bounds,
) -> Tried<(Vec<Stored>, Ring)> {
    let mut found: Vec<Option<Stored>> = rows.iter().map(|_| None).collect();
    let mut ring = Ring::default();
    for _ in 0..LOOKS {
        let open: Vec<usize> = (0..rows.len()).filter(|nth| found[*nth].is_none()).collect();
        if open.is_empty() {
            return Ok((found.into_iter().flatten().collect(), ring));
        }
        let batch: Vec<&JobRow<'_>> = open.iter().map(|nth| &rows[*nth]).collect();
        let inserted = insert(connection, &batch, limited, None, bounds).await?;
        let ids: Vec<Option<i64>> = inserted.iter().map(|(id, _)| *id).collect();
        let twins = twins(connection, &batch, &ids).await?;
        for (at, nth) in open.into_iter().enumerate() {
            found[nth] = match (twins.get(&at), ids[at]) {
                (Some(twin), _) => Some(Stored { id: JobId(*twin), is_new: false }),
                (None, Some(id)) => Some(Stored { id: JobId(id), is_new: true }),
                // Its holder ended without completing since: the key is free again.
                (None, None) => None,
            };
        }
        ring = inserted.iter().fold(ring, |ring, (_, rung)| ring.and(*rung));
    }
    Err(QueueError::Unavailable { reason: "a unique key changes hands too fast to be pushed".into() }.into())
}

/// The jobs that hold the unique keys of a batch instead of its own, by place in the batch. Takes its own
/// ones back.
async fn twins(
    connection: &mut Session<'_>,
    batch: &[&JobRow<'_>],
    own: &[Option<i64>],
) -> Tried<HashMap<usize, i64>> {
    let unique: Vec<usize> = (0..batch.len()).filter(|at| batch[*at].job.unique_key.is_some()).collect();
    if unique.is_empty() {
        return Ok(HashMap::new());
    }
    let each = unique.iter().map(|at| batch[*at]);
    let rows = statement(sql!("push_twins"))
        .bind(each.clone().map(|row| row.tenant).collect::<Vec<_>>())
        .bind(each.clone().map(|row| row.job.kind.as_str()).collect::<Vec<_>>())
        .bind(each.map(|row| row.job.unique_key.as_deref()).collect::<Vec<_>>())
        .bind(unique.iter().map(|at| own[*at]).collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await?;
    let mut twins = HashMap::new();
    for row in &rows {
        let place = usize::try_from(value::<i64>(row, "nth")? - 1).ok().and_then(|nth| unique.get(nth));
        if let Some(at) = place {
            twins.insert(*at, value::<i64>(row, "id")?);
        }
    }
    let undone: HashMap<i64, i64> = twins.iter().filter_map(|(at, twin)| Some((own[*at]?, *twin))).collect();
    if !undone.is_empty() {
        let ids: Vec<i64> = undone.keys().copied().collect();
        statement(sql!("push_undo")).bind(ids).execute(connection).await?;
    }
    // A key that came twice in one push found its first use, which may be among the undone.
    for twin in twins.values_mut() {
        *twin = undone.get(twin).copied().unwrap_or(*twin);
    }
    Ok(twins)
}
