//! The schema and the statements are what the repository says they are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use serde_json::json;
use sha2::{Digest, Sha256};
use telecine_queue::{NewRun, Push, QueueError, RunFilter, RunId, RunPage, pending_migrations};

use crate::ground::{Database, Ground, eventually, run, work};
use crate::postgres_server::PostgresServer;

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let mut trials = Vec::new();
    for database in [Database::Sqlite, Database::Postgres] {
        for (name, test) in [
            ("every_sql_file_is_used", every_sql_file_is_used as fn(Ground)),
            ("every_sql_file_prepares", every_sql_file_prepares),
            ("the_schema_is_the_committed_one", the_schema_is_the_committed_one),
            (
                "a_database_of_any_earlier_schema_keeps_its_runs",
                a_database_of_any_earlier_schema_keeps_its_runs,
            ),
        ] {
            let server = server.clone();
            trials.push(Trial::test(format!("{}::schema::{name}", database.name()), move || {
                test(Ground::new(database, &server));
                Ok(())
            }));
        }
    }
    let server = server.clone();
    trials.push(Trial::test("postgres::schema::no_statement_reads_all_there_is", move || {
        no_statement_reads_all_there_is(Ground::new(Database::Postgres, &server));
        Ok(())
    }));
    trials
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Names and texts of the statements of a database.
fn statements(database: Database) -> Vec<(String, String)> {
    texts_in(&crate_folder().join("sql").join(database.name()))
}

/// Names and texts of files, in the order of their names.
fn texts_in(folder: &Path) -> Vec<(String, String)> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    let name = |file: &Path| file.file_stem().expect("a name").to_string_lossy().into_owned();
    files.iter().map(|file| (name(file), fs::read_to_string(file).expect("readable"))).collect()
}

fn every_sql_file_is_used(ground: Ground) {
    let source = crate_folder().join("src").join(ground.database.name());
    let mut code = fs::read_to_string(source.with_extension("rs")).expect("readable");
    for entry in fs::read_dir(source).expect("the folder is there") {
        code.push_str(&fs::read_to_string(entry.expect("readable").path()).expect("readable"));
    }
    let files: BTreeSet<String> = statements(ground.database).into_iter().map(|(name, _)| name).collect();

    let unused: Vec<&String> =
        files.iter().filter(|name| !code.contains(&format!("sql!(\"{name}\")"))).collect();

    assert!(!files.is_empty());
    assert!(unused.is_empty(), "never used: {unused:?}");
}

fn every_sql_file_prepares(ground: Ground) {
    run(async {
        ground.open().await.close().await;
        match ground.database {
            Database::Sqlite => {
                let file =
                    rusqlite::Connection::open(ground.url.trim_start_matches("sqlite:")).expect("open");
                for (name, text) in statements(Database::Sqlite) {
                    file.prepare(&text).unwrap_or_else(|error| panic!("{name}.sql: {error}"));
                }
            }
            Database::Postgres | Database::Bouncer => {
                use sqlx::{Connection, Executor, SqlSafeStr};
                let mut connection = sqlx::PgConnection::connect(&ground.url).await.expect("connect");
                for (name, text) in statements(Database::Postgres) {
                    let text = sqlx::AssertSqlSafe(text).into_sql_str();
                    connection.prepare(text).await.unwrap_or_else(|error| panic!("{name}.sql: {error}"));
                }
            }
        }
    })
    .expect("the runtime starts");
}

/// No statement reads a growing table from end to end for want of an index, in the plan that is kept for any parameters:
/// what a million rows behind would cost does not show while tables are small.
fn no_statement_reads_all_there_is(ground: Ground) {
    use sqlx::{AssertSqlSafe, Connection, Executor, Row};
    // The others hold a row per worker, setting or change of a second.
    const GROWING: [&str; 10] =
        ["job", "job_done", "attempt", "run", "event", "outbox", "record", "need", "idempotency", "entry"];
    run(async {
        ground.open().await.close().await;
        let mut connection = sqlx::PgConnection::connect(&ground.url).await.expect("connect");
        let session =
            "SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan";
        connection.execute(session).await.expect("settings");
        for (name, text) in statements(Database::Postgres) {
            // Only what is planned can be explained.
            if text.lines().any(|line| {
                line.starts_with("SAVEPOINT")
                    || line.starts_with("RELEASE")
                    || line.starts_with("ROLLBACK")
                    || line.starts_with("LOCK")
                    || line.starts_with("CREATE")
            }) {
                continue;
            }
            let parameters = (1..).take_while(|nth| text.contains(&format!("${nth}"))).count();
            let nulls = match parameters {
                0 => String::new(),
                some => format!("({})", vec!["NULL"; some].join(", ")),
            };
            let prepared = connection.execute(AssertSqlSafe(format!("PREPARE explained AS {text}"))).await;
            prepared.unwrap_or_else(|error| panic!("{name}.sql: {error}"));
            let explain = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN EXECUTE explained{nulls}")));
            let plan = explain
                .fetch_all(&mut connection)
                .await
                .unwrap_or_else(|error| panic!("{name}.sql: {error}"));
            connection.execute("DEALLOCATE explained").await.expect("deallocate");

            let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
            for table in GROWING {
                let scan = format!("Seq Scan on {table} ");
                assert!(!plan.iter().any(|line| line.contains(&scan)), "{name}.sql: {}", plan.join("\n"));
            }
        }
    })
    .expect("the runtime starts");
}

