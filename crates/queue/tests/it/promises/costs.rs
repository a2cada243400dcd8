//! What a look at one run, or at a page of runs, may cost.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use telecine_queue::{Age, NewRun, Push, RunFilter, RunId, RunPage, RunState};

use crate::ground::{Database, Ground, done, pull, push_all, register, settle, work};

/// Neither the history of others nor a tenant's own past is in the way of what is looked for.
pub(super) async fn looking_at_runs_costs_the_same_behind_a_long_history(ground: Arc<Ground>) {
    const RUNS: u64 = 20_000;
    let queue = ground.open().await;
    let worker = register(&queue).await;
    let mine = NewRun { external_id: Some("mine".into()), ..NewRun::new("film") };
    let push = Push::run(mine, (0..20).map(work)).tenant("us");
    let run = queue.push(vec![push]).await.expect("push").remove(0).run.expect("a run");
    for claimed in pull(&queue, worker, 10).await {
        settle(&queue, claimed, done()).await;
    }
    let looks = looks_at(&run);
    let alone: Vec<u64> = looks.iter().map(|look| ground.cost_of(look)).collect();

    ground.fill_history(RUNS);
    for (look, alone) in looks.iter().zip(alone) {
        let cost = ground.cost_of(look);
        match ground.database {
            // Steps of the virtual machine: one or two more where the last row is not the table's last.
            Database::Sqlite => assert!(cost <= alone + 5, "{}: {cost} steps instead of {alone}", look.name),
            // Larger tables have indexes one or two levels deeper: pages more for each row that is looked up.
            Database::Postgres | Database::Bouncer => {
                assert!(cost <= alone + 150, "{}: {cost} pages instead of {alone}", look.name);
            }
        }
    }

    let of_us = RunFilter { tenant: Some("us".into()), ..RunFilter::default() };
    assert_eq!(queue.list_runs(&of_us, RunPage::first(5)).await.expect("list_runs").data.len(), 5);
    let live = RunFilter { states: vec![RunState::Queued, RunState::Running], ..RunFilter::default() };
    let live = queue.list_runs(&live, RunPage::first(5)).await.expect("list_runs").data;
    assert_eq!(live.into_iter().map(|run| run.id).collect::<Vec<_>>(), [run]);
}

/// A statement with the values it is looked at with.
struct Look {
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
    /// As JSON for SQLite, as SQL for Postgres.
    values: (Value, String),
}

