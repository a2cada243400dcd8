//! What nobody will ask for goes, and nothing else: whatever happens at the same moment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::{Value, json};
use sha2::Digest;
use telecine_pipeline::records::{
    LIFETIME, LifetimeRecord, OutputRecord, RunRecord, read as read_record, read_all,
};
use telecine_pipeline::{
    Blobs, CompletedUpload, Deleted, Input, NoSubmission, Recipe, Recipes, RunRequest, Submission, Workshop,
    delete, describe, keys, kinds, retry, submit,
};
use telecine_queue::{
    JobFilter, JobState, NewJob, NewRecord, NewRun, Page, Pausable, Push, QueueError, RunId, RunState,
    Timestamp,
};

use crate::clips;
use crate::crash::files_below;
use crate::s3_server::S3Server;
use crate::studio::{Studio, hls, images, photo, recipe, trial};

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! all {
        ($($promise:ident),+ $(,)?) => { vec![$(trial(format!("sweep::{}", stringify!($promise)), $promise)),+] };
    }
    all![
        what_a_cancelled_run_left_goes_and_a_retry_is_refused,
        what_losers_left_in_a_succeeded_run_goes,
        an_input_that_was_no_media_goes,
        an_upload_that_a_run_waits_for_does_not_expire,
        an_upload_goes_as_a_whole_by_the_age_of_its_completion,
        an_upload_that_has_expired_is_no_input,
        segments_that_were_swept_away_are_made_again_by_a_retry,
        outputs_outlive_history_and_what_came_to_nothing_does_not,
        a_run_is_deleted_when_its_time_is_over,
        a_deletion_that_was_cut_short_is_ended,
        blobs_of_unknown_runs_go_after_a_while_in_a_folder,
        blobs_of_unknown_runs_go_after_a_while_in_a_bucket,
        blobs_that_somebody_borrows_stay_though_their_run_is_gone,
        in_a_store_of_several_databases_unknown_runs_stay,
        a_sweep_goes_on_where_the_last_one_stopped,
        a_retry_and_a_sweep_exclude_each_other,
        a_retry_that_races_with_sweeps_succeeds,
        borrowers_that_race_with_sweeps_have_whole_outputs,
    ]
}

/// A studio in which nothing that is not published is kept for a moment.
async fn impatient(arrange: impl FnOnce(&mut Workshop)) -> Studio {
    Studio::tuned(|shop| {
        shop.keep_unpublished = Duration::ZERO;
        arrange(shop);
    })
    .await
}

/// Sweeps, and says what it removed.
pub(crate) async fn sweep(studio: &Studio) -> Value {
    let job = NewJob::new("sweep", json!({})).lane("io");
    let pushed = studio.queue.push(vec![job.into()]).await.unwrap();
    let now = async || studio.queue.get(pushed[0].jobs[0]).await.unwrap().unwrap();
    studio
        .until(async || {
            let job = now().await;
            assert_ne!(job.state, JobState::Failed, "{:?}", job.error);
            assert_eq!(job.error, None);
            job.state == JobState::Completed
        })
        .await;
    now().await.result.unwrap()
}

async fn succeeds(studio: &Studio, recipe: &Recipe, file: &Path) -> RunId {
    let run = studio.submit(recipe, file).await;
    assert_succeeded(studio, &run).await;
    run
}

async fn assert_succeeded(studio: &Studio, run: &RunId) {
    let ended = studio.ended(run).await;
    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(run).await);
}

/// Every file of its outputs is there, as long as it was.
async fn assert_whole(studio: &Studio, run: &RunId) {
    let outputs = studio.outputs(run).await;
    assert!(!outputs.is_empty());
    for file in outputs.iter().flat_map(|output| &output.files) {
        let found = studio.shop.blobs.head(&file.key).await.unwrap();
        assert_eq!(found.map(|found| found.bytes), Some(file.bytes), "{}", file.key);
    }
}

/// What is stored beside the notes of sweeps.
fn stored(studio: &Studio) -> Vec<PathBuf> {
    let store = studio.file("store");
    files_below(&store).into_iter().filter(|file| !file.starts_with(store.join("_store"))).collect()
}

