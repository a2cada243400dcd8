//! Outputs under keys of the caller's: which they are, whose they are, and what becomes of those before them.

mod gate;
mod given_back;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use sha2::Digest;
use telecine_media::{ImageFormat, ImageSpec, ImageVariant};
use telecine_pipeline::records::{LIFETIME, LifetimeRecord, RunRecord};
use telecine_pipeline::{
    Blobs, Does, Input, Published, Recipe, Recipes, RunDocument, Step, StoreOptions, Submission,
    delete_everywhere, describe, retry, submit,
};
use telecine_queue::{
    AttemptOutcome, Job, JobFilter, JobState, NewRecord, Page, Pausable, RunId, RunState, Timestamp,
};

use crate::clips;
use crate::optimize::{optimize, photo};
use crate::s3_server::{BUCKET, S3Server, unsigned_options_for};
use crate::studio::{Studio, hls, recipe, step, trial};
use crate::worker::{Place, Worker};
use gate::Gate;
use given_back::{
    a_run_that_cannot_publish_all_gives_the_place_back_to_the_one_before,
    a_run_that_is_cancelled_while_it_publishes_leaves_what_was_there, is_empty,
    what_a_cancelled_run_published_goes, what_a_run_could_not_publish_whole_goes,
};

const PREFIX: &str = "u42/{media}/m7";

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! all {
        ($($promise:ident),+ $(,)?) => { vec![$(trial(format!("published::{}", stringify!($promise)), $promise)),+] };
    }
    all![
        a_picture_has_the_keys_of_its_recipe,
        a_film_is_published_in_a_folder_apart,
        a_film_is_published_in_its_bucket_and_in_another_place,
        a_film_from_a_bucket_is_published_in_a_folder,
        a_later_run_replaces_all_of_an_earlier_one,
        an_earlier_run_that_comes_late_leaves_the_later_one,
        what_a_deleted_run_published_goes_if_it_is_still_its_own,
        a_run_that_is_just_being_retried_is_not_unpublished,
        borrowed_outputs_are_published_too,
        no_key_has_two_owners,
        what_a_killed_worker_left_half_copied_goes,
        tenants_publish_apart,
        a_place_that_is_away_is_told_and_tried_again,
        what_a_run_could_not_publish_whole_goes,
        what_a_cancelled_run_published_goes,
        a_run_that_cannot_publish_all_gives_the_place_back_to_the_one_before,
        a_run_that_is_cancelled_while_it_publishes_leaves_what_was_there,
        two_that_publish_at_once_do_so_one_after_the_other,
        a_worker_killed_between_two_copies_changes_nothing,
    ]
}

fn to(prefix: &str, recipe: Recipe, file: &Path) -> Submission {
    Submission {
        publish_to: Some(prefix.to_owned()),
        ..Submission::new(recipe, Input::Path(file.to_owned()))
    }
}

async fn submitted(studio: &Studio, submission: Submission) -> RunId {
    submit(&*studio.queue, submission).await.unwrap().run
}

async fn succeeds(studio: &Studio, submission: Submission) -> RunDocument {
    let run = submitted(studio, submission).await;
    succeeded(studio, &run).await
}

async fn succeeded(studio: &Studio, run: &RunId) -> RunDocument {
    let ended = studio.ended(run).await;
    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(run).await);
    describe(&*studio.queue, run).await.unwrap().unwrap()
}

/// Small pictures of these widths and a thumbnail.
fn pictures(widths: &[u32]) -> Recipe {
    let one = |width: u32| ImageVariant { formats: vec![ImageFormat::Webp], ..ImageVariant::of_width(width) };
    let of = |variants: Vec<ImageVariant>| Does::Image(ImageSpec { variants, ..ImageSpec::default() });
    let all: Vec<ImageVariant> = widths.iter().copied().map(ImageVariant::of_width).collect();
    recipe(vec![step("image", of(all)), step("thumb", of(vec![one(60)]))])
}

/// Every key below a prefix with the hash of its bytes.
async fn hashes(blobs: &Blobs, prefix: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for key in blobs.list(prefix).await.unwrap() {
        let bytes = blobs.get_bytes(&key).await.unwrap();
        let hash = sha2::Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        found.insert(key, hash);
    }
    found
}

/// Every key that a run's document tells, with the hash that it tells.
fn told(run: &RunDocument) -> BTreeMap<String, String> {
    let files = run.outputs.iter().flat_map(|output| &output.files);
    files.map(|file| (file.published.clone().unwrap(), file.sha256.clone())).collect()
}

fn keys_of(hashes: &BTreeMap<String, String>) -> Vec<&str> {
    hashes.keys().map(String::as_str).collect()
}

