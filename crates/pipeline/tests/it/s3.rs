//! Whole recipes in a bucket, on every S3 server there is here, with a network in between that does what networks do.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use telecine_pipeline::{Blobs, Recipe, Recipes, StoreOptions, keys};
use telecine_queue::{RunId, RunState};

use crate::clips;
use crate::s3_proxy::{Asked, Fault, S3Proxy};
use crate::s3_server::{BUCKET, S3Server, options_for};
use crate::studio::{Studio, trial};

/// More than is put with one request.
const LARGE: u64 = 18 << 20;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("s3::s3s_fs::recipes_give_the_same_bytes_through_faults".into(), || async {
            recipes_give_the_same_bytes_through_faults(S3Server::start()).await;
        }),
        trial("s3::s3s_fs::a_large_put_survives_faults_in_each_of_its_steps".into(), || async {
            // It takes seconds for each: the others are tried on the faster server.
            let faults = [FAULTS[0], Fault::CutRequest, Fault::LoseAnswer];
            a_large_put_survives_faults(S3Server::start(), &faults).await;
        }),
        trial("s3::s3s_fs::wrong_credentials_are_told_at_once".into(), || async {
            wrong_credentials_are_told_at_once(S3Server::start()).await;
        }),
    ];
    if !S3Server::has_versitygw() {
        eprintln!("versitygw is not installed: the tests on it are left out (scripts/fetch-versitygw)");
        return trials;
    }
    trials.extend([
        trial("s3::versitygw::recipes_give_the_same_bytes_through_faults".into(), || async {
            recipes_give_the_same_bytes_through_faults(S3Server::start_versitygw()).await;
        }),
        trial("s3::versitygw::a_large_put_survives_faults_in_each_of_its_steps".into(), || async {
            // S3 may begin to answer before it knows how it ends, and tell of an error in the body of a success.
            let faults = [&FAULTS[..], &[TOO_LATE]].concat();
            a_large_put_survives_faults(S3Server::start_versitygw(), &faults).await;
        }),
        trial("s3::versitygw::wrong_credentials_are_told_at_once".into(), || async {
            wrong_credentials_are_told_at_once(S3Server::start_versitygw()).await;
        }),
        trial("s3::versitygw::uploads_that_nobody_ended_are_listed_and_aborted".into(), || async {
            uploads_that_nobody_ended_are_listed_and_aborted(S3Server::start_versitygw()).await;
        }),
    ]);
    trials
}

/// Every third request meets the next of them.
const FAULTS: [Fault; 6] = [
    Fault::Refuse { status: 500, code: "InternalError" },
    Fault::Refuse { status: 503, code: "SlowDown" },
    Fault::Slow(Duration::from_millis(300)),
    Fault::CutRequest,
    Fault::LoseAnswer,
    Fault::CutAnswer,
];

/// Whether a request is the one that is meant.
type Meant = fn(&Asked) -> bool;

const TOO_LATE: Fault = Fault::Refuse { status: 200, code: "InternalError" };

fn every_third(asked: &Asked) -> Option<Fault> {
    (asked.number % 3 == 2).then(|| FAULTS[asked.number / 3 % FAULTS.len()])
}

/// As a worker has them: patient enough for a network that is only bad.
fn patient(port: u16) -> StoreOptions {
    let short = options_for(port, S3Server::SECRET);
    StoreOptions { variables: short.variables, ..StoreOptions::default() }
}

fn built_in(name: &str) -> Recipe {
    Recipes::built_in().get(name).unwrap().clone()
}

/// A film of a few seconds whose file is large.
fn large_film(path: &Path) {
    clips::film(3, path);
    let mut noise = vec![0; LARGE as usize];
    fastrand::Rng::with_seed(7).fill(&mut noise);
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(&u32::try_from(LARGE + 8).unwrap().to_be_bytes()).unwrap();
    file.write_all(b"free").unwrap();
    file.write_all(&noise).unwrap();
}

