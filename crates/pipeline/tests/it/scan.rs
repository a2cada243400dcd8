//! What is read and published of inputs that a real clamd looks at first.

mod odd_clamd;
mod way_round;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use libtest_mimic::Trial;
use telecine_pipeline::records::{ToolsRecord, read_all};
use telecine_pipeline::{
    Blobs, Clamd, Input, NoSubmission, Recipe, Recipes, RunRequest, ScanPolicy, Scanned, UnscannedPolicy,
    Verdict, Workshop, describe, retry,
};
use telecine_queue::{RunId, RunState};
use tokio::io::AsyncWriteExt;

use crate::clamd_server::{ClamdServer, FOUND, STREAM_MB, eicar};
use crate::clips;
use crate::s3_server::S3Server;
use crate::sources::{picture, put_upload, sha256};
use crate::studio::{Studio, images, trial};
use crate::sweep::sweep;
use odd_clamd::{odd_clamd, take_all};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("scan::an_infected_input_is_quarantined_and_never_read".into(), infected_is_quarantined),
        trial(
            "scan::an_infected_upload_serves_no_second_run".into(),
            an_infected_upload_serves_no_second_run,
        ),
        trial("scan::a_file_that_is_not_ours_stays_where_it_is".into(), a_file_of_others_stays),
        trial("scan::a_clean_input_goes_on_after_its_scan".into(), a_clean_input_goes_on),
        trial("scan::a_scanner_that_is_away_is_waited_for".into(), a_scanner_that_is_away_is_waited_for),
        trial("scan::an_optional_scan_is_done_without".into(), an_optional_scan_is_done_without),
        trial("scan::what_is_too_large_is_unscanned_under_each_policy".into(), unscanned_under_each_policy),
        trial("scan::a_scanner_that_stalls_is_left_in_time".into(), a_scanner_that_stalls_is_left),
        trial("scan::what_is_no_verdict_is_not_taken_for_one".into(), what_is_no_verdict),
        trial("scan::archives_are_looked_into_and_nothing_is_clean".into(), archives_and_nothing),
        trial("scan::a_required_scan_needs_a_scanner".into(), a_required_scan_needs_a_scanner),
        trial("scan::outputs_are_borrowed_only_behind_a_scan".into(), borrowed_only_behind_a_scan),
        trial("scan::quarantine_ends".into(), quarantine_ends),
    ];
    trials.extend(way_round::trials());
    trials
}

fn scanned_by(clamd: Clamd) -> impl FnOnce(&mut Workshop) {
    move |shop| {
        shop.scanning.clamd = Some(clamd);
        shop.scanning.scan = ScanPolicy::Required;
    }
}

/// A picture that would be processed if nobody looked at it.
fn infected_picture() -> Vec<u8> {
    [picture(), eicar()].concat()
}

async fn uploaded(studio: &Studio, id: &str, bytes: &[u8]) -> Input {
    put_upload(&studio.shop.blobs, id, bytes, &sha256(bytes)).await;
    Input::Upload(id.into())
}

async fn run_of(studio: &Studio, recipe: &Recipe, input: Input) -> (RunId, RunState) {
    let run = studio.submit_input(recipe, input).await;
    let state = studio.ended(&run).await.state;
    (run, state)
}

/// The code and step of the run's error, and what its document says of the scan.
async fn refusal(studio: &Studio, run: &RunId) -> (String, String, Option<String>) {
    let document = describe(&*studio.queue, run).await.unwrap().unwrap();
    let error = document.error.expect("it has failed");
    (error.code, error.step, document.input.scan)
}

