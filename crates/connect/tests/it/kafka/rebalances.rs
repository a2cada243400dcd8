//! Members come and go; nothing is lost and nothing is there twice.

use libtest_mimic::Trial;

use super::office::{Office, ids};
use super::shared;
use crate::kafka_server::Sent;
use crate::postgres_server::PostgresServer;
use crate::stage::{On, promises};

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    promises!("kafka::rebalances", server, [members_that_come_and_go_take_each_record_once])
}

async fn members_that_come_and_go_take_each_record_once(on: On) {
    let office = Office::with(&shared(), &on, 6, |options| options.batch = 7).await;
    let members = || office.server.members(&office.options.group);
    let mut produced = 0;
    let mut produce = |count: usize| {
        let ids = (produced..produced + count).map(|nth| format!("film-{nth}"));
        office.produce(ids.map(|id| Sent::new(office.request(&id)).key(&id)));
        produced += count;
        produced
    };

    // Records keep coming while partitions are handed over, again and again.
    produce(100);
    let first = office.intake();
    office.until(async || office.runs().await.len() > 20).await;
    let second = office.intake();
    office.until(async || produce(20) > 0 && members() == Some(2)).await;
    let third = office.intake();
    office.until(async || produce(20) > 0 && members() == Some(3)).await;
    produce(100);
    let leaving = tokio::spawn(first.stop());
    office.until(async || produce(20) > 0 && members() == Some(2)).await;
    leaving.await.unwrap();
    let all = produce(100);
    office.until_runs(all).await;
    office.until_committed(all as i64).await;
    second.stop().await;
    third.stop().await;

    let mut expected: Vec<String> = (0..all).map(|nth| format!("film-{nth}")).collect();
    expected.sort_unstable();
    assert_eq!(ids(&office.runs().await), expected);
    office.queue.close().await;
}
