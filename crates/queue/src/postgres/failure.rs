//! What the driver's errors mean to a caller.

use std::fmt::Display;

use crate::error::QueueError;

/// An error inside the adapter: still the driver's, so that it can be told whether trying again may help.
#[derive(Debug)]
pub(super) enum Failure {
    Driver(sqlx::Error),
    Verb(QueueError),
}

/// What a verb comes to before its failures are translated.
pub(super) type Tried<T> = Result<T, Failure>;

impl Failure {
    /// Rolled back by the server for the sake of another transaction: nothing happened, and trying again is
    /// the answer.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self.sqlstate().as_deref(), Some("40001" | "40P01"))
    }

    /// The connection broke, so nobody knows whether the last statement counts.
    pub(super) fn is_lost_connection(&self) -> bool {
        let Self::Driver(error) = self else { return false };
        match error {
            sqlx::Error::Database(error) => error
                .code()
                .is_some_and(|state| is_gone(&state) && !is_unexpected_pooler(&state, error.message())),
            error => matches!(
                error,
                sqlx::Error::Io(_)
                    | sqlx::Error::Tls(_)
                    | sqlx::Error::Protocol(_)
                    | sqlx::Error::PoolTimedOut
            ),
        }
    }

    /// The server answered and said no: nothing was stored.
    pub(super) fn is_refusal(&self) -> bool {
        self.sqlstate().is_some() && !self.is_conflict() && !self.is_lost_connection()
    }

    pub(super) fn is_outside_transaction(&self) -> bool {
        self.sqlstate().as_deref() == Some("25P01")
    }

    fn sqlstate(&self) -> Option<String> {
        let Self::Driver(sqlx::Error::Database(error)) = self else { return None };
        error.code().map(|state| state.into_owned())
    }
}

/// The server went away, is starting or stopping, has no room for another connection, or gave us up for frozen. PgBouncer says 08P01 of nearly
/// all that can happen to a connection, 58000 of a server that it cannot reach.
fn is_gone(sqlstate: &str) -> bool {
    sqlstate.starts_with("08")
        || matches!(sqlstate, "25P03" | "57P01" | "57P02" | "57P03" | "53300" | "58000")
}

/// What comes of a pooler that we were not told of: it refuses what our sessions ask for, or the statement that we
/// prepared on one server connection is looked for on another.
fn is_unexpected_pooler(sqlstate: &str, message: &str) -> bool {
    match sqlstate {
        "26000" | "42P05" => message.contains("prepared statement"),
        "08P01" => message.starts_with("unsupported startup parameter"),
        _ => false,
    }
}

/// A value from the database that cannot be read: a bug, or other hands.
pub(super) fn unreadable(what: &str, why: impl Display) -> Failure {
    Failure::Verb(QueueError::unexpected(format!("{what}: {why}")))
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        Self::Verb(error)
    }
}

impl From<Failure> for QueueError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Verb(error) => error,
            Failure::Driver(sqlx::Error::Database(error)) => {
                of_server(error.code().unwrap_or_default().as_ref(), error.message())
            }
            Failure::Driver(sqlx::Error::PoolTimedOut) => {
                Self::Unavailable { reason: "no connection to Postgres could be had in time".into() }
            }
            Failure::Driver(sqlx::Error::PoolClosed) => {
                Self::Unavailable { reason: "this handle of the queue was closed".into() }
            }
            Failure::Driver(
                error @ (sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_)
                | sqlx::Error::WorkerCrashed),
            ) => Self::Unavailable { reason: error.to_string() },
            Failure::Driver(error) => Self::unexpected(error),
        }
    }
}

fn of_server(sqlstate: &str, message: &str) -> QueueError {
    let reason = format!("{message} (SQLSTATE {sqlstate})");
    match sqlstate {
        // A lock that another process held for longer than our patience.
        "55P03" => QueueError::Unavailable { reason },
        "40001" | "40P01" => QueueError::Unavailable { reason },
        "53100" => QueueError::Full { reason },
        // U+0000 in a name that somebody looks for: nothing of that name can be there.
        "22021" => QueueError::Invalid { reason },
        "25006" => QueueError::Unsuitable {
            reason,
            next_step: "connect to the primary server, as a role that may write".into(),
        },
        state if is_unexpected_pooler(state, message) => QueueError::Unsuitable {
            reason: format!("this looks like PgBouncer: {reason}"),
            next_step: "add ?pgbouncer=true to the URL".into(),
        },
        gone if is_gone(gone) => QueueError::Unavailable { reason },
        _ => QueueError::Unexpected { reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_server_are_told_by_what_the_caller_can_do() {
        assert!(of_server("40P01", "deadlock detected").is_transient());
        assert!(of_server("55P03", "canceling statement due to lock timeout").is_transient());
        assert!(of_server("57P01", "terminating connection").is_transient());
        assert!(of_server("08006", "connection failure").is_transient());
        assert!(of_server("08P01", "server conn crashed?").is_transient());
        assert!(of_server("08P01", "query_wait_timeout").is_transient());
        assert!(of_server("58000", "pgbouncer cannot connect to server").is_transient());
        assert!(matches!(of_server("53100", "no space left"), QueueError::Full { .. }));
        assert!(matches!(of_server("22021", "0x00"), QueueError::Invalid { .. }));
        assert!(matches!(of_server("25006", "read-only"), QueueError::Unsuitable { .. }));
        assert!(matches!(of_server("42P01", "no table"), QueueError::Unexpected { .. }));
    }

    #[test]
    fn a_pooler_that_the_url_does_not_name_is_told_of() {
        for (sqlstate, message) in [
            ("26000", "prepared statement \"sqlx_s_1\" does not exist"),
            ("42P05", "prepared statement \"sqlx_s_1\" already exists"),
            ("08P01", "unsupported startup parameter: extra_float_digits"),
        ] {
            let error = of_server(sqlstate, message);
            assert!(matches!(error, QueueError::Unsuitable { .. }), "{error:?}");
            assert!(error.to_string().contains("?pgbouncer=true"), "{error}");
        }
    }
}
