//! Connections that break, clients that say nothing more, and processes that are killed.

use std::time::Duration;

use libtest_mimic::Trial;
use tokio::io::AsyncReadExt;

use super::child::Child;
use super::{Tus, noise, sha256, staged, stored};
use crate::support::{Served, problem, trial};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("uploads::what_arrived_before_a_cut_is_kept", what_arrived_before_a_cut_is_kept),
        trial("uploads::a_cut_with_a_checksum_leaves_nothing", a_cut_with_a_checksum_leaves_nothing),
        trial("uploads::one_writes_at_a_time", one_writes_at_a_time),
        trial("uploads::who_asks_where_to_go_on_need_not_wait_for_the_lost_one", a_lost_one_gives_way),
        trial("uploads::a_silent_client_is_not_waited_for", a_silent_client_is_not_waited_for),
        trial("uploads::a_server_that_stops_keeps_what_arrived", a_server_that_stops_keeps_what_arrived),
        trial("uploads::a_killed_server_loses_nothing_it_answered_for", a_killed_server_loses_nothing),
    ]
}

async fn what_arrived_before_a_cut_is_kept() {
    let served = Served::start().await;
    let (tus, bytes) = (Tus::of(&served), noise(400_000));
    let path = tus.create(bytes.len()).await;

    let mut offset = 0;
    for cut_after in [1, 100_000, 99_999] {
        let more = &bytes[offset..offset + cut_after];
        let stream = tus.begin(&path, offset, bytes.len() - offset, more, "").await;
        drop(stream);
        offset += cut_after;
        served.until(async || tus.offset(&path).await == offset as u64).await;
        // The lost request may have the upload for a moment longer.
        served.until(async || tus.patch(&path, offset, &[]).send().await.unwrap().status() == 204).await;
    }

    assert_eq!(stored(&served).await, Vec::<String>::new());
    tus.add(&path, offset, &bytes[offset..]).await;
    assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
    served.stop().await;
}

async fn a_cut_with_a_checksum_leaves_nothing() {
    let served = Served::start().await;
    let (tus, bytes) = (Tus::of(&served), noise(1000));
    let path = tus.create(bytes.len()).await;
    tus.add(&path, 0, &bytes[..100]).await;
    let checksum = "Upload-Checksum: sha1 AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n";

    let stream = tus.begin(&path, 100, 900, &bytes[100..500], checksum).await;
    let arrived = async || {
        let folder = served.shop.scratch.root().join("uploads");
        let data = staged(&served).into_iter().find(|name| name.ends_with(".data")).unwrap();
        std::fs::metadata(folder.join(data)).unwrap().len()
    };
    served.until(async || arrived().await == 500).await;
    assert_eq!(tus.offset(&path).await, 100, "what was not compared does not count");
    drop(stream);

    served.until(async || arrived().await == 100).await;
    served.until(async || tus.patch(&path, 100, &bytes[100..]).send().await.unwrap().status() == 204).await;
    assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
    served.stop().await;
}

async fn one_writes_at_a_time() {
    let served = Served::start().await;
    let (tus, bytes) = (Tus::of(&served), noise(1000));
    let path = tus.create(bytes.len()).await;
    let mut first = tus.begin(&path, 0, 1000, &bytes[..10], "").await;
    served.until(async || tus.offset(&path).await == 10).await;

    for offset in [0, 10] {
        let second = tus.patch(&path, offset, &bytes[offset..]).send().await.unwrap();
        let body = problem(second).await;
        assert_eq!((&body["status"], &body["code"]), (&423.into(), &"locked".into()));
    }

    tokio::io::AsyncWriteExt::write_all(&mut first, &bytes[10..]).await.unwrap();
    let mut answer = [0; 12];
    first.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 204");
    assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
    served.stop().await;
}

async fn a_lost_one_gives_way() {
    let served = Served::start().await;
    let (tus, bytes) = (Tus::of(&served), noise(1000));
    let path = tus.create(bytes.len()).await;
    // The connection stays, and nothing comes: as when a phone changes its network.
    let _lost = tus.begin(&path, 0, 1000, &bytes[..10], "").await;
    served.until(async || tus.offset(&path).await == 10).await;

    served
        .until(async || {
            assert_eq!(tus.offset(&path).await, 10);
            let added = tus.patch(&path, 10, &bytes[10..]).send().await.unwrap();
            assert!([204, 423].contains(&added.status().as_u16()), "{added:?}");
            added.status() == 204
        })
        .await;

    assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
    served.stop().await;
}

async fn a_silent_client_is_not_waited_for() {
    let served = Served::with(|_, options| options.body_idle = Duration::from_millis(200)).await;
    let (tus, bytes) = (Tus::of(&served), noise(1000));
    let path = tus.create(bytes.len()).await;

    let mut silent = tus.begin(&path, 0, 1000, &bytes[..300], "").await;
    let mut answer = [0; 12];
    silent.read_exact(&mut answer).await.unwrap();

    assert_eq!(&answer, b"HTTP/1.1 408");
    assert_eq!(tus.offset(&path).await, 300);
    assert_eq!(tus.add(&path, 300, &bytes[300..]).await, 1000);
    served.stop().await;
}

async fn a_server_that_stops_keeps_what_arrived() {
    let folder = tempfile::tempdir().unwrap();
    let uploads = folder.path().join("uploads");
    let first = Served::with(|_, options| options.uploads.folder = Some(uploads.clone())).await;
    let (tus, bytes) = (Tus::of(&first), noise(1000));
    let path = tus.create(bytes.len()).await;
    let mut stream = tus.begin(&path, 0, 1000, &bytes[..400], "").await;
    first.until(async || tus.offset(&path).await == 400).await;

    first.stop().await;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    let second = Served::with(|_, options| options.uploads.folder = Some(uploads.clone())).await;

    assert_eq!(&answer, b"HTTP/1.1 503");
    let tus = Tus::of(&second);
    assert_eq!(tus.offset(&path).await, 400);
    tus.add(&path, 400, &bytes[400..]).await;
    assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
    second.stop().await;
}

async fn a_killed_server_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let bytes = noise(3_000_000);
    let path = {
        let child = Child::start(place.path());
        Tus::at(&child.base).create(bytes.len()).await
    };
    let (mut acknowledged, mut kills) = (0, 0);
    while acknowledged < bytes.len() {
        let child = Child::start(place.path());
        let tus = Tus::at(&child.base);
        let offset = tus.offset(&path).await as usize;
        assert!(offset >= acknowledged, "{offset} of {acknowledged} that were answered for");
        if kills == 4 {
            acknowledged = tus.add(&path, offset, &bytes[offset..]).await as usize;
            assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
            break;
        }
        acknowledged = tus.add(&path, offset, &bytes[offset..offset + 300_000]).await as usize;
        // Killed while it writes the next ones.
        let on_its_way = &bytes[acknowledged..acknowledged + 200_000];
        let _stream = tus.begin(&path, acknowledged, bytes.len() - acknowledged, on_its_way, "").await;
        child.kill();
        kills += 1;
    }

    assert_eq!((acknowledged, kills), (bytes.len(), 4));
}
