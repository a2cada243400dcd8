//! No way leads round a scan.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use telecine_media::{Confinement, Toolbox};
use telecine_pipeline::records::{ToolsRecord, read_all};
use telecine_pipeline::{
    Clamd, Input, Recipe, ScanPolicy, Scratch, Submission, UnscannedPolicy, Workshop, kinds, look_ahead,
    retry, submit,
};
use telecine_queue::{JobFilter, JobState, Page, RunId, RunState, Runtime, WorkerOptions};
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

use super::odd_clamd::{odd_clamd, take_all};
use super::{infected_picture, refusal, run_of, scan_bytes, scanned_by, uploaded};
use crate::clamd_server::ClamdServer;
use crate::clips;
use crate::s3_server::S3Server;
use crate::sources::picture;
use crate::studio::{Studio, images, trial};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("scan::a_retry_of_the_plan_alone_reads_nothing".into(), a_retry_of_the_plan_alone),
        trial("scan::a_plan_waits_for_a_scan_that_was_cancelled".into(), a_plan_waits_for_a_cancelled_scan),
        trial("scan::what_was_scanned_is_what_is_read".into(), what_was_scanned_is_what_is_read),
        trial("scan::a_look_ahead_sees_what_was_scanned".into(), a_look_ahead_sees_what_was_scanned),
        trial("scan::an_early_ok_is_no_verdict".into(), an_early_ok_is_no_verdict),
        trial("scan::a_worker_without_a_scanner_leaves_scans_to_others".into(), scans_are_left_to_others),
        trial("scan::a_scanner_that_hangs_holds_up_scans_alone".into(), a_scanner_that_hangs),
        trial("scan::a_file_that_gets_no_verdict_is_unscanned".into(), no_verdict_is_unscanned),
        trial("scan::no_worker_keeps_what_was_not_scanned".into(), no_worker_keeps_what_was_not_scanned),
    ]
}

/// Nothing was started to read it, and nothing made of it.
async fn is_unread(studio: &Studio, run: &RunId) {
    let programs = read_all::<ToolsRecord>(&*studio.queue, run).await.unwrap();
    assert!(programs.is_empty() && studio.outputs(run).await.is_empty(), "{programs:?}");
}

/// By its step, and as a job.
async fn a_retry_of_the_plan_alone() {
    let clamd = ClamdServer::start();
    let (infected, too_large) = (infected_picture(), picture());
    for (bytes, max_bytes, code) in [(infected, 1 << 20, "infected"), (too_large, 100, "unscanned")] {
        let studio = Studio::tuned(scanned_by(Clamd { max_bytes, ..clamd.by_unix() })).await;
        let file = studio.file("evil.png");
        std::fs::write(&file, &bytes).unwrap();
        for input in [Input::Path(file), uploaded(&studio, "evil", &bytes).await] {
            let (run, _) = run_of(&studio, &images(160), input).await;

            retry(&*studio.queue, &run, &["ingest.plan".into()]).await.unwrap();
            let by_step = studio.ended(&run).await.state;
            let of_run =
                JobFilter { run: Some(run.clone()), kind: Some("plan".into()), ..JobFilter::default() };
            let plan = studio.queue.list(&of_run, Page::first(1)).await.unwrap().data.remove(0);
            studio.queue.retry(plan.id).await.unwrap();
            let by_job = studio.ended(&run).await.state;

            assert_eq!((by_step, by_job), (RunState::Failed, RunState::Failed), "{code}");
            let failures = studio.failures(&run).await;
            assert!(failures.iter().all(|failure| failure.code == code), "{failures:?}");
            assert!(failures.iter().any(|failure| failure.step == "ingest.plan"), "{failures:?}");
            is_unread(&studio, &run).await;
        }
        studio.close().await;
    }
}

async fn a_plan_waits_for_a_cancelled_scan() {
    let mut clamd = ClamdServer::stopped("");
    let studio = Studio::tuned(scanned_by(clamd.by_unix())).await;
    let input = uploaded(&studio, "evil", &infected_picture()).await;
    let run = studio.submit_input(&images(160), input).await;
    studio.failed(&run).await;
    studio.queue.cancel_run(&run).await.unwrap();
    studio.ended(&run).await;
    clamd.go();

    retry(&*studio.queue, &run, &["ingest.plan".into()]).await.unwrap();
    let ended = studio.ended(&run).await;

    assert_eq!((ended.state, refusal(&studio, &run).await.0.as_str()), (RunState::Failed, "infected"));
    is_unread(&studio, &run).await;
    studio.close().await;
}

