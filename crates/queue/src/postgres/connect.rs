//! Connections: how they are made, what a server must be like, and how a statement is run on one.

use std::future::Future;
use std::io;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::query::Query;
use sqlx::{ConnectOptions, Connection, PgConnection, Postgres, Row, Transaction};

use super::failure::{Failure, Tried};
use super::{migrate, sql};
use crate::error::{QueueError, Result};
use crate::open::OpenOptions;

/// Postgres 13 is the oldest that is still tested anywhere.
const OLDEST_VERSION: i32 = 130_000;
/// How often a verb gives way to another transaction before it gives up.
const CONFLICTS: u32 = 5;
/// A connection that was idle for longer is asked whether it lives before it is used: a statement on a dead
/// one would leave it open whether it counted. Below this, the question would cost a round trip per verb for
/// nothing.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);
/// How many times its patience a verb waits for the server's answer.
const ANSWER_WITHIN: u32 = 3;
/// No interval is longer: more would overflow the database's timestamps.
const LONGEST_MS: i64 = 100 * 365 * 24 * 60 * 60 * 1_000;

#[derive(Clone, Debug)]
pub(super) struct Database {
    /// Replaced when a server stops answering on connections that are open: they would never come back.
    pool: Arc<RwLock<PgPool>>,
    options: PgConnectOptions,
    max_connections: u32,
    patience: Duration,
}

/// A statement, ready to bind. All of them go through here: a pooler in transaction mode needs
/// `persistent(false)`.
pub(super) fn statement(sql: &'static str) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(sql)
}

/// A duration as the SQL files take it: whole milliseconds, rounded up so that only zero is zero.
pub(super) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(LONGEST_MS).min(LONGEST_MS)
}

impl Database {
    pub(super) async fn open(url: &str, options: &OpenOptions) -> Result<Self> {
        let (connect, patience) = (parse(url)?, options.patience);
        let mut first = first_connection(&connect, patience).await?;
        migrate::bring_up(&mut first, options.migrate).await?;
        // Not worth an error: the server notices by itself.
        let _ = first.close().await;
        let pool = Arc::new(RwLock::new(new_pool(&connect, options.max_connections, patience)));
        Ok(Self { pool, options: connect, max_connections: options.max_connections, patience })
    }

    fn pool(&self) -> PgPool {
        self.pool.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Leaves the connections of a pool to themselves and starts with new ones.
    fn replace_pool(&self) {
        let fresh = new_pool(&self.options, self.max_connections, self.patience);
        let stale = std::mem::replace(&mut *self.pool.write().unwrap_or_else(PoisonError::into_inner), fresh);
        // Waits for connections that may never answer; nobody waits for it.
        tokio::spawn(async move { stale.close().await });
    }

    /// For a verb of one statement, which commits by itself.
    pub(super) async fn connection(&self) -> Tried<PoolConnection<Postgres>> {
        Ok(self.pool().acquire().await?)
    }

    pub(super) async fn begin(&self) -> Tried<Transaction<'static, Postgres>> {
        Ok(self.pool().begin().await?)
    }

    /// A connection outside the pool, for whoever must never wait for one.
    pub(super) async fn own_connection(&self) -> Result<PgConnection> {
        connect_within(&self.options, self.patience).await
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// A pool of one for LISTEN, which keeps its connection.
    pub(super) fn pool_of_one(&self) -> PgPool {
        PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(self.patience)
            .connect_lazy_with(self.options.clone())
    }

    /// Runs a verb, again if it had to give way to another transaction.
    pub(super) async fn retrying<T, F: Future<Output = Tried<T>>>(&self, verb: impl Fn() -> F) -> Result<T> {
        for _ in 1..CONFLICTS {
            match self.answered(verb()).await {
                Err(failure) if failure.is_conflict() => tokio::time::sleep(spread()).await,
                other => return Ok(other?),
            }
        }
        Ok(self.answered(verb()).await?)
    }

    /// A verb that the server does not answer in time counts as cut off: a network that swallows everything, or a
    /// frozen server, would keep it for a quarter of an hour.
    async fn answered<T>(&self, verb: impl Future<Output = Tried<T>>) -> Tried<T> {
        match tokio::time::timeout(self.patience * ANSWER_WITHIN, verb).await {
            Ok(answer) => answer,
            Err(_) => {
                self.replace_pool();
                Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into()).into())
            }
        }
    }

    /// As `retrying`, and again on a fresh connection when one broke: only for a verb that may be repeated.
    pub(super) async fn insisting<T, F: Future<Output = Tried<T>>>(&self, verb: impl Fn() -> F) -> Result<T> {
        let until = Instant::now() + self.patience;
        loop {
            match self.answered(verb()).await {
                Err(failure)
                    if (failure.is_conflict() || failure.is_lost_connection()) && Instant::now() < until =>
                {
                    tokio::time::sleep(spread()).await;
                }
                other => return Ok(other?),
            }
        }
    }

    pub(super) async fn close(&self) {
        // A connection that is in use on a server that does not answer would keep it for ever.
        let _ = tokio::time::timeout(self.patience, self.pool().close()).await;
    }
}

fn new_pool(connect: &PgConnectOptions, max_connections: u32, patience: Duration) -> PgPool {
    PgPoolOptions::new()
        .max_connections(max_connections.max(1))
        .acquire_timeout(patience)
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            async move {
                if meta.idle_for > TRUSTED_IDLE {
                    connection.ping().await?;
                }
                Ok(true)
            }
            .boxed()
        })
        .after_connect(move |connection, _| prepare_session(connection, patience).boxed())
        .connect_lazy_with(connect.clone())
}

