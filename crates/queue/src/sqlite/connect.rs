//! Opening the file: settings, migrations, and everything that makes a file unfit to be a queue.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::clock::{LineClock, boot_id, boottime_ms};
use super::sql;
use crate::error::{QueueError, Result};
use crate::migration::{Migration, pending, refuse_pending};
use crate::open::OpenOptions;
use crate::timestamp::Timestamp;

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "0001_queue", sql: include_str!("../../migrations/sqlite/0001_queue.sql") },
    Migration { version: 2, name: "0002_runs", sql: include_str!("../../migrations/sqlite/0002_runs.sql") },
    Migration {
        version: 3,
        name: "0003_entries",
        sql: include_str!("../../migrations/sqlite/0003_entries.sql"),
    },
    Migration { version: 4, name: "0004_feed", sql: include_str!("../../migrations/sqlite/0004_feed.sql") },
    Migration { version: 5, name: "0005_ages", sql: include_str!("../../migrations/sqlite/0005_ages.sql") },
];

/// 3.51.3 mends a race of WAL resets that could corrupt a database shared by several processes.
const OLDEST_SQLITE: i32 = 3_051_003;

/// The statements of the queue, and some to spare.
const CACHED_STATEMENTS: usize = 96;

/// A connection that is fit to write, with the schema of this program.
pub(super) fn open_migrated(path: &Path, options: &OpenOptions) -> Result<(Connection, LineClock)> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(QueueError::Unsuitable {
            reason: format!("SQLite {} can corrupt a database in WAL mode", rusqlite::version()),
            next_step: "build with the bundled SQLite (3.51.3 or newer)".into(),
        });
    }
    refuse_network_file_system(path)?;
    if !options.migrate && !path.exists() {
        // Looking must not leave an empty file behind.
        refuse_pending(MIGRATIONS)?;
    }
    let connection = open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    keep_private(path);
    wait_by_the_millisecond(&connection)?;
    retry_while_busy(options.patience, || configure(&connection)).map_err(|error| explain(path, error))?;
    retry_while_busy(options.patience, || migrate(&connection, options.migrate))
        .map_err(|error| explain(path, error))?;
    let line = retry_while_busy(options.patience, || line_clock(&connection))
        .map_err(|error| explain(path, error))?;
    Ok((connection, line))
}

fn line_clock(connection: &Connection) -> Result<LineClock> {
    // Looked at first: to open a file that is up to date, nobody needs its write lock.
    let known =
        connection.query_row(sql!("boot_look"), [boot_id()], |row| row.get(0)).optional().map_err(db)?;
    if let Some(started_at) = known {
        return Ok(LineClock::new(started_at));
    }
    let started_at = Timestamp::now().as_ms() - boottime_ms();
    let agreed = connection.query_row(sql!("boot"), (boot_id(), started_at), |row| row.get(0));
    Ok(LineClock::new(agreed.map_err(db)?))
}

/// Our own loop retries every millisecond; SQLite's handler, on by default, backs off to 100.
pub(super) fn wait_by_the_millisecond(connection: &Connection) -> Result<()> {
    connection.busy_timeout(Duration::ZERO).map_err(db)
}

/// Another connection to a file that `open_migrated` has prepared.
pub(super) fn open_again(path: &Path, patience: Duration) -> Result<Connection> {
    let connection = open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(patience).map_err(db)?;
    configure(&connection)?;
    Ok(connection)
}

pub(super) fn pending_names(path: &Path) -> Result<Vec<String>> {
    if !path.exists() {
        return Ok(MIGRATIONS.iter().map(|migration| migration.name.to_owned()).collect());
    }
    let connection = open_file(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    // One look: another process may be migrating at this moment.
    connection.execute_batch("BEGIN").map_err(db)?;
    let applied = applied(&connection).map_err(|error| explain(path, error))?;
    if applied.is_empty() {
        refuse_foreign(&connection).map_err(|error| explain(path, error))?;
    }
    Ok(pending(MIGRATIONS, &applied)?.iter().map(|migration| migration.name.to_owned()).collect())
}

/// Runs blocking work where it cannot hold up the runtime.
pub(super) async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(QueueError::unexpected)?
}