async fn succeeds(studio: &Studio, recipe: &str, file: &Path) -> RunId {
    let run = studio.submit(&built_in(recipe), file).await;
    let ended = studio.ended(&run).await;
    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    run
}

/// Every published file by step and path, with its bytes, read past the faults.
async fn published(studio: &Studio, store: &Blobs, run: &RunId) -> BTreeMap<String, Vec<u8>> {
    let mut published = BTreeMap::new();
    for output in studio.outputs(run).await {
        for file in output.files {
            let bytes = store.get_bytes(&file.key).await.unwrap();
            published.insert(format!("{}/{}", output.step, file.path), bytes.to_vec());
        }
    }
    published
}

async fn recipes_give_the_same_bytes_through_faults(server: S3Server) {
    let inputs = tempfile::tempdir().unwrap();
    let (film, photo) = (inputs.path().join("film.mp4"), inputs.path().join("photo.jpg"));
    large_film(&film);
    clips::ffmpeg(&["-f", "lavfi", "-i", "testsrc2=size=1600x1200", "-frames:v", "1"], &photo);
    let works = [("web-video", film.as_path()), ("image", photo.as_path())];
    let readable = |shop: &mut telecine_pipeline::Workshop| {
        shop.input_folders.push(inputs.path().canonicalize().unwrap());
    };
    let quiet = Studio::tuned(readable).await;
    let mut expected = Vec::new();
    for (recipe, file) in works {
        let run = succeeds(&quiet, recipe, file).await;
        expected.push(published(&quiet, &quiet.shop.blobs, &run).await);
    }
    quiet.close().await;

    let proxy = S3Proxy::before(server.port, every_third).await;
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}/store"), &patient(proxy.port)).unwrap();
    let studio = Studio::with(blobs, readable).await;
    let (store, mut owned) = (server.open("store"), Vec::new());
    for ((recipe, file), expected) in works.into_iter().zip(&expected) {
        let run = succeeds(&studio, recipe, file).await;

        let made = published(&studio, &store, &run).await;
        assert_eq!(made.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        let unlike: Vec<&String> =
            made.iter().filter(|(key, bytes)| expected[*key] != **bytes).map(|it| it.0).collect();
        assert_eq!(unlike, Vec::<&String>::new(), "the same bytes as without a network");
        owned.extend(made.into_keys().map(|path| format!("_/{run}/{path}")));
        owned.push(format!("_/{run}/source"));
    }

    for fault in FAULTS {
        assert!(proxy.happened(|asked| asked.fault == Some(fault)) > 0, "{fault:?} never happened");
    }
    let mut left: Vec<String> = store.list("").await.unwrap();
    left.retain(|key| !owned.contains(key) && !key.starts_with("_cache/") && !key.starts_with("_store/"));
    assert_eq!(left, Vec::<String>::new(), "nothing is left behind");
    assert_eq!(server.unfinished(), Vec::<String>::new());
    let faults = proxy.happened(|_| true);
    println!("{faults} of {} requests met a fault", proxy.asked().len());
    studio.close().await;
}