async fn infected_is_quarantined() {
    let (server, clamd) = (S3Server::start(), ClamdServer::start());
    let folder = tempfile::tempdir().unwrap();
    for blobs in [server.open("store"), Blobs::in_folder(folder.path()).unwrap()] {
        let studio = Studio::with(blobs.clone(), scanned_by(clamd.by_unix())).await;
        let infected = infected_picture();
        let input = uploaded(&studio, "evil", &infected).await;

        let (run, state) = run_of(&studio, &images(160), input).await;

        assert_eq!(state, RunState::Failed);
        let (code, step, scan) = refusal(&studio, &run).await;
        assert_eq!((code.as_str(), step.as_str(), scan.as_deref()), ("infected", "scan", Some("infected")));
        let failures = studio.failures(&run).await;
        assert!(!failures[0].retryable && failures[0].message.contains(FOUND), "{failures:?}");
        let programs = read_all::<ToolsRecord>(&*studio.queue, &run).await.unwrap();
        assert!(programs.is_empty(), "nothing may read it: {programs:?}");
        assert!(studio.outputs(&run).await.is_empty());
        let mut kept = blobs.list("_quarantine").await.unwrap();
        kept.sort();
        assert_eq!(kept, [format!("_quarantine/_/{run}"), format!("_quarantine/_/{run}.json")]);
        assert_eq!(blobs.get_bytes(&kept[0]).await.unwrap(), infected);
        let note: serde_json::Value =
            serde_json::from_slice(&blobs.get_bytes(&kept[1]).await.unwrap()).unwrap();
        assert_eq!((&note["signature"], &note["sha256"]), (&FOUND.into(), &sha256(&infected).into()));
        assert_eq!(blobs.list(&format!("_/{run}")).await.unwrap(), Vec::<String>::new());
        assert_eq!(blobs.list("_uploads").await.unwrap(), ["_uploads/_/evil.json"]);
        let sources = studio.shop.scratch.root().join("sources");
        let cached = std::fs::read_dir(sources).map_or(0, Iterator::count);
        assert_eq!(cached, 0, "no copy is left in scratch");
        studio.close().await;
    }
}

async fn an_infected_upload_serves_no_second_run() {
    let clamd = ClamdServer::start();
    let studio = Studio::tuned(scanned_by(clamd.by_tcp())).await;
    let input = uploaded(&studio, "evil", &infected_picture()).await;
    let (first, _) = run_of(&studio, &images(160), input.clone()).await;

    let (second, state) = run_of(&studio, &images(160), input.clone()).await;
    let asked = RunRequest::new("image", input);
    let refused = asked.into_submission("", &Recipes::built_in(), &studio.shop).await.unwrap_err();
    retry(&*studio.queue, &first, &[]).await.unwrap();
    let again = studio.ended(&first).await;

    assert_eq!(state, RunState::Failed);
    assert_eq!(studio.failures(&second).await[0].code, "infected");
    let NoSubmission::Impossible(faults) = refused else { panic!("{refused:?}") };
    assert_eq!((faults[0].path.as_str(), faults[0].code.as_str()), ("input.upload", "infected"));
    assert_eq!((again.state, refusal(&studio, &first).await.0.as_str()), (RunState::Failed, "infected"));
    assert_eq!(studio.shop.blobs.list("_quarantine").await.unwrap().len(), 2);
    studio.close().await;
}

async fn a_file_of_others_stays() {
    let clamd = ClamdServer::start();
    let studio = Studio::tuned(scanned_by(clamd.by_unix())).await;
    let file = studio.file("evil.png");
    std::fs::write(&file, infected_picture()).unwrap();

    for _ in 0..2 {
        let (run, state) = run_of(&studio, &images(160), Input::Path(file.clone())).await;
        assert_eq!((state, refusal(&studio, &run).await.0.as_str()), (RunState::Failed, "infected"));
    }

    assert!(file.exists());
    // What the runs had copied of it is out of everybody's way.
    assert_eq!(studio.shop.blobs.list("_quarantine").await.unwrap().len(), 4);
    assert_eq!(studio.shop.blobs.list("_").await.unwrap(), Vec::<String>::new());
    studio.close().await;
}