/// A film whose segments are stored and not packaged, and its run cancelled.
async fn cancelled_before_its_end(studio: &Studio) -> RunId {
    let file = studio.file("film.mp4");
    clips::film(3, &file);
    studio.queue.pause(&Pausable::Kind("package".into())).await.unwrap();
    let fresh = Submission { fresh: true, ..Submission::new(recipe(vec![hls()]), Input::Path(file)) };
    let run = submit(&*studio.queue, fresh).await.unwrap().run;
    let filter = JobFilter { run: Some(run.clone()), kind: Some("package".into()), ..JobFilter::default() };
    studio
        .until(async || {
            let listed = studio.queue.list(&filter, Page::first(1)).await.unwrap().data;
            listed.first().is_some_and(|job| job.state == JobState::Pending)
        })
        .await;
    studio.queue.cancel_run(&run).await.unwrap();
    studio.queue.resume(&Pausable::Kind("package".into())).await.unwrap();
    run
}

async fn what_a_cancelled_run_left_goes_and_a_retry_is_refused() {
    let studio = impatient(|_| ()).await;
    let run = cancelled_before_its_end(&studio).await;
    assert!(!stored(&studio).is_empty());

    sweep(&studio).await;

    assert_eq!(stored(&studio), Vec::<PathBuf>::new());
    let refused = retry(&*studio.queue, &run, &[]).await.unwrap_err();
    assert!(matches!(refused, QueueError::WrongRunState { .. }), "{refused}");
    assert!(refused.to_string().contains("submit the input again"), "{refused}");
    studio.close().await;
}

async fn what_losers_left_in_a_succeeded_run_goes() {
    let studio = impatient(|_| ()).await;
    let file = studio.file("film.mp4");
    clips::film(2, &file);
    let run = succeeds(&studio, &recipe(vec![hls()]), &file).await;
    let of_loser = format!("{}/hls/180p/00001-00000000.m4s", keys::of_run("", &run));
    studio.shop.blobs.put_bytes(&of_loser, "late".into()).await.unwrap();

    let swept = sweep(&studio).await;
    let again = sweep(&studio).await;

    assert_eq!((&swept["blobs"], &again["blobs"]), (&json!(1), &json!(0)));
    assert!(!studio.shop.blobs.exists(&of_loser).await.unwrap());
    assert_whole(&studio, &run).await;
    let lifetime: LifetimeRecord = read_record(&*studio.queue, &run, LIFETIME).await.unwrap().unwrap();
    assert!(lifetime.tidied_at.is_some() && lifetime.swept_since.is_none(), "{lifetime:?}");
    studio.close().await;
}

async fn an_input_that_was_no_media_goes() {
    let studio = impatient(|_| ()).await;
    let (upload, sidecar) = (keys::upload("", "notes").unwrap(), keys::upload_sidecar("", "notes").unwrap());
    let text = "these are notes, and no film";
    studio.shop.blobs.put_bytes(&upload, text.into()).await.unwrap();
    let said =
        CompletedUpload { bytes: text.len() as u64, sha256: sha256_of(text), name: None, infected: None };
    studio.shop.blobs.put_bytes(&sidecar, serde_json::to_vec(&said).unwrap().into()).await.unwrap();
    let run = studio.submit_input(&images(100), Input::Upload("notes".into())).await;
    assert_eq!(studio.ended(&run).await.state, RunState::Failed);
    let source = keys::source("", &run);
    assert!(studio.shop.blobs.exists(&source).await.unwrap(), "{:?}", studio.failures(&run).await);

    sweep(&studio).await;

    assert!(!studio.shop.blobs.exists(&source).await.unwrap());
    assert!(studio.shop.blobs.exists(&upload).await.unwrap(), "the upload has its own time");
    studio.close().await;
}

