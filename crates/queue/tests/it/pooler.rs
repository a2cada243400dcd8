//! What only matters behind a pooler: its server connections are shared with strangers.

use libtest_mimic::Trial;
use sqlx::{Executor, Row};
use telecine_queue::{OpenOptions, QueueError, open_with};

use crate::ground::{Database, Ground, eventually, push_one, run, work};
use crate::postgres_server::PostgresServer;

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let on = |name: &str, test: fn(Ground)| {
        let server = server.clone();
        Trial::test(format!("bouncer::pooler::{name}"), move || {
            test(Ground::new(Database::Bouncer, &server));
            Ok(())
        })
    };
    vec![
        on("our_settings_hold_for_us_and_reach_nobody_else", |ground| {
            run(our_settings_hold_for_us_and_reach_nobody_else(ground)).expect("the runtime starts");
        }),
        on("a_pooler_that_the_url_does_not_name_is_told_of", |ground| {
            run(a_pooler_that_the_url_does_not_name_is_told_of(ground)).expect("the runtime starts");
        }),
    ]
}

const SETTINGS: &str = "current_setting('synchronous_commit') || ' ' || current_setting('enable_seqscan') || ' ' || \
                        current_setting('lock_timeout')";

async fn our_settings_hold_for_us_and_reach_nobody_else(ground: Ground) {
    let queue = ground.open().await;
    // Every push writes down what it was like on its server connection, which by default would be careless.
    ground.psql(&format!(
        "CREATE TABLE seen (pid INTEGER, settings TEXT);
         CREATE FUNCTION note() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.seen VALUES (pg_backend_pid(), {SETTINGS});
             RETURN NULL;
         END $$;
         CREATE TRIGGER note AFTER INSERT ON telecine.job EXECUTE FUNCTION note();
         ALTER ROLE postgres IN DATABASE {} SET synchronous_commit = off;",
        ground.database_name()
    ));
    // Server connections that were made before do not know of the new default.
    ground.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    eventually("a push comes through", || async { queue.push(vec![work(1).into()]).await.ok() }).await;
    for n in 0..20 {
        push_one(&queue, work(n)).await;
    }

    assert_eq!(ground.psql("SELECT DISTINCT settings FROM seen").trim(), "on off 1min");
    let theirs = eventually("a stranger comes to one of the server connections", || async {
        let mut other = ground.callers_connection().await;
        let sql = sqlx::AssertSqlSafe(format!(
            "SELECT {SETTINGS} AS settings FROM seen WHERE pid = pg_backend_pid() LIMIT 1"
        ));
        other.fetch_optional(sqlx::raw_sql(sql)).await.expect("look")
    })
    .await;
    assert_eq!(theirs.get::<String, _>("settings"), "off on 0");
}

async fn a_pooler_that_the_url_does_not_name_is_told_of(ground: Ground) {
    let url = ground.url.trim_end_matches("?pgbouncer=true");

    let refused = open_with(url, &OpenOptions::default()).await.err().expect("it cannot work");

    assert!(matches!(refused, QueueError::Unsuitable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("add ?pgbouncer=true to the URL"), "{refused}");
}