async fn a_clean_input_goes_on() {
    let clamd = ClamdServer::start();
    for clamd in [clamd.by_unix(), clamd.by_tcp()] {
        let studio = Studio::tuned(scanned_by(clamd)).await;
        let input = uploaded(&studio, "good", &picture()).await;

        let (run, state) = run_of(&studio, &images(160), input).await;

        assert_eq!(state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
        let mut kinds = studio.kinds_of(&run).await;
        kinds.reverse();
        assert_eq!(kinds, ["ingest", "scan", "plan", "image", "conclude"]);
        let document = describe(&*studio.queue, &run).await.unwrap().unwrap();
        assert_eq!((document.input.scan.as_deref(), document.warnings.len()), (Some("clean"), 0));
        let log = telecine_pipeline::run_log(&*studio.queue, &studio.ended(&run).await, true).await.unwrap();
        assert!(log.jobs[1].tools.is_empty() && log.jobs[2].probe.is_some(), "{log:?}");
        studio.close().await;
    }
}

async fn a_scanner_that_is_away_is_waited_for() {
    let mut clamd = ClamdServer::stopped("");
    let studio = Studio::tuned(scanned_by(clamd.by_unix())).await;
    let input = uploaded(&studio, "good", &picture()).await;

    let run = studio.submit_input(&images(160), input).await;
    let failure = studio.failed(&run).await;
    let kinds = studio.kinds_of(&run).await;
    clamd.go();
    let ended = studio.ended(&run).await;

    assert_eq!((failure.code.as_str(), failure.retryable), ("scan_unavailable", true));
    assert!(kinds.iter().all(|kind| ["ingest", "scan", "plan"].contains(&kind.as_str())), "{kinds:?}");
    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    studio.close().await;
}

async fn an_optional_scan_is_done_without() {
    let clamd = ClamdServer::stopped("");
    let studio = Studio::tuned(scanned_by(clamd.by_tcp())).await;
    let input = uploaded(&studio, "good", &picture()).await;

    let optional = Recipe { scan: Some(ScanPolicy::Optional), ..images(160) };
    let (run, state) = run_of(&studio, &optional, input.clone()).await;
    let off = Recipe { scan: Some(ScanPolicy::Off), ..images(200) };
    let (unasked, state_unasked) = run_of(&studio, &off, input).await;

    assert_eq!((state, state_unasked), (RunState::Succeeded, RunState::Succeeded));
    let warnings = studio.warnings(&run).await;
    assert_eq!((warnings[0].step.as_str(), warnings[0].code.as_str()), ("scan", "scan_unavailable"));
    let document = describe(&*studio.queue, &run).await.unwrap().unwrap();
    assert_eq!(document.input.scan.as_deref(), Some("unscanned"));
    assert!(studio.warnings(&unasked).await.is_empty());
    assert!(!studio.kinds_of(&unasked).await.contains(&"scan".to_owned()));
    studio.close().await;
}

/// Not sent at all; refused by clamd while it is sent; taken by clamd and not looked at.
async fn unscanned_under_each_policy() {
    let (plain, telling) = (ClamdServer::start(), ClamdServer::with("MaxFileSize 100K\nAlertExceedsMax yes"));
    let large = noise((STREAM_MB << 20) + 1);
    let medium = noise(200 << 10);
    let cases = [
        (Clamd { max_bytes: 1_000, ..plain.by_unix() }, picture()),
        (Clamd { max_bytes: 64 << 20, ..plain.by_unix() }, large.clone()),
        (Clamd { max_bytes: 64 << 20, ..plain.by_tcp() }, large),
        (telling.by_unix(), medium),
    ];
    for (nth, (clamd, picture)) in cases.into_iter().enumerate() {
        let studio = Studio::tuned(scanned_by(clamd)).await;
        let input = uploaded(&studio, "large", &picture).await;

        let (refused, state) = run_of(&studio, &images(160), input.clone()).await;
        let allowing = Recipe { unscanned: Some(UnscannedPolicy::Allow), ..images(160) };
        let (allowed, state_allowed) = run_of(&studio, &allowing, input).await;

        assert_eq!((state, state_allowed), (RunState::Failed, RunState::Succeeded), "{nth}");
        let (code, step, _) = refusal(&studio, &refused).await;
        assert_eq!((code.as_str(), step.as_str()), ("unscanned", "scan"), "{nth}");
        let warnings = studio.warnings(&allowed).await;
        assert_eq!((warnings.len(), warnings[0].code.as_str()), (1, "unscanned"), "{nth}: {warnings:?}");
        assert!(studio.shop.blobs.list("_quarantine").await.unwrap().is_empty());
        studio.close().await;
    }
}

/// A picture of at least so many bytes.
fn noise(bytes: u64) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noise.png");
    let source = format!("color=gray:size=1024x{},noise=alls=100:allf=t,format=rgb24", bytes / 2_048 + 1);
    clips::ffmpeg(&["-f", "lavfi", "-i", &source, "-frames:v", "1", "-compression_level", "0"], &file);
    let picture = std::fs::read(file).unwrap();
    assert!(picture.len() as u64 > bytes, "{}", picture.len());
    picture
}