fn sha256_of(bytes: impl AsRef<[u8]>) -> String {
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A picture that was uploaded, and where its bytes and its sidecar lie.
async fn uploaded(studio: &Studio, id: &str) -> [String; 2] {
    let keys = [keys::upload("", id).unwrap(), keys::upload_sidecar("", id).unwrap()];
    let picture = std::fs::read(photo(studio)).unwrap();
    let said = CompletedUpload {
        bytes: picture.len() as u64,
        sha256: sha256_of(&picture),
        name: None,
        infected: None,
    };
    studio.shop.blobs.put_bytes(&keys[0], picture.into()).await.unwrap();
    studio.shop.blobs.put_bytes(&keys[1], serde_json::to_vec(&said).unwrap().into()).await.unwrap();
    keys
}

/// As if it had been stored so long ago that an upload has expired.
fn age(studio: &Studio, key: &str) {
    let path = studio.shop.blobs.local_path(key).unwrap();
    let long_ago = std::time::SystemTime::now() - studio.shop.keep_uploads - Duration::from_hours(1);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
}

async fn are_there(studio: &Studio, keys: &[String; 2]) -> [bool; 2] {
    let exists = async |key: &String| studio.shop.blobs.exists(key).await.unwrap();
    [exists(&keys[0]).await, exists(&keys[1]).await]
}

async fn an_upload_that_a_run_waits_for_does_not_expire() {
    let studio = Studio::tuned(|_| ()).await;
    let (wanted, unwanted) = (uploaded(&studio, "wanted").await, uploaded(&studio, "unwanted").await);
    studio.queue.pause(&Pausable::Kind("ingest".into())).await.unwrap();
    let run = studio.submit_input(&images(100), Input::Upload("wanted".into())).await;
    for key in wanted.iter().chain(&unwanted) {
        age(&studio, key);
    }

    sweep(&studio).await;

    assert_eq!(are_there(&studio, &unwanted).await, [false, false]);
    assert_eq!(are_there(&studio, &wanted).await, [true, true], "an accepted run waits for it");
    studio.queue.resume(&Pausable::Kind("ingest".into())).await.unwrap();
    assert_succeeded(&studio, &run).await;
    sweep(&studio).await;
    assert_eq!(are_there(&studio, &wanted).await, [false, false], "the run has its own copy");
    studio.close().await;
}

async fn an_upload_goes_as_a_whole_by_the_age_of_its_completion() {
    let studio = Studio::tuned(|_| ()).await;
    let (young, torn) = (uploaded(&studio, "young").await, uploaded(&studio, "torn").await);
    age(&studio, &young[0]);
    age(&studio, &torn[0]);
    // A removal that was cut short: nobody finds it, and its bytes are still there.
    studio.shop.blobs.delete(&torn[1]).await.unwrap();

    sweep(&studio).await;

    assert_eq!(are_there(&studio, &young).await, [true, true], "it was completed just now");
    assert_eq!(are_there(&studio, &torn).await, [false, false]);
    age(&studio, &young[1]);
    sweep(&studio).await;
    assert_eq!(are_there(&studio, &young).await, [false, false]);
    studio.close().await;
}

async fn an_upload_that_has_expired_is_no_input() {
    let studio = Studio::tuned(|_| ()).await;
    let keys = uploaded(&studio, "late").await;
    let recipes = Recipes::built_in();
    let asked = || {
        let input = Input::Upload("late".into());
        RunRequest::new("image", input).into_submission("", &recipes, &studio.shop)
    };
    assert!(asked().await.is_ok());

    keys.iter().for_each(|key| age(&studio, key));

    let refused = asked().await.unwrap_err();
    assert!(
        matches!(&refused, NoSubmission::Impossible(faults) if faults[0].path == "input.upload"),
        "{refused:?}"
    );
    studio.close().await;
}

async fn segments_that_were_swept_away_are_made_again_by_a_retry() {
    let shims = tempfile::tempdir().unwrap();
    let toolbox = crate::kinds::broken_ffmpeg(shims.path(), "*aac*");
    let studio = impatient(|shop| shop.toolbox = toolbox).await;
    let file = studio.file("film.mp4");
    clips::film(3, &file);
    let once = telecine_pipeline::Step { attempts: Some(1), ..hls() };
    let run = studio.submit(&recipe(vec![once]), &file).await;
    assert_eq!(studio.ended(&run).await.state, RunState::Failed);
    // The sound fails at once; the ranges go on and are stored.
    let ranges =
        JobFilter { run: Some(run.clone()), kind: Some("encode_range".into()), ..JobFilter::default() };
    let listed = studio.queue.list(&ranges, Page::first(10)).await.unwrap().data;
    assert!(listed.iter().all(|job| job.state == JobState::Completed), "{listed:?}");

    sweep(&studio).await;
    assert_eq!(stored(&studio), Vec::<PathBuf>::new());
    std::fs::remove_file(shims.path().join("broken")).unwrap();
    retry(&*studio.queue, &run, &[]).await.unwrap();

    assert_succeeded(&studio, &run).await;
    assert_whole(&studio, &run).await;
    studio.close().await;
}

async fn outputs_outlive_history_and_what_came_to_nothing_does_not() {
    let studio = impatient(|_| ()).await;
    let kept = succeeds(&studio, &images(160), &photo(&studio)).await;
    let notes = studio.file("notes.mp4");
    std::fs::write(&notes, "these are notes").unwrap();
    let nothing = studio.submit(&images(160), &notes).await;
    assert_eq!(studio.ended(&nothing).await.state, RunState::Failed);
    studio
        .until(async || {
            studio.queue.prune(Duration::ZERO).await.unwrap();
            studio.kinds_of(&kept).await.is_empty() && studio.kinds_of(&nothing).await.is_empty()
        })
        .await;
    assert!(studio.queue.get_run(&nothing).await.unwrap().is_some(), "its records keep it until a sweep");

    sweep(&studio).await;

    assert_eq!(studio.queue.get_run(&nothing).await.unwrap(), None);
    let document = describe(&*studio.queue, &kept).await.unwrap().unwrap();
    assert_eq!(document.status, RunState::Succeeded);
    assert_eq!(document.outputs.len(), 1);
    assert_whole(&studio, &kept).await;
    assert_eq!(delete(&*studio.queue, &studio.shop.blobs, &kept).await.unwrap(), Deleted::Gone);
    assert_eq!(stored(&studio), Vec::<PathBuf>::new());
    studio.close().await;
}

async fn a_run_is_deleted_when_its_time_is_over() {
    let studio = impatient(|shop| shop.keep_runs = Some(Duration::ZERO)).await;
    let run = succeeds(&studio, &images(160), &photo(&studio)).await;

    let swept = sweep(&studio).await;

    assert_eq!(swept["runs"], 1);
    assert_eq!(studio.queue.get_run(&run).await.unwrap(), None);
    assert_eq!(stored(&studio), Vec::<PathBuf>::new());
    studio.close().await;
}

async fn put_lifetime(studio: &Studio, run: &RunId, lifetime: &LifetimeRecord) {
    let json = serde_json::to_value(lifetime).unwrap();
    let record = NewRecord::new(LifetimeRecord::TYPE, LIFETIME, json);
    studio.queue.put_record(run, record, None).await.unwrap();
}

async fn a_deletion_that_was_cut_short_is_ended() {
    let studio = impatient(|_| ()).await;
    let file = photo(&studio);
    let (deleted, lent) =
        (succeeds(&studio, &images(160), &file).await, succeeds(&studio, &images(200), &file).await);
    let ended = LifetimeRecord { has_ended: true, ..LifetimeRecord::default() };
    put_lifetime(&studio, &deleted, &ended).await;
    // Who borrowed was stopped before it knew, and one is gone.
    let stopped = cancelled_before_its_end(&studio).await;
    let borrowers = [stopped.to_string(), RunId::new().to_string()].into();
    put_lifetime(&studio, &lent, &LifetimeRecord { borrowers, ..ended }).await;

    sweep(&studio).await;

    for gone in [&deleted, &lent] {
        assert_eq!(studio.queue.get_run(gone).await.unwrap(), None);
        assert!(studio.shop.blobs.list(&keys::of_run("", gone)).await.unwrap().is_empty());
    }
    studio.close().await;
}

async fn blobs_of_unknown_runs_go_after_a_while_in_a_folder() {
    let studio = impatient(|_| ()).await;
    blobs_of_unknown_runs_go(studio).await;
}

async fn blobs_of_unknown_runs_go_after_a_while_in_a_bucket() {
    let server = S3Server::start();
    let studio = Studio::with(server.open("store"), |shop| shop.keep_unpublished = Duration::ZERO).await;
    blobs_of_unknown_runs_go(studio).await;
}

async fn blobs_of_unknown_runs_go(studio: Studio) {
    kinds::schedule_sweeps(&studio.shop).await.unwrap();
    let known = succeeds(&studio, &images(160), &photo(&studio)).await;
    let blobs = &studio.shop.blobs;
    let mut unknown = Vec::new();
    for tenant in ["", "acme", "acme-2", "zoo/+"] {
        for _ in 0..3 {
            let key = keys::output(tenant, &RunId::new(), "hls", "master.m3u8");
            blobs.put_bytes(&key, "#EXTM3U".into()).await.unwrap();
            unknown.push(key);
        }
    }
    let not_ours = "acme/manual/readme.txt";
    blobs.put_bytes(not_ours, "mine".into()).await.unwrap();

    let first = sweep(&studio).await;
    for key in &unknown {
        assert!(blobs.exists(key).await.unwrap(), "seen for the first time: {key}");
    }
    let second = sweep(&studio).await;

    assert_eq!((&first["orphans"], &second["orphans"]), (&json!(0), &json!(unknown.len())));
    for key in &unknown {
        assert!(!blobs.exists(key).await.unwrap(), "{key}");
    }
    assert!(blobs.exists(not_ours).await.unwrap());
    assert_whole(&studio, &known).await;
    studio.close().await;
}

async fn blobs_that_somebody_borrows_stay_though_their_run_is_gone() {
    let studio = impatient(|_| ()).await;
    kinds::schedule_sweeps(&studio.shop).await.unwrap();
    let file = photo(&studio);
    let owner = succeeds(&studio, &images(160), &file).await;
    let borrower = succeeds(&studio, &images(160), &file).await;
    assert_eq!(studio.kinds_of(&borrower).await, ["ingest"], "it has borrowed");
    // Behind our back.
    studio.queue.delete_run(&owner).await.unwrap();

    for _ in 0..3 {
        sweep(&studio).await;
        assert_whole(&studio, &borrower).await;
    }
    delete(&*studio.queue, &studio.shop.blobs, &borrower).await.unwrap();
    sweep(&studio).await;

    assert!(studio.shop.blobs.list(&keys::of_run("", &owner)).await.unwrap().is_empty());
    studio.close().await;
}

async fn in_a_store_of_several_databases_unknown_runs_stay() {
    let studio = impatient(|_| ()).await;
    kinds::schedule_sweeps(&studio.shop).await.unwrap();
    let store = Blobs::in_folder(&studio.file("store")).unwrap();
    let other = Studio::with(store, |shop| shop.keep_unpublished = Duration::ZERO).await;
    kinds::schedule_sweeps(&other.shop).await.unwrap();
    let theirs = succeeds(&other, &images(160), &photo(&other)).await;
    let ours = succeeds(&studio, &images(160), &photo(&studio)).await;

    for _ in 0..3 {
        sweep(&studio).await;
        sweep(&other).await;
    }

    assert_whole(&other, &theirs).await;
    assert_whole(&studio, &ours).await;
    other.close().await;
    studio.close().await;
}

async fn a_sweep_goes_on_where_the_last_one_stopped() {
    let studio = impatient(|shop| {
        shop.sweep_pages = 1;
        shop.keep_runs = Some(Duration::ZERO);
    })
    .await;
    kinds::schedule_sweeps(&studio.shop).await.unwrap();
    // Runs that nobody runs, and folders of runs that nobody knows.
    let push = |_| Push::run(NewRun::new("test"), [NewJob::new("nobody", json!({})).lane("io")]);
    let pushed = studio.queue.push((0..450).map(push).collect()).await.unwrap();
    for run in pushed.iter().filter_map(|pushed| pushed.run.as_ref()) {
        studio.queue.cancel_run(run).await.unwrap();
    }
    for _ in 0..250 {
        let key = keys::output("acme", &RunId::new(), "hls", "master.m3u8");
        studio.shop.blobs.put_bytes(&key, "#EXTM3U".into()).await.unwrap();
    }

    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(sweep(&studio).await["runs"].as_u64().unwrap());
    }
    assert_eq!(runs, [200, 200, 50], "a page each");

    // The first sweep saw 200 folders and the second the rest; each then begins anew.
    let mut sweeps = 0;
    while !studio.shop.blobs.list("acme").await.unwrap().is_empty() {
        sweep(&studio).await;
        sweeps += 1;
        assert!(sweeps < 10, "{:?}", studio.shop.blobs.list("acme").await);
    }
    studio.close().await;
}

