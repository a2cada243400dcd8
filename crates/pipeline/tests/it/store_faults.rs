//! Stores and scratch that fail: clear codes, another try where it can help, nothing half-published.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use telecine_pipeline::Blobs;
use telecine_queue::{RunId, RunState};

use crate::clips;
use crate::s3_server::{BUCKET, S3Server};
use crate::small_disk::SmallDisk;
use crate::studio::Studio;
use crate::studio::{hls, recipe};

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! all {
        ($($promise:ident),+ $(,)?) => { vec![$(trial(stringify!($promise), $promise)),+] };
    }
    all![
        a_full_store_is_told_and_the_run_goes_on_when_there_is_room,
        full_scratch_is_told_and_the_run_goes_on_when_there_is_room,
        a_server_that_comes_back_finds_the_run_going_on,
        wrong_credentials_publish_nothing,
        a_segment_that_was_cut_is_noticed_before_anything_plays,
        a_segment_with_other_bytes_is_noticed_before_anything_plays,
    ]
}

fn trial<F: Future<Output = ()>>(name: &str, promise: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(format!("store_faults::{name}"), move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(Box::pin(promise()));
        Ok(())
    })
}

async fn a_full_store_is_told_and_the_run_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount("8m") else { return };
    let studio = Studio::with(Blobs::in_folder(&disk.path.join("store")).unwrap(), |_| ()).await;
    clips::film(3, &studio.file("film.mp4"));
    disk.fill(8 << 10);

    let run = studio.submit(&recipe(vec![hls()]), &studio.file("film.mp4")).await;
    let failure = studio.failed(&run).await;
    assert_eq!((failure.code.as_str(), failure.retryable), ("storage_full", true), "{failure:?}");
    assert_eq!(published(&studio, &run).await, Vec::<String>::new());
    disk.empty();

    assert_succeeds_whole(&studio, &run).await;
    assert_eq!(studio.shop.blobs.sweep_unfinished(Duration::ZERO).await.unwrap(), 0);
    studio.close().await;
}

async fn full_scratch_is_told_and_the_run_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount("8m") else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("queue.db").display());
    let queue = telecine_queue::open(&database).await.unwrap();
    let blobs = Blobs::in_folder(&folder.path().join("store")).unwrap();
    let studio = Studio::arranged(queue, blobs, folder, &disk.path.join("scratch"), |_| ()).await;
    clips::film(3, &studio.file("film.mp4"));
    disk.fill(0);

    let run = studio.submit(&recipe(vec![hls()]), &studio.file("film.mp4")).await;
    let failure = studio.failed(&run).await;
    assert_eq!((failure.code.as_str(), failure.retryable), ("disk_full", true), "{failure:?}");
    assert_eq!(published(&studio, &run).await, Vec::<String>::new());
    disk.empty();

    assert_succeeds_whole(&studio, &run).await;
    studio.close().await;
}

async fn a_server_that_comes_back_finds_the_run_going_on() {
    let server = S3Server::start();
    let studio = Studio::with(server.open(""), |_| ()).await;
    clips::film(4, &studio.file("film.mp4"));

    let run = studio.submit(&recipe(vec![hls()]), &studio.file("film.mp4")).await;
    until("the source is stored", || server.file(&format!("_/{run}/source")).exists()).await;
    server.kill();
    let failure = studio.failed(&run).await;
    assert_eq!((failure.code.as_str(), failure.retryable), ("storage_unavailable", true), "{failure:?}");
    server.launch();

    assert_succeeds_whole(&studio, &run).await;
    assert_eq!(server.unfinished(), Vec::<String>::new());
    studio.close().await;
}

async fn wrong_credentials_publish_nothing() {
    let server = S3Server::start();
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}"), &server.options_with_wrong_key()).unwrap();
    let studio = Studio::with(blobs, |_| ()).await;
    clips::film(2, &studio.file("film.mp4"));

    let run = studio.submit(&recipe(vec![hls()]), &studio.file("film.mp4")).await;
    let failure = studio.failed(&run).await;

    assert_eq!((failure.code.as_str(), failure.step.as_str()), ("storage_denied", "ingest"));
    assert!(failure.hint.contains("credentials") && !failure.message.contains("some-other-secret"));
    assert_eq!(server.open("").list("").await.unwrap(), Vec::<String>::new());
    studio.close().await;
}

async fn a_segment_that_was_cut_is_noticed_before_anything_plays() {
    damaged_segment(|segment| {
        let file = std::fs::OpenOptions::new().write(true).open(segment).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    })
    .await;
}

async fn a_segment_with_other_bytes_is_noticed_before_anything_plays() {
    damaged_segment(|segment| {
        let mut bytes = std::fs::read(segment).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(segment, bytes).unwrap();
    })
    .await;
}

async fn damaged_segment(damage: impl FnOnce(&Path)) {
    let server = S3Server::start();
    let studio = Studio::with(server.open(""), |_| ()).await;
    clips::film(6, &studio.file("film.mp4"));

    let run = studio.submit(&recipe(vec![hls()]), &studio.file("film.mp4")).await;
    let folder = server.file(&format!("_/{run}/hls/180p"));
    until("a segment is stored", || segment_in(&folder).is_some()).await;
    damage(&segment_in(&folder).unwrap());
    let ended = studio.ended(&run).await;

    let failures = studio.failures(&run).await;
    assert_eq!(ended.state, RunState::Failed, "{failures:?}");
    assert!(failures.iter().any(|failure| failure.code == "verification_failed"), "{failures:?}");
    assert_eq!(published(&studio, &run).await, Vec::<String>::new());
    studio.close().await;
}

fn segment_in(folder: &Path) -> Option<PathBuf> {
    let mut files = std::fs::read_dir(folder).ok()?.map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|extension| extension == "m4s"))
}

/// The playlists of a run: whoever finds none plays nothing.
async fn published(studio: &Studio, run: &RunId) -> Vec<String> {
    let keys = studio.shop.blobs.list(&format!("_/{run}")).await.unwrap();
    keys.into_iter().filter(|key| key.ends_with(".m3u8") || key.ends_with(".mpd")).collect()
}

/// Everything that is recorded is in the store with its bytes.
async fn assert_succeeds_whole(studio: &Studio, run: &RunId) {
    let ended = studio.ended(run).await;
    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(run).await);
    let files: Vec<_> = studio.outputs(run).await.into_iter().flat_map(|output| output.files).collect();
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let found = studio.shop.blobs.head(&file.key).await.unwrap();
        assert_eq!(found.map(|found| found.bytes), Some(file.bytes), "{}", file.key);
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