/// One fault in the beginning, in a part, and in the end of an upload.
async fn a_large_put_survives_faults(server: S3Server, faults: &[Fault]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let mut noise = vec![0; 17 << 20];
    fastrand::fill(&mut noise);
    std::fs::write(&file, &noise).unwrap();
    let steps: [(&str, Meant); 3] = [
        ("begin", |asked| asked.method == "POST" && asked.target.contains("uploads")),
        ("part", |asked| asked.method == "PUT" && asked.target.contains("partNumber=2")),
        ("end", |asked| asked.method == "POST" && asked.target.contains("uploadId=")),
    ];

    for (number, fault) in faults.iter().copied().enumerate() {
        let is_possible = |step: &str| fault != TOO_LATE || step == "end";
        for (step, is_meant) in steps.into_iter().filter(|(step, _)| is_possible(step)) {
            let done = std::sync::atomic::AtomicBool::new(false);
            let once = move |asked: &Asked| {
                let is_first = is_meant(asked) && !done.swap(true, std::sync::atomic::Ordering::SeqCst);
                is_first.then_some(fault)
            };
            let proxy = S3Proxy::before(server.port, once).await;
            let blobs = Blobs::open_with(&format!("s3://{BUCKET}"), &patient(proxy.port)).unwrap();
            let key = format!("{step}-{number}");

            let mut put = blobs.put_file(&key, &file).await;
            assert_eq!(proxy.happened(|_| true), 1, "{step} {fault:?}");
            if let Err(error) = &put {
                // Half of an answer is not asked for again by the client, but by whoever wanted to store something; and
                // s3s-fs has a refusal of its own for who ends an upload twice.
                assert!(matches!(fault, Fault::CutAnswer | Fault::LoseAnswer), "{step} {fault:?}: {error}");
                assert!(error.is_retryable(), "{step}: {error}");
                put = blobs.put_file(&key, &file).await;
            }

            put.unwrap_or_else(|error| panic!("{step} {fault:?}: {error}"));
            let stored = server.open("").get_bytes(&key).await.unwrap();
            assert!(stored == noise, "{step} {fault:?}");
        }
    }
    // An upload whose beginning was answered to nobody is known to nobody: a sweep, or a rule of the bucket, ends it.
    let begun_unheard = 2;
    assert!(server.unfinished().len() <= begun_unheard, "{:?}", server.unfinished());
}

async fn wrong_credentials_are_told_at_once(server: S3Server) {
    let proxy = S3Proxy::before(server.port, |_| None).await;
    let options = StoreOptions { ..options_for(proxy.port, "some-other-secret") };
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}"), &options).unwrap();
    let studio = Studio::with(blobs, |_| ()).await;
    clips::film(2, &studio.file("film.mp4"));

    let run = studio.submit(&built_in("web-video"), &studio.file("film.mp4")).await;
    let failure = studio.failed(&run).await;

    assert_eq!((failure.code.as_str(), failure.attempt), ("storage_denied", 1), "{failure:?}");
    assert!(failure.hint.contains("credentials"), "{failure:?}");
    let asked = proxy.asked();
    assert!(asked.len() <= 3, "what is refused is not asked for again: {asked:?}");
    assert_eq!(server.open("").list("").await.unwrap(), Vec::<String>::new());
    studio.queue.cancel_run(&run).await.unwrap();
    studio.close().await;
}

async fn uploads_that_nobody_ended_are_listed_and_aborted(server: S3Server) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let mut noise = vec![0; 17 << 20];
    fastrand::fill(&mut noise);
    std::fs::write(&file, &noise).unwrap();
    // Neither the end of an upload nor giving it up gets through.
    let never = |asked: &Asked| {
        let ends = asked.target.contains("uploadId=") && matches!(asked.method.as_str(), "POST" | "DELETE");
        ends.then_some(Fault::Refuse { status: 400, code: "InvalidRequest" })
    };
    let proxy = S3Proxy::before(server.port, never).await;
    let blobs = Blobs::open_with(&format!("s3://{BUCKET}/store"), &patient(proxy.port)).unwrap();
    let key = keys::source("", &RunId::new());
    blobs.put_file(&key, &file).await.unwrap_err();
    // Of somebody else who uses the bucket, also where all of it is the store.
    for key in ["backups/huge.tar", "_/run/source", "_elsewhere/x"] {
        blobs.put_file(key, &file).await.unwrap_err();
    }
    assert_eq!(server.unfinished().len(), 4);

    let store = server.open("store");
    let young = store.sweep_unfinished(Duration::from_hours(1)).await.unwrap();
    let elsewhere = server.open("other").sweep_unfinished(Duration::ZERO).await.unwrap();
    let aborted = store.sweep_unfinished(Duration::ZERO).await.unwrap();

    assert_eq!((young, elsewhere, aborted), (0, 0, 1));
    assert_eq!(server.unfinished().len(), 3);
}