async fn a_retry_and_a_sweep_exclude_each_other() {
    let studio = impatient(|_| ()).await;
    let run = cancelled_before_its_end(&studio).await;
    let before = stored(&studio);

    put_lifetime(
        &studio,
        &run,
        &LifetimeRecord { swept_since: Some(Timestamp::now()), ..LifetimeRecord::default() },
    )
    .await;
    let refused = retry(&*studio.queue, &run, &[]).await.unwrap_err();
    put_lifetime(
        &studio,
        &run,
        &LifetimeRecord { retried_at: Some(Timestamp::now()), ..LifetimeRecord::default() },
    )
    .await;
    sweep(&studio).await;
    let kept = delete(&*studio.queue, &studio.shop.blobs, &run).await.unwrap_err();

    assert!(refused.to_string().contains("try again in a minute"), "{refused}");
    assert_eq!(stored(&studio), before, "somebody was about to retry it");
    assert_eq!(kept.code, "run_not_ended");
    let long_ago = Timestamp::from_ms(Timestamp::now().as_ms() - 3_600_000);
    let died = LifetimeRecord { swept_since: Some(long_ago), ..LifetimeRecord::default() };
    put_lifetime(&studio, &run, &died).await;
    retry(&*studio.queue, &run, &[]).await.expect("a sweep that died keeps nobody waiting for ever");
    assert_succeeded(&studio, &run).await;
    studio.close().await;
}