async fn a_picture_has_the_keys_of_its_recipe() {
    let studio = Studio::open().await;

    let run = succeeds(&studio, to(PREFIX, optimize(), &photo(&studio, "film.mp4"))).await;

    let found = hashes(&studio.shop.blobs, "_published").await;
    let sizes = ["1280w", "1920w", "320w", "640w"];
    let image = |size: &str| {
        ["jpg", "webp"].map(|extension| format!("_published/u42/images/m7/image/{size}.{extension}"))
    };
    let expected: Vec<String> = sizes.iter().flat_map(|size| image(size)).collect();
    assert_eq!(
        keys_of(&found),
        [expected, vec!["_published/u42/images/m7/thumb.webp".into()]].concat(),
        "by the sizes that were asked for, though the picture has but 640"
    );
    assert_eq!(told(&run), found);
    assert_eq!(run.publish_to.as_deref(), Some(PREFIX));
    let thumb = run.outputs.iter().find(|output| output.name == "thumb").unwrap();
    assert_eq!(thumb.published.as_deref(), Some("_published/u42/images/m7/thumb.webp"));
    studio.close().await;
}

fn film(studio: &Studio) -> std::path::PathBuf {
    let file = studio.file("photo.jpg");
    let clip = studio.file("clip.mp4");
    clips::film(2, &clip);
    std::fs::rename(clip, &file).unwrap();
    file
}

async fn a_film_is_published_in_a_folder_apart() {
    let public = tempfile::tempdir().unwrap();
    let url = format!("{}/www", public.path().display());
    let studio = Studio::tuned(|shop| shop.published = Published::in_place(&url, &shop.blobs).unwrap()).await;

    let run = succeeds(&studio, to(PREFIX, optimize(), &film(&studio))).await;

    let found = hashes(&Blobs::open(&url).unwrap(), "").await;
    assert_eq!(told(&run), found);
    for key in ["hls/master.m3u8", "video.mp4", "poster.jpg"] {
        assert!(found.contains_key(&format!("u42/videos/m7/{key}")), "{key} in {:?}", keys_of(&found));
    }
    // Whoever serves it can read it, and changes nothing of the store if it writes to it.
    for (path, mode) in
        [("www", 0o755), ("www/u42/videos/m7/hls", 0o755), ("www/u42/videos/m7/video.mp4", 0o644)]
    {
        let meta = std::fs::metadata(public.path().join(path)).unwrap();
        assert_eq!(meta.mode() & 0o777, mode, "{path}");
        assert!(meta.is_dir() || meta.nlink() == 1);
    }
    // It plays where it lies: playlists name what is beside them.
    let master = public.path().join("www/u42/videos/m7/hls/master.m3u8");
    assert_eq!(crate::film::frames(&master)[0], 50);
    assert_eq!(hashes(&studio.shop.blobs, "_published").await, BTreeMap::new());
    studio.close().await;
}

async fn a_film_is_published_in_its_bucket_and_in_another_place() {
    let server = S3Server::start();
    let within = Studio::with(server.open("store"), |_| ()).await;
    let run = succeeds(&within, to("u1/{media}/m7", optimize(), &film(&within))).await;
    within.close().await;

    let found = hashes(&server.open(""), "store/_published").await;
    assert_eq!(told(&run), found);
    assert!(found.contains_key("store/_published/u1/videos/m7/hls/master.m3u8"), "{:?}", keys_of(&found));
    let master = run.outputs.iter().find(|output| output.name == "hls").unwrap().published.clone();
    let address = format!("s3://{BUCKET}/store/_published/u1/videos/m7/hls/master.m3u8");
    assert_eq!(master, Some(address));

    // The store is a part of what is published in: one bucket for both.
    let beside = Studio::with(server.open("store"), |shop| {
        shop.published = Published::in_place(&format!("s3://{BUCKET}"), &shop.blobs).unwrap();
    })
    .await;
    let run = succeeds(&beside, to(PREFIX, optimize(), &film(&beside))).await;
    let refused = submitted(&beside, to("store/_", optimize(), &film(&beside))).await;

    assert_eq!(told(&run), hashes(&server.open(""), "u42").await);
    assert_eq!(beside.failed(&refused).await.code, "invalid_prefix");
    beside.close().await;
}

async fn a_film_from_a_bucket_is_published_in_a_folder() {
    let server = S3Server::start();
    let public = tempfile::tempdir().unwrap();
    let url = public.path().display().to_string();
    let studio = Studio::with(server.open("store"), |shop| {
        shop.published = Published::in_place(&url, &shop.blobs).unwrap();
    })
    .await;

    let run = succeeds(&studio, to(PREFIX, optimize(), &film(&studio))).await;

    assert_eq!(told(&run), hashes(&Blobs::open(&url).unwrap(), "").await);
    studio.close().await;
}

