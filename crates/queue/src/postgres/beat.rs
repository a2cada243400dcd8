//! The beat: a connection of its own, so that a busy pool cannot cost a worker its lease.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgConnection;

use super::connect::{Database, Server, ms};
use super::failure::{Failure, Tried};
use super::notify::Notifier;
use super::read::value;
use super::session::{Session, close, statement};
use super::{graph, sql};
use crate::bell::Ring;
use crate::error::{QueueError, Result};
use crate::job::JobId;
use crate::queue::Pulse;
use crate::worker::{Beat, BeatReply, ClaimBeat};

pub(super) struct PostgresPulse {
    database: Database,
    /// Missing after an error: the next beat makes a new one.
    connection: Option<PgConnection>,
    notifier: Arc<Notifier>,
}

impl PostgresPulse {
    /// On the calling thread's runtime, to which the connection then belongs.
    pub(super) async fn open(database: &Database, notifier: Arc<Notifier>) -> Result<Self> {
        let connection = database.server().connect().await?;
        Ok(Self { database: database.clone(), connection: Some(connection), notifier })
    }

    /// A network that swallows everything would let a beat wait for a quarter of an hour.
    async fn send_within(
        &self,
        connection: &mut PgConnection,
        beat: &Beat,
        within: Duration,
    ) -> Tried<(BeatReply, Ring)> {
        match tokio::time::timeout(within, send(self.database.server(), connection, beat)).await {
            Ok(answer) => answer,
            Err(_) => Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into()).into()),
        }
    }
}

#[async_trait]
impl Pulse for PostgresPulse {
    async fn beat(&mut self, beat: &Beat) -> Result<BeatReply> {
        // Taken out while in use, so that a beat that fails or is dropped half-way leaves no half-read
        // connection.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.database.server().connect().await?,
        };
        let within = beat.lease.min(self.database.patience());
        let answer = match self.send_within(&mut connection, beat, within).await {
            Err(failure) if failure.is_lost_connection() => {
                connection = self.database.server().connect().await?;
                self.send_within(&mut connection, beat, within).await
            }
            Err(failure) if failure.is_conflict() => self.send_within(&mut connection, beat, within).await,
            answer => answer,
        };
        let usable = match &answer {
            Ok(_) | Err(Failure::Verb(_)) => true,
            Err(Failure::Driver(_)) => false,
        };
        if usable {
            self.connection = Some(connection);
        }
        let (reply, ring) = answer?;
        self.notifier.ring(ring);
        Ok(reply)
    }
}

/// Says whom to wake, too.
async fn send(server: &Server, connection: &mut PgConnection, beat: &Beat) -> Tried<(BeatReply, Ring)> {
    let mut session = server.session_on(connection).await?;
    let renewed = renew(&mut session, beat).await;
    let mut reply = close(session, renewed).await?;
    let mut ring = Ring::default();
    for claim in beat.claims.iter().filter(|claim| !claim.records.is_empty() || claim.playable) {
        let mut tx = server.begin_on(connection).await?;
        let recorded = record(&mut tx, claim).await;
        match close(tx, recorded).await? {
            Some(rung) => ring = ring.and(rung),
            // Taken away since the lease was renewed.
            None if !reply.refused.contains(&claim.job) => reply.refused.push(claim.job),
            None => {}
        }
    }
    Ok((reply, ring))
}

async fn renew(session: &mut Session<'_>, beat: &Beat) -> Tried<BeatReply> {
    let claims = &beat.claims;
    let row = statement(sql!("beat"))
        .bind(beat.worker.0)
        .bind(ms(beat.lease))
        .bind(beat.draining)
        .bind(claims.iter().map(|claim| claim.job.0).collect::<Vec<_>>())
        .bind(claims.iter().map(|claim| claim.fence.0).collect::<Vec<_>>())
        .bind(
            claims
                .iter()
                .map(|claim| claim.slot.map(|slot| i32::try_from(slot).unwrap_or(i32::MAX)))
                .collect::<Vec<_>>(),
        )
        .bind(claims.iter().map(|claim| claim.progress).collect::<Vec<_>>())
        .bind(
            claims.iter().map(|claim| claim.checkpoint.as_ref().map(ToString::to_string)).collect::<Vec<_>>(),
        )
        .fetch_optional(&mut *session)
        .await?;
    let Some(row) = row else { return Err(QueueError::WorkerGone.into()) };
    let stranded = statement(sql!("beat_stranded"))
        .bind(beat.worker.0)
        .bind(ms(beat.lease))
        .bind(claims.iter().map(|claim| claim.job.0).collect::<Vec<_>>())
        .fetch_all(session)
        .await?
        .len();
    if stranded > 0 {
        tracing::warn!(jobs = stranded, "gave back jobs that were claimed but never arrived");
    }
    let refused: Vec<i64> = value(&row, "refused")?;
    Ok(BeatReply { refused: refused.into_iter().map(JobId).collect(), drain: value(&row, "drain_asked")? })
}

/// Writes what a claim tells of its run while the job is held still: nobody can take it away in between. `None`: somebody
/// has.
async fn record(session: &mut Session<'_>, claim: &ClaimBeat) -> Tried<Option<Ring>> {
    let held = statement(sql!("beat_run"))
        .bind(claim.job.0)
        .bind(claim.fence.0)
        .fetch_optional(&mut *session)
        .await?;
    let Some(row) = held else { return Ok(None) };
    let mut ring = Ring::default();
    if let Some(run) = value::<Option<String>>(&row, "run")? {
        for record in &claim.records {
            ring = ring.and(graph::write_record_of_job(session, &run, record).await?);
        }
        if claim.playable {
            ring = ring.and(graph::mark_playable(session, &run).await?);
        }
    }
    Ok(Some(ring))
}