pub(super) fn open_file(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, flags).map_err(|error| match error.sqlite_error_code() {
            Some(ErrorCode::CannotOpen) => QueueError::Unsuitable {
                reason: format!("cannot open {}", path.display()),
                next_step: "check that its folder exists and that this user may write there".into(),
            },
            _ => db(error),
        })?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    Ok(connection)
}

/// The database holds what users uploaded: nobody else on the host needs to read it.
fn keep_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let is_new = std::fs::metadata(path).is_ok_and(|file| file.len() == 0);
    if is_new {
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600));
    }
}

fn configure(connection: &Connection) -> Result<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(db)?;
    if mode != "wal" {
        return Err(QueueError::Unsuitable {
            reason: format!("the database stays in journal mode `{mode}`"),
            next_step: "put the file on a local disk that supports shared memory".into(),
        });
    }
    // A statement keeps its plan: without this, another value of a LIMIT has it prepared again.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(db)?;
    // FULL: a commit is on the disk before anyone hears of it. NORMAL would lose acknowledged pushes with the power.
    connection
        .execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF; PRAGMA temp_store = MEMORY;")
        .map_err(db)
}

fn migrate(connection: &Connection, allowed: bool) -> Result<()> {
    if pending(MIGRATIONS, &applied(connection)?)?.is_empty() {
        return Ok(());
    }
    // Ten processes may start at once: the first takes the write lock, the others then find nothing left to do.
    connection.execute_batch("BEGIN IMMEDIATE").map_err(db)?;
    let outcome = migrate_locked(connection, allowed);
    let end = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(db)?;
    outcome
}

fn migrate_locked(connection: &Connection, allowed: bool) -> Result<()> {
    let applied = applied(connection)?;
    if applied.is_empty() {
        refuse_foreign(connection)?;
    }
    let pending = pending(MIGRATIONS, &applied)?;
    if !allowed {
        return refuse_pending(pending);
    }
    connection
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS schema_version \
             (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT",
        )
        .map_err(db)?;
    for migration in pending {
        connection.execute_batch(migration.sql).map_err(db)?;
        connection
            .execute(
                "INSERT INTO schema_version (version, name, checksum) VALUES (?1, ?2, ?3)",
                (migration.version, migration.name, migration.checksum()),
            )
            .map_err(db)?;
    }
    Ok(())
}

fn applied(connection: &Connection) -> Result<Vec<(i64, String)>> {
    // Asked as a query: `table_exists` answers from a schema that the connection may have read before another
    // process migrated.
    let known: bool = connection
        .query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'schema_version')", [], |row| {
            row.get(0)
        })
        .map_err(db)?;
    if !known {
        return Ok(Vec::new());
    }
    let mut statement =
        connection.prepare("SELECT version, checksum FROM schema_version ORDER BY version").map_err(db)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(db)?;
    rows.collect::<rusqlite::Result<_>>().map_err(db)
}

/// A file with tables that are not ours belongs to somebody else's program.
fn refuse_foreign(connection: &Connection) -> Result<()> {
    let tables: i64 = connection
        .query_row("SELECT COUNT(*) FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'", [], |row| row.get(0))
        .map_err(db)?;
    if tables == 0 {
        return Ok(());
    }
    Err(QueueError::Unsuitable {
        reason: "the file is a SQLite database of another program".into(),
        next_step: "choose another file name for the queue".into(),
    })
}

/// SQLite's locks do not work over a network: two hosts would corrupt the file.
fn refuse_network_file_system(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The file itself first: it may be a link to somewhere else.
    let Ok(folder) = std::fs::canonicalize(path).or_else(|_| std::fs::canonicalize(folder)) else {
        return Ok(());
    };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match network_file_system(&mounts, &folder) {
        None => Ok(()),
        Some(kind) => Err(QueueError::Unsuitable {
            reason: format!(
                "{} is on a network file system ({kind}), where SQLite can corrupt its file",
                folder.display()
            ),
            next_step: "use a local disk, or a Postgres database (postgres://…)".into(),
        }),
    }
}