/// `schema/*.sql` is what all migrations together make. To renew it after adding one: `make schema`.
fn the_schema_is_the_committed_one(ground: Ground) {
    run(async { ground.open().await.close().await }).expect("the runtime starts");
    let made = match ground.database {
        Database::Sqlite => {
            let file = rusqlite::Connection::open(ground.url.trim_start_matches("sqlite:")).expect("open");
            let mut look = file
                .prepare("SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY name")
                .expect("prepare");
            let parts: Vec<String> =
                look.query_map([], |row| row.get(0)).expect("query").collect::<Result<_, _>>().expect("rows");
            parts.join("\n\n") + "\n"
        }
        Database::Postgres | Database::Bouncer => ground.server.dump_schema(&ground.url),
    };
    let committed = crate_folder().join("schema").join(ground.database.name()).with_extension("sql");
    if std::env::var_os("TELECINE_RENEW_SCHEMA").is_some() {
        fs::write(&committed, &made).expect("writable");
    }

    let expected = fs::read_to_string(&committed).unwrap_or_default();

    assert!(
        made == expected,
        "{} is out of date: run `make schema` and look at the change",
        committed.display()
    );
}

/// Whatever step of the schema a database is at, it is brought up to date with what is in it.
fn a_database_of_any_earlier_schema_keeps_its_runs(ground: Ground) {
    let steps = texts_in(&crate_folder().join("migrations").join(ground.database.name()));
    let later: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
    for known in 1..steps.len() {
        let ground = Ground::new(ground.database, &ground.server);
        let run_id = RunId::new();
        make_old(&ground, &steps[..known], &run_id);
        run(async {
            assert_eq!(pending_migrations(&ground.url).await.expect("look"), later[known..]);

            let queue = ground.open().await;

            let listed = queue.list_runs(&RunFilter::default(), RunPage::first(9)).await.expect("list_runs");
            assert_eq!(listed.data.iter().map(|run| &run.id).collect::<Vec<_>>(), [&run_id]);
            assert_eq!((listed.data[0].meta["a"].as_u64(), listed.data[0].tenant.as_str()), (Some(1), "us"));
            let push = Push::run(NewRun::new("film"), [work(1)]).tenant("us").idempotency_key("before");
            let again = queue.push(vec![push]).await;
            assert!(matches!(again, Err(QueueError::KeyReused { .. })), "its key is still known: {again:?}");
            assert_eq!(queue.tell(&run_id, "output.ready", json!(1)).await.expect("tell"), Some(3));
            let told = queue.events(&run_id, 0, 9).await.expect("events");
            let story: Vec<(u64, &str)> = told.iter().map(|event| (event.seq, event.name.as_str())).collect();
            assert_eq!(story, [(1, "run.created"), (2, "run.started"), (3, "output.ready")]);
            let fed = eventually("all is fed", || async {
                Some(queue.feed(None, 9).await.expect("feed").events).filter(|fed| fed.len() == 3)
            });
            let fed: Vec<_> = fed.await.into_iter().map(|fed| (fed.tenant, fed.event)).collect();
            assert_eq!(fed, told.into_iter().map(|event| ("us".to_owned(), event)).collect::<Vec<_>>());
            queue.close().await;
        })
        .expect("the runtime starts");
    }
}

/// A database as an earlier program left it: the first steps of the schema, and a run that was pushed with a key.
fn make_old(ground: &Ground, steps: &[(String, String)], run: &RunId) {
    let run = format!(
        "INSERT INTO {{telecine.}}run (id, tenant, name, state, meta, jobs_total, jobs_left, created_at) \
         VALUES ('{run}', 'us', 'film', 'queued', '{{\"a\": 1}}', 1, 1, {{now}}); \
         UPDATE {{telecine.}}run SET state = 'running' WHERE id = '{run}'; \
         INSERT INTO {{telecine.}}idempotency (tenant, key, body_hash, run, jobs, expires_at) \
         VALUES ('us', 'before', {{bytes}}, '{run}', {{none}}, {{later}});"
    );
    let noted = |name: &str, text: &str, more: &str| {
        let checksum: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("schema_version VALUES ({}, '{name}', '{checksum}'{more})", &name[..4])
    };
    match ground.database {
        Database::Sqlite => {
            let file = rusqlite::Connection::open(ground.url.trim_start_matches("sqlite:")).expect("open");
            let table = "CREATE TABLE schema_version \
                         (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT";
            file.execute_batch(table).expect("the table of steps");
            for (name, text) in steps {
                file.execute_batch(text).expect("a step");
                file.execute_batch(&format!("INSERT INTO {}", noted(name, text, ""))).expect("a step");
            }
            let run = run.replace("{telecine.}", "").replace("{now}", "1").replace("{bytes}", "X'00'");
            let run = run.replace("{none}", "'[]'").replace("{later}", &i64::MAX.to_string());
            file.execute_batch(&run).expect("a run");
        }
        Database::Postgres | Database::Bouncer => {
            ground.psql(
                "CREATE SCHEMA telecine; CREATE TABLE telecine.schema_version (version BIGINT PRIMARY KEY, \
                 name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at TIMESTAMPTZ NOT NULL)",
            );
            for (name, text) in steps {
                ground.psql(text);
                ground.psql(&format!("INSERT INTO telecine.{}", noted(name, text, ", now()")));
            }
            let run = run.replace("{telecine.}", "telecine.").replace("{now}", "now()");
            let run = run.replace("{bytes}", "'x'").replace("{none}", "'{}'");
            ground.psql(&run.replace("{later}", "now() + INTERVAL '1 hour'"));
        }
    }
}
