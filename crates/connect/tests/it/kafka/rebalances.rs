//! Members come and go; nothing is lost and nothing is there twice.

use libtest_mimic::Trial;

use super::office::{Office, ids};
use super::shared;
use crate::postgres_server::PostgresServer;
use crate::stage::{On, promises};

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    promises!("kafka::rebalances", server, [members_that_come_and_go_take_each_record_once])
}

async fn members_that_come_and_go_take_each_record_once(on: On) {
    const EACH: usize = 400;
    let office = Office::with(&shared(), &on, 6, |options| options.batch = 7).await;
    office.produce_requests("a", EACH);

    let first = office.intake();
    office.until(async || office.runs().await.len() > 20).await;
    let second = office.intake();
    office.until(async || office.runs().await.len() > 100).await;
    office.produce_requests("b", EACH);
    first.stop().await;
    let third = office.intake();
    office.until_runs(2 * EACH).await;
    office.until_committed(2 * EACH as i64).await;
    second.stop().await;
    third.stop().await;

    let mut expected: Vec<String> =
        ["a", "b"].iter().flat_map(|prefix| (0..EACH).map(move |nth| format!("{prefix}-{nth}"))).collect();
    expected.sort_unstable();
    assert_eq!(ids(&office.runs().await), expected);
    office.queue.close().await;
}