async fn a_later_run_replaces_all_of_an_earlier_one() {
    let studio = Studio::open().await;
    let (photo, blobs) = (photo(&studio, "photo.jpg"), &studio.shop.blobs);
    let first = succeeds(&studio, to(PREFIX, pictures(&[100, 200]), &photo)).await;
    let strange = "_published/u42/images/m7/image/original.jpg";
    blobs.put_bytes(strange, "the caller's own".into()).await.unwrap();

    let second = succeeds(&studio, to(PREFIX, pictures(&[200, 300]), &photo)).await;

    let mut found = hashes(blobs, "_published").await;
    assert!(found.remove(strange).is_some(), "nobody but its owner removes it");
    assert_eq!(told(&second), found);
    assert!(told(&first).contains_key("_published/u42/images/m7/image/100w.webp"));
    assert!(!found.contains_key("_published/u42/images/m7/image/100w.webp"));

    // The same run again: the same keys.
    retry(&*studio.queue, &second.id, &["publish".into()]).await.unwrap();
    let again = succeeded(&studio, &second.id).await;
    assert_eq!(told(&again), found);
    // The earlier one again: it is no longer its place.
    retry(&*studio.queue, &first.id, &["publish".into()]).await.unwrap();
    let first = succeeded(&studio, &first.id).await;
    assert!(first.outputs.iter().all(|output| output.published.is_none()), "{:?}", first.outputs);
    found.insert(strange.into(), hashes(blobs, strange_folder()).await[strange].clone());
    assert_eq!(hashes(blobs, "_published").await, found);
    studio.close().await;
}

fn strange_folder() -> &'static str {
    "_published/u42/images/m7/image"
}

async fn an_earlier_run_that_comes_late_leaves_the_later_one() {
    let studio = Studio::open().await;
    let (photo, clip) = (photo(&studio, "photo.jpg"), studio.file("film.mp4"));
    clips::film(2, &clip);
    let stills = Pausable::Kind("pictures".into());
    studio.queue.pause(&stills).await.unwrap();
    let poster = Recipes::built_in().get("thumbnail").unwrap().clone();

    let early = submitted(&studio, to("u42", poster, &clip)).await;
    let later = succeeds(&studio, to("u42", pictures(&[200]), &photo)).await;
    studio.queue.resume(&stills).await.unwrap();
    let early = succeeded(&studio, &early).await;

    assert_eq!(told(&later), hashes(&studio.shop.blobs, "_published").await);
    assert!(early.outputs.iter().all(|output| output.published.is_none()), "{:?}", early.outputs);
    let codes: Vec<&str> = early.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(codes, ["publish_superseded"]);
    studio.close().await;
}

async fn what_a_deleted_run_published_goes_if_it_is_still_its_own() {
    let studio = Studio::open().await;
    let (photo, shop) = (photo(&studio, "photo.jpg"), &studio.shop);
    let first = succeeds(&studio, to(PREFIX, pictures(&[100]), &photo)).await;
    let second = succeeds(&studio, to(PREFIX, pictures(&[200]), &photo)).await;
    let replaced = succeeds(&studio, to("u42/{media}/m8", pictures(&[100]), &photo)).await;
    let other = succeeds(&studio, to("u42/{media}/m8", pictures(&[300]), &photo)).await;
    let remove = async |run: &RunId| {
        delete_everywhere(&*studio.queue, &shop.blobs, &shop.published, run).await.unwrap();
    };

    remove(&replaced.id).await;
    assert_eq!(
        hashes(&shop.blobs, "_published/u42/images/m8").await,
        told(&other),
        "it is the other's by now"
    );
    remove(&second.id).await;
    assert_eq!(hashes(&shop.blobs, "_published").await, told(&other));
    remove(&other.id).await;

    studio.until(async || is_empty(&studio).await).await;
    // The place is free for anybody, also for one that came before.
    retry(&*studio.queue, &first.id, &["publish".into()]).await.unwrap();
    let first = succeeded(&studio, &first.id).await;
    assert_eq!(hashes(&shop.blobs, "_published").await, told(&first));
    studio.close().await;
}