/// Takes a connection and then nothing; takes all bytes and says nothing.
async fn a_scanner_that_stalls_is_left() {
    for takes_bytes in [false, true] {
        let stalling = odd_clamd(move |mut stream| async move {
            if takes_bytes {
                take_all(&mut stream).await;
            }
            std::future::pending::<()>().await;
        });
        let within = Duration::from_millis(300);
        let clamd = Clamd { within, max_bytes: 64 << 20, ..stalling.await };

        let began = Instant::now();
        let asked = scan_bytes(&clamd, &vec![0; 32 << 20]).await;

        let refused = asked.unwrap_err().to_string();
        assert!(refused.contains("gave no answer in 0.3 s"), "{refused}");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}

async fn what_is_no_verdict() {
    let answers: [&[u8]; 4] = [b"", b"stream: Can't allocate memory ERROR\0", b"OK\0", b"\xff\xff\0"];
    for answer in answers {
        let answering = odd_clamd(move |mut stream| async move {
            take_all(&mut stream).await;
            stream.write_all(answer).await.unwrap();
        });

        let asked = scan_bytes(&answering.await, b"harmless").await;

        assert!(asked.is_err(), "{asked:?}");
    }
}

async fn scan_bytes(clamd: &Clamd, bytes: &[u8]) -> Result<Scanned, telecine_pipeline::NoVerdict> {
    let mut sending = clamd.begin(None).await?;
    for part in bytes.chunks(64 << 10) {
        sending.push(part).await?;
    }
    sending.end().await
}

async fn archives_and_nothing() {
    let server = ClamdServer::start();
    let folder = tempfile::tempdir().unwrap();
    let zip = zipped(folder.path(), &eicar());

    let in_archive = scan_bytes(&server.by_unix(), &zip).await.unwrap();
    let nothing = scan_bytes(&server.by_unix(), b"").await.unwrap();
    let studio = Studio::tuned(scanned_by(server.by_unix())).await;
    let input = uploaded(&studio, "empty", b"").await;
    let (run, state) = run_of(&studio, &images(160), input).await;

    assert_eq!(in_archive.verdict, Verdict::Infected { signature: FOUND.into() });
    assert_eq!((in_archive.bytes, in_archive.sha256), (zip.len() as u64, sha256(&zip)));
    assert_eq!((nothing.verdict, nothing.bytes), (Verdict::Clean, 0));
    assert_eq!(state, RunState::Failed);
    assert_eq!(refusal(&studio, &run).await.1, "ingest.plan", "clean, and no picture");
    studio.close().await;
}

/// Compressed: the bytes themselves are nowhere in it.
fn zipped(folder: &Path, bytes: &[u8]) -> Vec<u8> {
    std::fs::write(folder.join("a.com"), [bytes, &[b' '; 200]].concat()).unwrap();
    let script = "import zipfile; zipfile.ZipFile('a.zip', 'w', zipfile.ZIP_DEFLATED).write('a.com')";
    let done = std::process::Command::new("python3").args(["-c", script]).current_dir(folder).status();
    assert!(done.unwrap().success());
    let zip = std::fs::read(folder.join("a.zip")).unwrap();
    assert!(!zip.windows(bytes.len()).any(|part| part == bytes));
    zip
}

async fn a_required_scan_needs_a_scanner() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = std::fs::File::create(folder.path().join("strict.toml")).unwrap();
    writeln!(file, "scan = \"required\"\nunscanned = \"allow\"\n[steps.image]\nkind = \"image\"").unwrap();
    let recipes = Recipes::load(Some(folder.path())).unwrap();
    let studio = Studio::open().await;
    let input = uploaded(&studio, "good", &picture()).await;

    let asked = RunRequest::new("strict", input.clone());
    let refused = asked.clone().into_submission("", &recipes, &studio.shop).await.unwrap_err();
    let strict = recipes.get("strict").unwrap().clone();
    let optional = Recipe { scan: Some(ScanPolicy::Optional), ..strict.clone() };
    let run = studio.submit_input(&strict, input).await;
    studio.until(async || studio.kinds_of(&run).await.contains(&"scan".to_owned())).await;

    let NoSubmission::Impossible(faults) = refused else { panic!("{refused:?}") };
    assert_eq!((faults[0].path.as_str(), faults[0].code.as_str()), ("recipe", "scan_unavailable"));
    assert!(faults[0].message.contains("clamd"), "{faults:?}");
    let settled = studio.shop.scanning.settled(optional).unwrap();
    assert_eq!(settled.scan, Some(ScanPolicy::Off), "nobody would ever do it");
    // Whoever goes past the check waits for a worker that has a scanner.
    assert!(studio.failures(&run).await.is_empty() && studio.outputs(&run).await.is_empty());
    studio.queue.cancel_run(&run).await.unwrap();
    studio.close().await;

    let clamd = ClamdServer::start();
    let studio = Studio::tuned(|shop| {
        shop.scanning.clamd = Some(clamd.by_unix());
        shop.scanning.scan = ScanPolicy::Optional;
    })
    .await;
    let input = uploaded(&studio, "good", &picture()).await;
    let settled = |recipe: &'static str, input: Input| {
        let (studio, recipes) = (&studio, &recipes);
        async move {
            let asked = RunRequest::new(recipe, input);
            let submission = asked.into_submission("", recipes, &studio.shop).await.unwrap();
            (submission.recipe.scan, submission.recipe.unscanned)
        }
    };
    let strict = settled("strict", input.clone()).await;
    assert_eq!(strict, (Some(ScanPolicy::Required), Some(UnscannedPolicy::Allow)));
    assert_eq!(settled("image", input).await, (Some(ScanPolicy::Optional), Some(UnscannedPolicy::Refuse)));
    studio.close().await;
}

