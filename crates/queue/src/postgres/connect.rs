//! Connections: how they are made, and what a server must be like.

use std::future::Future;
use std::io;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row};

use super::failure::{Failure, Tried};
use super::session::{Session, statement};
use super::{feed, migrate, sql};
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
    server: Server,
    max_connections: u32,
}

/// What a URL names, and how to speak to it.
#[derive(Clone, Debug)]
pub(super) struct Server {
    options: PgConnectOptions,
    patience: Duration,
    /// Behind a pooler in transaction mode: what begins a transaction, with the settings that a session of our own
    /// would have. They end with it, so they reach nobody else.
    pooled_begin: Option<Arc<str>>,
}

/// A duration as the SQL files take it: whole milliseconds, rounded up so that only zero is zero.
pub(super) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(LONGEST_MS).min(LONGEST_MS)
}

impl Server {
    pub(super) fn of(url: &str, patience: Duration) -> Result<Self> {
        let (url, pooled) = split_pooled(url)?;
        let options = parse(&url)?;
        if !pooled {
            return Ok(Self { options, patience, pooled_begin: None });
        }
        let begin = format!("BEGIN;\n{}", settings(patience, Scope::Transaction));
        // PgBouncer refuses what it cannot keep track of unless it is configured to ignore it.
        let options = options.extra_float_digits(None);
        Ok(Self { options, patience, pooled_begin: Some(begin.into()) })
    }

    pub(super) fn is_pooled(&self) -> bool {
        self.pooled_begin.is_some()
    }

    /// Connects once, outside the pool, to tell at once why a server cannot be reached or will not do.
    pub(super) async fn first_connection(&self) -> Result<PgConnection> {
        let mut connection = self.connect().await?;
        let facts = self.within_patience(self.look_at_server(&mut connection)).await?;
        check_server(&facts)?;
        Ok(connection)
    }

    pub(super) async fn connect(&self) -> Result<PgConnection> {
        let connecting = async {
            let mut connection = self.options.connect().await?;
            if !self.is_pooled() {
                prepare_session(&mut connection, self.patience).await?;
            }
            Ok(connection)
        };
        self.within_patience(connecting).await
    }

    async fn look_at_server(&self, connection: &mut PgConnection) -> Tried<PgRow> {
        let mut session = self.session_on(connection).await?;
        let facts = statement(sql!("connect_facts")).fetch_one(&mut session).await?;
        session.commit().await?;
        Ok(facts)
    }

    async fn within_patience<T>(&self, attempt: impl Future<Output = Tried<T>>) -> Result<T> {
        match tokio::time::timeout(self.patience, attempt).await {
            Ok(Ok(made)) => Ok(made),
            Ok(Err(failure)) => Err(unreachable(&self.options, failure)),
            Err(_) => Err(QueueError::Unavailable {
                reason: format!(
                    "{} did not answer within {:?}; {REACHABLE}",
                    address(&self.options),
                    self.patience
                ),
            }),
        }
    }

    /// For statements that stand alone.
    pub(super) async fn session_on<'c>(&self, connection: &'c mut PgConnection) -> Tried<Session<'c>> {
        match self.is_pooled() {
            true => self.begin_on(connection).await,
            false => Ok(Session::lent(connection, false)),
        }
    }

    pub(super) async fn begin_on<'c>(&self, connection: &'c mut PgConnection) -> Tried<Session<'c>> {
        let tx = match &self.pooled_begin {
            Some(begin) => connection.begin_with(AssertSqlSafe(begin.clone())).await?,
            None => connection.begin().await?,
        };
        Ok(Session::within(tx, self.is_pooled()))
    }

    fn new_pool(&self, max_connections: u32) -> PgPool {
        let (pooled, patience) = (self.is_pooled(), self.patience);
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
            .after_connect(move |connection, _| {
                async move {
                    match pooled {
                        true => Ok(()),
                        false => prepare_session(connection, patience).await,
                    }
                }
                .boxed()
            })
            .connect_lazy_with(self.options.clone())
    }
}

impl Database {
    pub(super) async fn open(url: &str, options: &OpenOptions) -> Result<Self> {
        let server = Server::of(url, options.patience)?;
        let mut first = server.first_connection().await?;
        migrate::bring_up(&server, &mut first, options.migrate).await?;
        feed::adopt(&server, &mut first).await?;
        // Not worth an error: the server notices by itself.
        let _ = first.close().await;
        let pool = Arc::new(RwLock::new(server.new_pool(options.max_connections)));
        Ok(Self { pool, server, max_connections: options.max_connections })
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    fn pool(&self) -> PgPool {
        self.pool.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Leaves the connections of a pool to themselves and starts with new ones.
    fn replace_pool(&self) {
        let fresh = self.server.new_pool(self.max_connections);
        let stale = std::mem::replace(&mut *self.pool.write().unwrap_or_else(PoisonError::into_inner), fresh);
        // Waits for connections that may never answer; nobody waits for it.
        tokio::spawn(async move { stale.close().await });
    }

    /// For a verb of one statement, which commits by itself if the server can be relied on for that; so whoever writes
    /// ends with `commit` all the same.
    pub(super) async fn connection(&self) -> Tried<Session<'static>> {
        match self.server.is_pooled() {
            true => self.begin().await,
            false => Ok(Session::alone(self.pool().acquire().await?)),
        }
    }

    pub(super) async fn begin(&self) -> Tried<Session<'static>> {
        let tx = match &self.server.pooled_begin {
            Some(begin) => self.pool().begin_with(AssertSqlSafe(begin.clone())).await?,
            None => self.pool().begin().await?,
        };
        Ok(Session::within(tx, self.server.is_pooled()))
    }