async fn a_run_that_is_just_being_retried_is_not_unpublished() {
    let studio = Studio::open().await;
    let shop = &studio.shop;
    let run = succeeds(&studio, to(PREFIX, pictures(&[100]), &photo(&studio, "photo.jpg"))).await;
    let retried = LifetimeRecord { retried_at: Some(Timestamp::now()), ..LifetimeRecord::default() };
    let json = serde_json::to_value(&retried).unwrap();
    studio
        .queue
        .put_record(&run.id, NewRecord::new(LifetimeRecord::TYPE, LIFETIME, json), None)
        .await
        .unwrap();

    let refused = delete_everywhere(&*studio.queue, &shop.blobs, &shop.published, &run.id).await.unwrap_err();

    assert_eq!(refused.code, "run_not_ended");
    assert_eq!(hashes(&shop.blobs, "_published").await, told(&run));
    studio.close().await;
}

async fn no_key_has_two_owners() {
    let studio = Studio::open().await;
    let (photo, blobs) = (photo(&studio, "photo.jpg"), &studio.shop.blobs);
    let outer = succeeds(&studio, to("nest", pictures(&[100]), &photo)).await;
    let inner = succeeds(&studio, to("nest/inner", pictures(&[100]), &photo)).await;
    let one_file = ImageVariant { formats: vec![ImageFormat::Webp], ..ImageVariant::of_width(90) };
    let spec = ImageSpec { variants: vec![one_file], ..ImageSpec::default() };

    // Its file would be nest/image/100w.webp, as one of the first run's is.
    let clash = to("nest/image", recipe(vec![step("100w", Does::Image(spec))]), &photo);
    let clash = submitted(&studio, clash).await;

    assert_eq!(studio.failed(&clash).await.code, "invalid_prefix");
    let owners = async || studio.queue.entries("publication", None, 10).await.unwrap().len();
    studio.until(async || owners().await == 2).await;
    assert_eq!(hashes(blobs, "_published").await, told(&outer).into_iter().chain(told(&inner)).collect());
    studio.close().await;
}

async fn what_a_killed_worker_left_half_copied_goes() {
    let public = tempfile::tempdir().unwrap();
    let url = public.path().display().to_string();
    let studio = Studio::tuned(|shop| shop.published = Published::in_place(&url, &shop.blobs).unwrap()).await;
    let folder = public.path().join("u42/image");
    std::fs::create_dir_all(&folder).unwrap();
    let (ours, theirs) = (folder.join("100w.webp#123"), folder.join("notes#123"));
    for staged in [&ours, &theirs] {
        std::fs::write(staged, "half").unwrap();
    }

    succeeds(&studio, to("u42", pictures(&[100]), &photo(&studio, "photo.jpg"))).await;

    assert!(!ours.exists() && theirs.exists());
    studio.close().await;
}

async fn borrowed_outputs_are_published_too() {
    let studio = Studio::open().await;
    let photo = photo(&studio, "photo.jpg");
    let first = succeeds(&studio, to("a", pictures(&[100]), &photo)).await;

    let second = succeeds(&studio, to("b", pictures(&[100]), &photo)).await;

    let kinds = studio.kinds_of(&second.id).await;
    assert_eq!(kinds, ["publish", "ingest"]);
    let found = hashes(&studio.shop.blobs, "_published").await;
    assert_eq!(found, told(&first).into_iter().chain(told(&second)).collect());
    studio.close().await;
}

async fn tenants_publish_apart() {
    let studio = Studio::open().await;
    let photo = photo(&studio, "photo.jpg");
    let of = |tenant: &str| Submission { tenant: tenant.into(), ..to(PREFIX, pictures(&[100]), &photo) };

    let mut found = BTreeMap::new();
    for (tenant, folder) in [("acme", "acme"), ("../acme", "x-2e2e2f61636d65")] {
        let run = succeeds(&studio, of(tenant)).await;
        let below = hashes(&studio.shop.blobs, &format!("_published/{folder}/u42/images/m7")).await;
        assert_eq!(told(&run), below);
        found.extend(below);
    }

    assert_eq!(hashes(&studio.shop.blobs, "_published").await, found, "neither replaced the other's");
    studio.close().await;
}

async fn a_place_that_is_away_is_told_and_tried_again() {
    let server = S3Server::start();
    let studio = Studio::with(server.open("store"), |_| ()).await;
    let publishing = Pausable::Kind("publish".into());
    studio.queue.pause(&publishing).await.unwrap();

    let run = submitted(&studio, to(PREFIX, pictures(&[100]), &photo(&studio, "photo.jpg"))).await;
    studio
        .until(async || publish_job(&studio, &run).await.is_some_and(|job| job.state == JobState::Pending))
        .await;
    server.kill();
    studio.queue.resume(&publishing).await.unwrap();
    let failure = studio.failed(&run).await;
    assert_eq!((failure.step.as_str(), failure.retryable), ("publish", true), "{failure:?}");
    assert_eq!(failure.code, "storage_unavailable", "{failure:?}");
    server.launch();

    let run = succeeded(&studio, &run).await;
    assert_eq!(told(&run), hashes(&server.open(""), "store/_published").await);
    studio.close().await;
}