async fn a_retry_that_races_with_sweeps_succeeds() {
    let studio = impatient(|_| ()).await;
    let (mut retried, mut swept) = (0, 0);
    for round in 0..4 {
        let run = cancelled_before_its_end(&studio).await;

        let sweeping = async {
            // Now one is ahead and now the other.
            for _ in 0..round * 3 {
                tokio::task::yield_now().await;
            }
            sweep(&studio).await
        };
        let retrying = async {
            loop {
                match retry(&*studio.queue, &run, &[]).await {
                    Err(error) if error.to_string().contains("try again") => tokio::task::yield_now().await,
                    answer => break answer,
                }
            }
        };
        match tokio::join!(retrying, sweeping).0 {
            Ok(_) => {
                assert_succeeded(&studio, &run).await;
                assert_whole(&studio, &run).await;
                retried += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("submit the input again"), "{error}");
                swept += 1;
            }
        }
    }
    assert_eq!(retried + swept, 4);
    studio.close().await;
}

async fn borrowers_that_race_with_sweeps_have_whole_outputs() {
    let studio = impatient(|shop| shop.keep_runs = Some(Duration::ZERO)).await;
    let file = photo(&studio);
    for _ in 0..6 {
        succeeds(&studio, &images(160), &file).await;

        let borrowing = async {
            let run = studio.submit(&images(160), &file).await;
            let ended = studio.ended(&run).await;
            (run, ended.state)
        };
        let ((borrower, state), _) = tokio::join!(borrowing, sweep(&studio));

        assert_eq!(state, RunState::Succeeded, "{:?}", studio.failures(&borrower).await);
        // The same sweep may have come to the borrower, whose time is over at once, too.
        if studio.queue.get_run(&borrower).await.unwrap().is_some() {
            assert_whole(&studio, &borrower).await;
        }
        sweep(&studio).await;
        assert_eq!(read_all::<OutputRecord>(&*studio.queue, &borrower).await.unwrap(), []);
        assert_eq!(stored(&studio), Vec::<PathBuf>::new());
    }
    studio.close().await;
}