/// The type of the network file system that `folder` is on, from the text of `/proc/self/mountinfo`.
fn network_file_system<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    const REMOTE: [&str; 21] = [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "ceph",
        "lustre",
        "afs",
        "gfs2",
        "ocfs2",
        "glusterfs",
        "beegfs",
        "gpfs",
        "vboxsf",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.gcsfuse",
        "fuse.juicefs",
    ];
    let (_, kind) = mounts
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            // A mount point writes its blanks as \040.
            let point = before.split(' ').nth(4)?.replace("\\040", " ");
            folder.starts_with(&point).then_some((point.len(), after.split(' ').next()?))
        })
        .max_by_key(|(length, _)| *length)?;
    REMOTE.contains(&kind).then_some(kind)
}

const BUSY: &str = "another process holds the lock of the SQLite file";

/// Repeats `work` every millisecond while another process holds the lock. (SQLite's own handler backs off to 100 ms.)
pub(super) fn retry_while_busy<T>(patience: Duration, mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let until = Instant::now() + patience;
    loop {
        match work() {
            Err(QueueError::Unavailable { reason }) if reason == BUSY && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// Errors of SQLite by what the caller can do about them.
pub(super) fn db(error: rusqlite::Error) -> QueueError {
    let reason = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            QueueError::Unavailable { reason: BUSY.into() }
        }
        Some(ErrorCode::SystemIoFailure) => QueueError::Unavailable { reason },
        Some(ErrorCode::DiskFull) => QueueError::Full { reason },
        // WAL needs to write beside the file even to read it: a read-only folder shows as "cannot open".
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            QueueError::Unsuitable {
                reason: "the SQLite file cannot be written".into(),
                next_step: "let this user write the file and its folder".into(),
            }
        }
        Some(ErrorCode::NotADatabase) => QueueError::Unsuitable {
            reason: "the file is not a SQLite database".into(),
            next_step: "choose another file name for the queue".into(),
        },
        _ => QueueError::Unexpected { reason },
    }
}

/// Names the file in an error of opening it.
fn explain(path: &Path, error: QueueError) -> QueueError {
    let name = path.display();
    match error {
        QueueError::Unavailable { reason } if reason == BUSY => QueueError::Unavailable {
            reason: format!("{name}: {reason}; see who has it open with `fuser {name}`, or try again"),
        },
        QueueError::Unsuitable { reason, next_step } => {
            QueueError::Unsuitable { reason: format!("{name}: {reason}"), next_step }
        }
        other => other,
    }
}

/// Connections for reading, made when needed and kept for the next reader.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    patience: Duration,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    const KEPT: usize = 4;

    pub(super) fn new(path: &Path, patience: Duration) -> Self {
        Self { path: path.to_path_buf(), patience, idle: Mutex::default() }
    }

    pub(super) async fn read<T: Send + 'static>(
        self: &std::sync::Arc<Self>,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let readers = std::sync::Arc::clone(self);
        off_the_runtime(move || {
            let connection = match readers.lock().pop() {
                Some(connection) => connection,
                None => open_again(&readers.path, readers.patience)?,
            };
            let found = look(&connection).map_err(db);
            let mut idle = readers.lock();
            if idle.len() < Self::KEPT {
                idle.push(connection);
            }
            found
        })
        .await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / /srv/media rw - nfs4 nas:/media rw
31 30 0:41 / /srv/media/local rw - xfs /dev/sdb1 rw
32 22 0:42 / /mnt/two\\040words rw - cifs //nas/share rw
";

    #[test]
    fn a_network_file_system_is_known_by_the_innermost_mount() {
        assert_eq!(network_file_system(MOUNTS, Path::new("/var/lib/telecine")), None);
        assert_eq!(network_file_system(MOUNTS, Path::new("/srv/media/queue")), Some("nfs4"));
        assert_eq!(network_file_system(MOUNTS, Path::new("/srv/media/local/queue")), None);
        assert_eq!(network_file_system(MOUNTS, Path::new("/srv/media2")), None);
        assert_eq!(network_file_system(MOUNTS, Path::new("/mnt/two words/x")), Some("cifs"));
    }

    #[test]
    fn the_linked_sqlite_is_new_enough() {
        assert!(rusqlite::version_number() >= OLDEST_SQLITE, "SQLite {}", rusqlite::version());
    }
}