/// Commits what went well and undoes the rest at once: a transaction that is merely dropped keeps its locks until its
/// connection is used again, and whoever pulls meanwhile skips those jobs.
pub(super) async fn close<T>(tx: Transaction<'_, Postgres>, outcome: Tried<T>) -> Tried<T> {
    match outcome {
        Ok(value) => {
            tx.commit().await?;
            Ok(value)
        }
        Err(failure) => {
            let _ = tx.rollback().await;
            Err(failure)
        }
    }
}

/// Long enough that two transactions which met do not meet again at once.
fn spread() -> Duration {
    Duration::from_micros(fastrand::u64(1_000..20_000))
}

pub(super) fn parse(url: &str) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url).map_err(|error| match error {
        // The URL may carry a password: only what is wrong with it is repeated.
        sqlx::Error::Configuration(what) => {
            QueueError::invalid(format!("the Postgres URL cannot be read: {what}"))
        }
        _ => QueueError::invalid("the Postgres URL cannot be read"),
    })?;
    Ok(options.application_name("telecine"))
}

/// Connects once, outside the pool, to tell at once why a server cannot be reached or will not do.
pub(super) async fn first_connection(options: &PgConnectOptions, patience: Duration) -> Result<PgConnection> {
    let mut connection = connect_within(options, patience).await?;
    check_server(&mut connection).await?;
    Ok(connection)
}

async fn connect_within(options: &PgConnectOptions, patience: Duration) -> Result<PgConnection> {
    let connecting = async {
        let mut connection = options.connect().await?;
        prepare_session(&mut connection, patience).await?;
        Ok(connection)
    };
    match tokio::time::timeout(patience, connecting).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(unreachable(options, error)),
        Err(_) => Err(QueueError::Unavailable {
            reason: format!("{} did not answer within {patience:?}; {REACHABLE}", address(options)),
        }),
    }
}

const REACHABLE: &str = "is the server running, and may it be reached from here?";

fn unreachable(options: &PgConnectOptions, error: sqlx::Error) -> QueueError {
    let at = address(options);
    let failure = Failure::from(error);
    if failure.is_lost_connection() {
        let Failure::Driver(error) = failure else { return failure.into() };
        return QueueError::Unavailable { reason: format!("{at} cannot be reached ({error}); {REACHABLE}") };
    }
    match QueueError::from(failure) {
        QueueError::Unexpected { reason } => QueueError::Unsuitable {
            reason: format!("{at} refused the connection: {reason}"),
            next_step: "check the user, the password and the database in the URL".into(),
        },
        other => other,
    }
}

fn address(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(socket) => format!("Postgres at {}", socket.display()),
        None => format!("Postgres at {}:{}", options.get_host(), options.get_port()),
    }
}

async fn prepare_session(connection: &mut PgConnection, patience: Duration) -> Result<(), sqlx::Error> {
    // Zero would mean to wait for ever, and the setting is a 32-bit integer.
    let lock_timeout_ms = ms(patience).clamp(1, i64::from(i32::MAX));
    statement(sql!("connect_session")).bind(lock_timeout_ms.to_string()).execute(connection).await.map(|_| ())
}

async fn check_server(connection: &mut PgConnection) -> Result<()> {
    let facts = statement(sql!("connect_facts")).fetch_one(connection).await.map_err(Failure::from)?;
    let fact = |name: &str| facts.try_get::<bool, _>(name).map_err(Failure::from);
    let version: i32 = facts.try_get("version").map_err(Failure::from)?;
    if version < OLDEST_VERSION {
        return unsuitable(format!("this is Postgres {}", version / 10_000), "use Postgres 13 or newer");
    }
    if fact("standby")? {
        return unsuitable("this server is a standby, which cannot store jobs", "connect to its primary");
    }
    if fact("read_only")? {
        return unsuitable(
            "transactions on this server are read-only by default",
            "set default_transaction_read_only = off for this role or database",
        );
    }
    if !fact("fsync")? {
        return unsuitable(
            "this server runs with fsync = off and would lose jobs with the power",
            "set fsync = on in postgresql.conf and reload",
        );
    }
    Ok(())
}

fn unsuitable(reason: impl Into<String>, next_step: &str) -> Result<()> {
    Err(QueueError::Unsuitable { reason: reason.into(), next_step: next_step.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zero_is_zero_and_no_interval_overflows() {
        assert_eq!(ms(Duration::ZERO), 0);
        assert_eq!(ms(Duration::from_nanos(1_000)), 1);
        assert_eq!(ms(Duration::from_millis(1_500)), 1_500);
        assert_eq!(ms(Duration::MAX), LONGEST_MS);
    }

    #[tokio::test]
    async fn an_unreachable_server_is_named_without_the_password() {
        let url = "postgres://someone:hunter2@127.0.0.1:1/jobs";

        let error =
            Database::open(url, &OpenOptions::default()).await.expect_err("nothing listens on port 1");

        let text = error.to_string();
        assert!(matches!(error, QueueError::Unavailable { .. }), "{text}");
        assert!(text.contains("127.0.0.1:1") && !text.contains("hunter2"), "{text}");
    }
}