macro_rules! look {
    ($name:literal, $sqlite:expr, $postgres:expr) => {
        Look {
            name: $name,
            sqlite: include_str!(concat!("../../../sql/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("../../../sql/postgres/", $name, ".sql")),
            values: ($sqlite, $postgres),
        }
    };
}

/// A look at how long jobs wait reads so many of them and no more.
pub(super) async fn ages_cost_the_same_behind_a_deep_backlog(ground: Arc<Ground>) {
    // Unoptimised, a million rows take minutes to fill in.
    const PENDING: u64 = if cfg!(debug_assertions) { 50_000 } else { 1_000_000 };
    let queue = ground.open().await;
    push_all(&queue, (0..3_000).map(work)).await;
    let reach = u64::from(Age::REACH);
    let look = look!("waiting_ages", json!(["cpu", 50, Age::REACH]), format!("100, {reach}"));
    let alone = ground.cost_of(&look);

    ground.fill_job(PENDING, "'pending'", "NULL");
    ground.fill_job(PENDING, "'scheduled'", "NULL");
    let cost = ground.cost_of(&look);

    match ground.database {
        Database::Sqlite => assert!(cost <= alone + 5, "{cost} steps instead of {alone}"),
        // Indexes one level deeper, probed for each priority from both ends, and rows of other pages.
        Database::Postgres | Database::Bouncer => {
            assert!(cost <= alone + 2 * 101 + 2 * reach, "{cost} pages instead of {alone}");
        }
    }
    let ages = queue.waiting_ages().await.expect("waiting_ages");
    assert_eq!(ages.iter().map(|age| age.kind.as_str()).collect::<Vec<_>>(), ["work"]);
}

fn looks_at(run: &RunId) -> [Look; 6] {
    let all = Value::Null;
    [
        look!(
            "list_of_run",
            json!([i64::MAX, all, all, all, all, run, 5, 0]),
            format!("NULL, NULL, NULL, NULL, NULL, '{run}', 5, false")
        ),
        look!("run_steps", json!([run]), format!("'{run}'")),
        look!("list_runs", json!(["running", "s", all, 5]), "'{queued,running}', 's', NULL, 5".into()),
        look!(
            "list_runs_of_tenant",
            json!(["running", "s", all, 5, "us"]),
            "'{queued,running}', 's', NULL, 5, 'us'".into()
        ),
        look!(
            "list_runs_of_external",
            json!(["running", "s", all, 5, "mine", all]),
            "'{queued,running}', 's', NULL, 5, 'mine', NULL".into()
        ),
        look!("feed", json!([0, 2]), "'0', '', 0, 2".into()),
    ]
}

impl Ground {
    /// Runs that ended long ago, each with a job, half of them of the tenant `us`; past every verb, which would take long.
    fn fill_history(&self, runs: u64) {
        let columns =
            "id, tenant, name, external_id, state, meta, jobs_total, jobs_left, created_at, finished_at";
        let jobs = "id, tenant, run, kind, lane, priority, fair_at, state, generation, fence, settled_fence, attempt, \
                    max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, scratch_bytes, \
                    cost_ms, required, payload, created_at, finished_at";
        let tenant = "CASE n % 2 WHEN 0 THEN 'us' ELSE 'them' END";
        let run = |id: &str, now: &str| {
            format!("{id}, {tenant}, 'film', 'theirs-' || n, 'succeeded', '{{}}', 1, 0, {now}, {now}")
        };
        let job = |id: &str, yes: &str, now: &str| {
            format!(
                "1000000 + n, {tenant}, {id}, 'work', 'cpu', 50, n, 'completed', 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, \
                 {yes}, '{{}}', {now}, {now}"
            )
        };
        match self.database {
            Database::Sqlite => {
                let file = rusqlite::Connection::open(self.url.trim_start_matches("sqlite:")).expect("open");
                file.busy_timeout(Duration::from_secs(60)).expect("busy timeout");
                let id = "'run_' || printf('%026d', n)";
                let every = format!(
                    "WITH RECURSIVE every (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM every WHERE n < {runs})"
                );
                for (table, columns, values) in
                    [("run", columns, run(id, "1")), ("job_done", jobs, job(id, "1", "1"))]
                {
                    let sql = format!("{every} INSERT INTO {table} ({columns}) SELECT {values} FROM every");
                    assert_eq!(file.execute(&sql, []).expect("fill") as u64, runs);
                }
            }
            Database::Postgres | Database::Bouncer => {
                let id = "'run_' || lpad(n::TEXT, 26, '0')";
                for (table, columns, values) in
                    [("run", columns, run(id, "now()")), ("job_done", jobs, job(id, "TRUE", "now()"))]
                {
                    let sql = format!(
                        "INSERT INTO telecine.{table} ({columns}) SELECT {values} FROM generate_series(1, {runs}) AS n"
                    );
                    assert!(self.psql(&sql).contains(&format!("INSERT 0 {runs}")));
                }
                self.psql("VACUUM ANALYZE");
            }
        }
    }

    /// What a look touches: steps of SQLite's machine, or pages of Postgres's tables and indexes.
    fn cost_of(&self, look: &Look) -> u64 {
        match self.database {
            Database::Sqlite => {
                let file = rusqlite::Connection::open(self.url.trim_start_matches("sqlite:")).expect("open");
                let mut statement = file.prepare(look.sqlite).expect("prepare");
                let values = look.values.0.as_array().expect("a list").iter().map(sqlite_value);
                let rows = statement.query_map(rusqlite::params_from_iter(values), |_| Ok(())).expect("look");
                assert!(rows.count() > 0, "{} finds something", look.name);
                statement.get_status(rusqlite::StatementStatus::VmStep).unsigned_abs().into()
            }
            Database::Postgres | Database::Bouncer => {
                // As a session of ours plans it, without looking at the parameters.
                let told = self.psql(&format!(
                    "BEGIN; SET enable_seqscan = off; SET enable_bitmapscan = off; \
                     SET plan_cache_mode = force_generic_plan; PREPARE look AS {}; EXECUTE look ({}); \
                     SELECT 'pages=' || SUM(pg_stat_get_xact_blocks_fetched(oid)) FROM pg_class \
                     WHERE relnamespace = 'telecine'::REGNAMESPACE AND relkind IN ('r', 'i'); ROLLBACK",
                    look.postgres, look.values.1
                ));
                let pages = told.split("pages=").nth(1).and_then(|rest| rest.split_whitespace().next());
                pages.and_then(|pages| pages.parse().ok()).unwrap_or_else(|| panic!("no number in {told}"))
            }
        }
    }
}

fn sqlite_value(value: &Value) -> rusqlite::types::Value {
    match value {
        Value::Number(number) => number.as_i64().expect("a whole number").into(),
        Value::String(text) => text.clone().into(),
        _ => rusqlite::types::Value::Null,
    }
}