/// Two pictures of one length: what is written over the other leaves no trace but its bytes.
fn lookalikes() -> [Vec<u8>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let drawn = |source: &str| {
        let file = folder.path().join("picture.png");
        clips::ffmpeg(&["-f", "lavfi", "-i", source, "-frames:v", "1"], &file);
        std::fs::read(file).unwrap()
    };
    let mut both = [drawn("testsrc2=size=320x180"), drawn("mandelbrot=size=640x480")];
    let longest = both.iter().map(Vec::len).max().unwrap();
    both.iter_mut().for_each(|picture| picture.resize(longest, 0));
    both
}

/// As whoever may write to the folder can: in place, and with the time that it had.
fn write_over(file: &Path, bytes: &[u8]) {
    let time = file.metadata().unwrap().modified().unwrap();
    std::fs::write(file, bytes).unwrap();
    File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
}

async fn what_was_scanned_is_what_is_read() {
    let clamd = ClamdServer::start();
    let studio = Studio::tuned(scanned_by(clamd.by_unix())).await;
    let ([scanned, other], file) = (lookalikes(), studio.file("drop.png"));
    std::fs::write(&file, scanned).unwrap();
    let (run, state) = run_of(&studio, &images(160), Input::Path(file.clone())).await;
    let before = studio.outputs(&run).await;

    write_over(&file, &other);
    retry(&*studio.queue, &run, &["image".into()]).await.unwrap();
    let again = studio.ended(&run).await.state;
    std::fs::remove_file(&file).unwrap();
    retry(&*studio.queue, &run, &["image".into()]).await.unwrap();
    let without = studio.ended(&run).await.state;

    assert_eq!([state, again, without], [RunState::Succeeded; 3], "{:?}", studio.failures(&run).await);
    assert_eq!(studio.outputs(&run).await[0].files, before[0].files);
    studio.close().await;
}

/// It is written over while the scanner looks at it.
async fn a_look_ahead_sees_what_was_scanned() {
    let ([scanned, other], folder) = (lookalikes(), tempfile::tempdir().unwrap());
    let file = folder.path().canonicalize().unwrap().join("drop.png");
    std::fs::write(&file, scanned).unwrap();
    let written = file.clone();
    let clamd = odd_clamd(move |mut stream| {
        let (file, other) = (written.clone(), other.clone());
        async move {
            take_all(&mut stream).await;
            write_over(&file, &other);
            stream.write_all(b"stream: OK\0").await.unwrap();
        }
    })
    .await;
    let studio = Studio::tuned(|shop| {
        scanned_by(clamd)(shop);
        shop.input_folders.push(folder.path().canonicalize().unwrap());
    })
    .await;

    let cancel = CancellationToken::new();
    let input = Input::Path(file);
    let seen = Box::pin(look_ahead(&studio.shop, "", &images(160), &input, &cancel)).await.unwrap();

    let probe = seen.probe.unwrap();
    assert_eq!(probe.video().map(|video| (video.width, video.height)), Some((320, 180)));
    studio.close().await;
}

async fn an_early_ok_is_no_verdict() {
    let hasty = odd_clamd(|mut stream| async move {
        use tokio::io::AsyncReadExt;
        stream.read_exact(&mut [0; 100]).await.unwrap();
        stream.write_all(b"stream: OK\0").await.unwrap();
    });
    let double = odd_clamd(|mut stream| async move {
        take_all(&mut stream).await;
        stream.write_all(b"stream: OK\0stream: Eicar FOUND\0").await.unwrap();
    });
    let (hasty, double) = (Clamd { max_bytes: 64 << 20, ..hasty.await }, double.await);

    // More than a connection holds, and less: then all of it is sent before anybody notices.
    for bytes in [8 << 20, 100 << 10] {
        let asked = scan_bytes(&hasty, &vec![0; bytes]).await;
        assert!(asked.is_err(), "{asked:?}");
    }
    let asked = scan_bytes(&double, b"harmless").await;
    assert!(asked.is_err(), "{asked:?}");
}

