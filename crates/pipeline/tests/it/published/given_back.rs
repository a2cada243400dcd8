//! Runs that fail, or are cancelled, while they publish: nothing of them stays, and what was there before does.

use std::path::PathBuf;
use std::time::Duration;

use telecine_pipeline::{Blobs, describe, retry};
use telecine_queue::{JobFilter, JobState, Page, Pausable, RunId, RunState};

use super::gate::Gate;
use super::{PREFIX, everything, film, hashes, pictures, submitted, succeeded, succeeds, to, told};
use crate::clips;
use crate::optimize::photo;
use crate::s3_server::{BUCKET, S3Server, unsigned_options_for};
use crate::studio::{Studio, hls, recipe};

/// Whether nothing is published, and nobody says so.
pub(super) async fn is_empty(studio: &Studio) -> bool {
    let blobs = &studio.shop.blobs;
    blobs.list("_published").await.unwrap().is_empty()
        && blobs.list("_publications").await.unwrap().is_empty()
        && studio.queue.entries("publication", None, 10).await.unwrap().is_empty()
}

pub(super) async fn what_a_run_could_not_publish_whole_goes() {
    let studio = Studio::open().await;
    let obstacle = obstacle(&studio, "_published/u42/images/m7/thumb.webp");
    let run = submitted(&studio, to(PREFIX, pictures(&[100]), &photo(&studio, "photo.jpg"))).await;
    let failed = studio.ended(&run).await;
    std::fs::remove_dir_all(obstacle).unwrap();
    assert_eq!(failed.state, RunState::Failed);
    assert!(!hashes(&studio.shop.blobs, "_published").await.is_empty(), "some of it was there before");

    studio.until(async || is_empty(&studio).await).await;
    studio.close().await;
}

/// Whether all that is published is one run's.
async fn is_settled(studio: &Studio, run: &RunId) -> bool {
    let lists = studio.shop.blobs.list("_publications").await.unwrap();
    matches!(lists.as_slice(), [only] if only.contains(run.as_str()))
}

fn pending(filter: &JobFilter) -> JobFilter {
    JobFilter { states: vec![JobState::Scheduled, JobState::Pending, JobState::Running], ..filter.clone() }
}

pub(super) async fn what_a_cancelled_run_published_goes() {
    let server = S3Server::start_open();
    let gate = Gate::before(server.port, "/_published/u42/videos/m7/hls/master.m3u8");
    let through = unsigned_options_for(gate.port);
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}/store"), &through).unwrap();
    let studio = Studio::with(blobs, |shop| shop.keep_unpublished = Duration::ZERO).await;
    // Whoever sees to it was lost; the next sweep finds out.
    let settling = Pausable::Kind("settle_publication".into());
    studio.queue.pause(&settling).await.unwrap();
    let run = submitted(&studio, to(PREFIX, recipe(vec![hls()]), &film(&studio))).await;
    gate.reached().await;

    studio.queue.cancel_run(&run).await.unwrap();
    gate.open();
    assert!(!hashes(&studio.shop.blobs, "_published").await.is_empty(), "the segments were there");
    let lost = JobFilter { kind: Some("settle_publication".into()), ..JobFilter::default() };
    studio.queue.cancel_all(&lost).await.unwrap();
    studio.queue.resume(&settling).await.unwrap();
    let is_told = async || !studio.queue.list(&pending(&lost), Page::first(1)).await.unwrap().data.is_empty();
    studio
        .until(async || {
            crate::sweep::sweep(&studio).await;
            is_told().await || is_empty(&studio).await
        })
        .await;

    studio.until(async || is_empty(&studio).await).await;
    studio.close().await;
}

/// In whose way a folder stands that is not empty: no file can be put in its place.
fn obstacle(studio: &Studio, key: &str) -> PathBuf {
    let obstacle = studio.file("store").join(key);
    std::fs::create_dir_all(&obstacle).unwrap();
    std::fs::write(obstacle.join("in the way"), "").unwrap();
    obstacle
}

pub(super) async fn a_run_that_cannot_publish_all_gives_the_place_back_to_the_one_before() {
    let studio = Studio::open().await;
    let blobs = &studio.shop.blobs;
    let first = succeeds(&studio, to(PREFIX, pictures(&[100]), &photo(&studio, "photo.jpg"))).await;
    let before = hashes(blobs, "_published").await;
    // What it published has to be known without its jobs.
    studio
        .until(async || {
            studio.queue.prune(Duration::ZERO).await.unwrap();
            studio.kinds_of(&first.id).await.is_empty()
        })
        .await;
    let obstacle = obstacle(&studio, "_published/u42/images/m7/image/300w.webp");
    let other = studio.file("other.jpg");
    clips::ffmpeg(&["-f", "lavfi", "-i", "testsrc=size=640x360", "-frames:v", "1"], &other);

    let second = submitted(&studio, to(PREFIX, pictures(&[100, 300]), &other)).await;
    assert_eq!(studio.ended(&second).await.state, RunState::Failed);
    std::fs::remove_dir_all(obstacle).unwrap();

    // As soon as nobody else is on the list.
    studio.until(async || is_settled(&studio, &first.id).await).await;
    assert_eq!(hashes(blobs, "_published").await, before);
    assert_eq!(told(&describe(&*studio.queue, &first.id).await.unwrap().unwrap()), before);
    // The place is still the later one's, once it can.
    retry(&*studio.queue, &second, &[]).await.unwrap();
    let second = succeeded(&studio, &second).await;
    assert_eq!(hashes(blobs, "_published").await, told(&second));
    studio.close().await;
}

pub(super) async fn a_run_that_is_cancelled_while_it_publishes_leaves_what_was_there() {
    let server = S3Server::start_open();
    let gate = Gate::before(server.port, "/_published/u42/hls/master.m3u8");
    let through = unsigned_options_for(gate.port);
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}/store"), &through).unwrap();
    let studio = Studio::with(blobs, |_| ()).await;
    let first = succeeds(&studio, to("u42", pictures(&[100]), &photo(&studio, "other.jpg"))).await;
    let second = submitted(&studio, to("u42", recipe(vec![hls()]), &film(&studio))).await;
    gate.reached().await;
    let published = async || everything(&server).list("store/_published").await.unwrap().len();
    assert!(published().await > told(&first).len(), "some of the second was there");

    studio.queue.cancel_run(&second).await.unwrap();
    gate.open();

    studio.until(async || published().await == told(&first).len()).await;
    assert_eq!(hashes(&everything(&server), "store/_published").await, told(&first));
    studio.until(async || is_settled(&studio, &first.id).await).await;
    studio.close().await;
}