    pub(super) fn patience(&self) -> Duration {
        self.server.patience
    }

    /// A pool of one for LISTEN, which keeps its connection.
    pub(super) fn pool_of_one(&self) -> PgPool {
        PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(self.patience())
            .connect_lazy_with(self.server.options.clone())
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
        match tokio::time::timeout(self.patience() * ANSWER_WITHIN, verb).await {
            Ok(answer) => answer,
            Err(_) => {
                self.replace_pool();
                Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into()).into())
            }
        }
    }

    /// As `retrying`, and again on a fresh connection when one broke: only for a verb that may be repeated.
    pub(super) async fn insisting<T, F: Future<Output = Tried<T>>>(&self, verb: impl Fn() -> F) -> Result<T> {
        let until = Instant::now() + self.patience();
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
        let _ = tokio::time::timeout(self.patience(), self.pool().close()).await;
    }
}

/// Long enough that two transactions which met do not meet again at once.
fn spread() -> Duration {
    Duration::from_micros(fastrand::u64(1_000..20_000))
}

/// Takes `pgbouncer=true` out of a URL, which the driver does not know.
fn split_pooled(url: &str) -> Result<(String, bool)> {
    let Some((address, query)) = url.split_once('?') else { return Ok((url.into(), false)) };
    let is_ours = |part: &&str| part.split('=').next() == Some("pgbouncer");
    let (ours, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_ours);
    let pooled = match ours[..] {
        [] | ["pgbouncer=false"] => false,
        ["pgbouncer=true"] => true,
        _ => {
            return Err(QueueError::invalid(format!(
                "the Postgres URL says `{}`: it can be pgbouncer=true or pgbouncer=false",
                ours.join("&")
            )));
        }
    };
    let rest = if others.is_empty() { address.into() } else { format!("{address}?{}", others.join("&")) };
    Ok((rest, pooled))
}

fn parse(url: &str) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url).map_err(|error| match error {
        // The URL may carry a password: only what is wrong with it is repeated.
        sqlx::Error::Configuration(what) => {
            QueueError::invalid(format!("the Postgres URL cannot be read: {what}"))
        }
        _ => QueueError::invalid("the Postgres URL cannot be read"),
    })?;
    Ok(options.application_name("telecine"))
}

const REACHABLE: &str = "is the server running, and may it be reached from here?";

fn unreachable(options: &PgConnectOptions, failure: Failure) -> QueueError {
    let at = address(options);
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
    let settings = AssertSqlSafe(settings(patience, Scope::Session));
    sqlx::raw_sql(settings).execute(connection).await.map(|_| ())
}

/// How long settings hold.
#[derive(Clone, Copy)]
enum Scope {
    Session,
    Transaction,
}

/// The text of connect_session.sql with its parameters in it, so that it can go out together with BEGIN.
fn settings(patience: Duration, scope: Scope) -> String {
    // Zero would mean to wait for ever, and the settings are 32-bit integers.
    let text = |time: Duration| format!("'{}'", ms(time).clamp(1, i64::from(i32::MAX)));
    let is_local = match scope {
        Scope::Session => "FALSE",
        Scope::Transaction => "TRUE",
    };
    sql!("connect_session")
        .replace("$1", &text(patience))
        .replace("$2", is_local)
        .replace("$3", &text(patience.saturating_mul(ANSWER_WITHIN)))
}

fn check_server(facts: &PgRow) -> Result<()> {
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

    #[test]
    fn a_pooler_is_named_in_the_url() {
        let split = |url: &str| split_pooled(url).map_err(|error| error.to_string());

        assert_eq!(split("postgres://h/db"), Ok(("postgres://h/db".into(), false)));
        assert_eq!(split("postgres://h/db?pgbouncer=true"), Ok(("postgres://h/db".into(), true)));
        assert_eq!(
            split("postgres://h/db?user=a&pgbouncer=false&sslmode=require"),
            Ok(("postgres://h/db?user=a&sslmode=require".into(), false))
        );
        let wrong =
            split("postgres://h/db?password=secret&pgbouncer=yes").expect_err("neither true nor false");
        assert!(wrong.contains("pgbouncer=yes") && wrong.contains("pgbouncer=true"), "{wrong}");
        assert!(!wrong.contains("secret"), "{wrong}");
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