async fn borrowed_only_behind_a_scan() {
    let mut clamd = ClamdServer::stopped("");
    let studio = Studio::tuned(scanned_by(clamd.by_unix())).await;
    let input = uploaded(&studio, "good", &picture()).await;
    let off = Recipe { scan: Some(ScanPolicy::Off), ..images(160) };
    let (owner, state) = run_of(&studio, &off, input.clone()).await;
    assert_eq!(state, RunState::Succeeded);

    let run = studio.submit_input(&images(160), input).await;
    let failure = studio.failed(&run).await;
    let before = studio.outputs(&run).await;
    clamd.go();
    let ended = studio.ended(&run).await;

    assert_eq!((failure.code.as_str(), before.len()), ("scan_unavailable", 0));
    assert_eq!(ended.state, RunState::Succeeded);
    let document = describe(&*studio.queue, &run).await.unwrap().unwrap();
    assert_eq!(document.input.scan.as_deref(), Some("clean"));
    let outputs = studio.outputs(&run).await;
    assert!(outputs[0].files[0].key.contains(&owner.to_string()), "it has borrowed: {outputs:?}");
    studio.close().await;
}

async fn quarantine_ends() {
    let clamd = ClamdServer::start();
    let studio = Studio::tuned(|shop| {
        scanned_by(clamd.by_unix())(shop);
        shop.keep_quarantine = Duration::from_hours(1);
    })
    .await;
    let blobs = studio.shop.blobs.clone();
    let input = uploaded(&studio, "evil", &eicar()).await;
    run_of(&studio, &images(160), input).await;
    let old = ["_quarantine/_/old", "_quarantine/_/old.json"];
    for key in old {
        blobs.put_bytes(key, Bytes::from_static(b"{}")).await.unwrap();
    }
    let file = std::fs::File::options().write(true).open(blobs.local_path(old[1]).unwrap()).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_hours(2)).unwrap();

    let swept = sweep(&studio).await;

    assert_eq!(swept["quarantined"], 1, "{swept}");
    let kept = blobs.list("_quarantine").await.unwrap();
    assert_eq!(kept.len(), 2, "the young one stays: {kept:?}");
    assert!(old.iter().all(|key| !kept.contains(&(*key).to_owned())));
    studio.close().await;
}
