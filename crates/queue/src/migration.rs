//! Which migrations a database still needs. Append-only: one that was applied may never change.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::error::{QueueError, Result};

/// One step of the schema, as a file of SQL.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

impl Migration {
    pub(crate) fn checksum(&self) -> String {
        Sha256::digest(self.sql).iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

/// The tail of `known` that is not yet among `applied` (version and checksum, in order of version).
pub(crate) fn pending<'a>(known: &'a [Migration], applied: &[(i64, String)]) -> Result<&'a [Migration]> {
    if let Some((version, _)) = applied.get(known.len()) {
        return Err(QueueError::Schema {
            reason: format!(
                "the database's schema is at version {version}, newer than this program knows ({})",
                known.len()
            ),
            next_step: "run a newer telecine, or point it at another database".into(),
        });
    }
    for (migration, (version, checksum)) in known.iter().zip(applied) {
        if migration.version != *version || migration.checksum() != *checksum {
            return Err(QueueError::Schema {
                reason: format!(
                    "the database was migrated with another version of step {version} ({})",
                    migration.name
                ),
                next_step: "run the telecine build that made this database, or start with a new one".into(),
            });
        }
    }
    Ok(&known[applied.len()..])
}

/// The error of a handle that may not migrate by itself.
pub(crate) fn refuse_pending(pending: &[Migration]) -> Result<()> {
    let Some(last) = pending.last() else { return Ok(()) };
    Err(QueueError::Schema {
        reason: format!(
            "the database's schema lacks {} step(s), up to version {}",
            pending.len(),
            last.version
        ),
        next_step: "run `telecine migrate`".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Migration; 2] = [
        Migration { version: 1, name: "one", sql: "SELECT 1" },
        Migration { version: 2, name: "two", sql: "SELECT 2" },
    ];

    fn applied(upto: usize) -> Vec<(i64, String)> {
        KNOWN[..upto].iter().map(|migration| (migration.version, migration.checksum())).collect()
    }

    #[test]
    fn only_what_is_missing_is_pending() {
        assert_eq!(pending(&KNOWN, &applied(0)).map(<[_]>::len).ok(), Some(2));
        assert_eq!(pending(&KNOWN, &applied(1)).map(<[_]>::len).ok(), Some(1));
        assert_eq!(pending(&KNOWN, &applied(2)).map(<[_]>::len).ok(), Some(0));
    }

    #[test]
    fn a_newer_schema_is_refused_with_the_next_step() {
        let mut newer = applied(2);
        newer.push((3, "…".into()));

        let error = pending(&KNOWN, &newer).expect_err("version 3 is unknown");

        assert!(error.to_string().contains("run a newer telecine"), "{error}");
    }

    #[test]
    fn a_step_that_changed_after_it_was_applied_is_refused() {
        let changed = vec![(1, "another checksum".to_owned())];

        assert!(matches!(pending(&KNOWN, &changed), Err(QueueError::Schema { .. })));
    }
}