async fn publish_job(studio: &Studio, run: &RunId) -> Option<Job> {
    let filter = JobFilter { run: Some(run.clone()), kind: Some("publish".into()), ..JobFilter::default() };
    studio.queue.list(&filter, Page::first(1)).await.unwrap().data.pop()
}

/// Whether its publication had to wait for another.
async fn has_waited(studio: &Studio, run: &RunId) -> bool {
    let Some(job) = publish_job(studio, run).await else { return false };
    let attempts = studio.queue.attempts(job.id).await.unwrap();
    attempts.iter().any(|attempt| attempt.outcome == AttemptOutcome::Snoozed)
}

/// The bucket of a server that lets everybody in.
fn everything(server: &S3Server) -> Blobs {
    Blobs::open_with(&format!("s3://{BUCKET}"), &unsigned_options_for(server.port)).unwrap()
}

async fn two_that_publish_at_once_do_so_one_after_the_other() {
    let server = S3Server::start_open();
    let gate = Gate::before(server.port, "/_published/u42/hls/master.m3u8");
    // What is held at the gate is asked for again.
    let through = StoreOptions { idle_timeout: Duration::from_secs(2), ..unsigned_options_for(gate.port) };
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}/store"), &through).unwrap();
    let studio = Studio::with(blobs, |_| ()).await;
    let first = submitted(&studio, to("u42", recipe(vec![hls()]), &film(&studio))).await;
    gate.reached().await;

    let second = submitted(&studio, to("u42", pictures(&[100]), &photo(&studio, "other.jpg"))).await;
    studio.until(async || has_waited(&studio, &second).await).await;
    gate.open();
    succeeded(&studio, &first).await;
    let second = succeeded(&studio, &second).await;

    assert_eq!(told(&second), hashes(&everything(&server), "store/_published").await);
    studio.close().await;
}

/// The segments are there, the playlists are not, and then the power fails.
async fn a_worker_killed_between_two_copies_changes_nothing() {
    let server = S3Server::start_open();
    let gate = Gate::before(server.port, "/_published/u42/videos/m7/hls/master.m3u8");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let place = Place {
        database: format!("sqlite:{}", at("queue.db").display()),
        store: format!("s3://{BUCKET}/store"),
        variables: unsigned_options_for(gate.port).variables,
        scratch: at("scratch"),
        inputs: at("inputs"),
        log: at("log"),
    };
    std::fs::create_dir(&place.inputs).unwrap();
    let film = place.inputs.join("film.mp4");
    clips::film(3, &film);
    let queue = telecine_queue::open(&place.database).await.unwrap();
    let blobs = Blobs::open_with(&place.store, &unsigned_options_for(server.port)).unwrap();

    let worker = Worker::start(&place);
    let steps: Vec<Step> = vec![hls()];
    let run = submit(&*queue, to(PREFIX, recipe(steps), &film)).await.unwrap().run;
    gate.reached().await;
    let half = hashes(&blobs, "_published").await;
    worker.kill();
    gate.open();
    let worker = Worker::start(&place);
    let until = std::time::Instant::now() + Duration::from_secs(300);
    while queue.get_run(&run).await.unwrap().unwrap().finished_at.is_none() {
        assert!(std::time::Instant::now() < until, "{}", std::fs::read_to_string(&place.log).unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    worker.leave();

    let ended = describe(&*queue, &run).await.unwrap().unwrap();
    assert_eq!(ended.status, RunState::Succeeded, "{:?}", ended.error);
    let told: BTreeMap<String, String> =
        told(&ended).into_iter().map(|(key, hash)| (key.replacen("store/", "", 1), hash)).collect();
    assert!(half.len() < told.len() && half.keys().all(|key| told.contains_key(key)));
    assert!(
        half.keys().any(|key| key.ends_with(".m4s")) && !half.keys().any(|key| key.ends_with("master.m3u8"))
    );
    assert_eq!(hashes(&blobs, "_published").await, told);
    let filter = JobFilter { run: Some(run), kind: Some("publish".into()), ..JobFilter::default() };
    let job = queue.list(&filter, Page::first(1)).await.unwrap().data.remove(0);
    assert_eq!((job.state, job.lost), (JobState::Completed, 1));
    queue.close().await;
}