async fn scans_are_left_to_others() {
    let clamd = ClamdServer::start();
    let studio = Studio::open().await;
    let input = uploaded(&studio, "evil", &infected_picture()).await;
    let optional = Recipe { scan: Some(ScanPolicy::Optional), ..images(160) };

    let run = studio.submit_input(&optional, input).await;
    let scan = JobFilter { run: Some(run.clone()), kind: Some("scan".into()), ..JobFilter::default() };
    let scans = async || studio.queue.list(&scan, Page::first(1)).await.unwrap().data;
    studio.until(async || !scans().await.is_empty()).await;
    let toolbox = Toolbox::from_path(Confinement::launcher());
    let scratch = Scratch::open(&studio.file("other-scratch")).unwrap();
    let mut other = Workshop::new(Arc::clone(&studio.queue), toolbox, studio.shop.blobs.clone(), scratch);
    scanned_by(clamd.by_unix())(&mut other);
    let others = kinds::all(&Arc::new(other)).only(&["scan".into()]).unwrap();
    let before = scans().await.remove(0);
    let other = Runtime::start(Arc::clone(&studio.queue), others, WorkerOptions::default()).await.unwrap();
    let ended = studio.ended(&run).await;

    assert_eq!((before.state, before.attempt), (JobState::Pending, 0), "nobody can do it yet");
    assert_eq!((ended.state, refusal(&studio, &run).await.0.as_str()), (RunState::Failed, "infected"));
    other.drain();
    other.finished().await;
    studio.close().await;
}

async fn a_scanner_that_hangs() {
    let stuck = odd_clamd(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let studio = Studio::tuned(scanned_by(Clamd { within: Duration::from_hours(1), ..stuck })).await;
    let input = uploaded(&studio, "good", &picture()).await;
    // More than there are slots of a lane.
    for _ in 0..6 {
        studio.submit_input(&images(160), input.clone()).await;
    }
    let running =
        JobFilter { kind: Some("scan".into()), states: vec![JobState::Running], ..JobFilter::default() };
    studio.until(async || studio.queue.list(&running, Page::first(9)).await.unwrap().data.len() == 2).await;

    let off = Recipe { scan: Some(ScanPolicy::Off), ..images(160) };
    let published = Submission { publish_to: Some("u1/m1".into()), ..Submission::new(off, input) };
    let run = submit(&*studio.queue, published).await.unwrap().run;

    assert_eq!(studio.ended(&run).await.state, RunState::Succeeded);
    studio.close().await;

    // One that does not even answer PING is left long before a scan may take.
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = telecine_pipeline::ClamdAddress::Tcp(deaf.local_addr().unwrap().to_string());
    let began = Instant::now();
    let asked = scan_bytes(&Clamd { within: Duration::from_hours(1), ..Clamd::at(address) }, b"x").await;
    assert!(asked.is_err() && began.elapsed() < Duration::from_mins(2), "{asked:?}");
}

/// It is there, and hangs up on this one file. Who can do without a scanner cannot do without a verdict.
async fn no_verdict_is_unscanned() {
    let choking = odd_clamd(|mut stream| async move { take_all(&mut stream).await }).await;
    let studio = Studio::tuned(scanned_by(choking)).await;
    let input = uploaded(&studio, "evil", &infected_picture()).await;
    let optional = Recipe { scan: Some(ScanPolicy::Optional), ..images(160) };

    let (refused, state) = run_of(&studio, &optional, input.clone()).await;
    let allowing = Recipe { unscanned: Some(UnscannedPolicy::Allow), ..optional };
    let (allowed, state_allowed) = run_of(&studio, &allowing, input).await;

    assert_eq!((state, state_allowed), (RunState::Failed, RunState::Succeeded));
    assert_eq!(refusal(&studio, &refused).await.0, "unscanned");
    assert_eq!(studio.warnings(&allowed).await[0].code, "unscanned");
    studio.close().await;
}

/// Whoever took it in keeps no copy: where it is scanned may be another worker, which cannot take that away.
async fn no_worker_keeps_what_was_not_scanned() {
    let (server, mut clamd) = (S3Server::start(), ClamdServer::stopped(""));
    let studio = Studio::with(server.open("store"), scanned_by(clamd.by_unix())).await;
    let kept = || {
        let sources = std::fs::read_dir(studio.shop.scratch.root().join("sources"));
        sources.map_or(0, Iterator::count)
    };
    let input = uploaded(&studio, "good", &picture()).await;

    let run = studio.submit_input(&images(160), input).await;
    studio.failed(&run).await;
    let before = kept();
    clamd.go();
    let ended = studio.ended(&run).await;

    assert_eq!((before, ended.state, kept()), (0, RunState::Succeeded, 1), "a clean one is kept");
    studio.close().await;
}
