//! The database and the store are brought together again, and nothing that anybody needs is touched on the way.

mod places;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::Trial;
use telecine_pipeline::records::StoredFile;
use telecine_pipeline::{
    Blobs, Finding, Input, News, Outcome, Recipe, ReconcileOptions, Submission, Tally, Trouble, forget, keys,
    kinds, reconcile, submit,
};
use telecine_queue::{JobFilter, JobState, Page, Pausable, RunId, RunState};
use tokio_util::sync::CancellationToken;

use crate::clips;
use crate::postgres_server::PostgresServer;
use crate::s3_server::S3Server;
use crate::studio::{Studio, hls, images, photo, recipe, trial};
use crate::sweep::sweep;
use places::{
    copies_under_keys_of_the_caller_are_made_again,
    files_of_a_run_that_came_to_nothing_are_found_where_an_earlier_one_published,
    what_an_unknown_run_published_is_found_and_goes_after_a_while,
};

/// Of those who are at work, too.
const ANY_AGE: Duration = Duration::ZERO;
const LOOK: ReconcileOptions = ReconcileOptions {
    mend: false,
    deep: false,
    claim_store: false,
    unfinished_older_than: Duration::from_hours(1),
};
const MEND: ReconcileOptions = ReconcileOptions { mend: true, ..LOOK };
const DEEP: ReconcileOptions = ReconcileOptions { deep: true, ..MEND };

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    macro_rules! all {
        ($($promise:ident),+ $(,)?) => {
            vec![$(trial(format!("reconcile::{}", stringify!($promise)), $promise)),+]
        };
    }
    let mut trials = all![
        a_tidy_store_is_left_as_it_is,
        what_nobody_owns_is_told_of_and_removed_in_a_folder,
        what_nobody_owns_is_told_of_and_removed_in_a_bucket,
        what_is_young_waits,
        what_was_kept_on_purpose_stays,
        in_a_store_of_several_databases_unknown_runs_are_nobodys,
        a_file_that_was_cut_is_made_again,
        other_bytes_are_found_by_reading,
        a_picture_that_is_gone_is_made_again_alone,
        what_cannot_be_made_again_is_told,
        a_run_at_work_is_left_alone,
        a_borrower_waits_for_its_owner,
        a_borrower_whose_owner_is_gone_makes_its_own,
        two_at_once_start_a_run_over_once,
        copies_under_keys_of_the_caller_are_made_again,
        files_of_a_run_that_came_to_nothing_are_found_where_an_earlier_one_published,
        what_an_unknown_run_published_is_found_and_goes_after_a_while,
        a_copy_of_the_database_leaves_what_it_does_not_know,
    ];
    let server = server.clone();
    trials.push(trial("reconcile::a_missing_segment_is_made_again_on_sqlite".into(), || async {
        let studio = Studio::open().await;
        a_missing_segment_is_made_again(studio).await;
    }));
    trials.push(trial(
        "reconcile::a_missing_segment_is_made_again_on_postgres_and_s3".into(),
        move || async move {
            let bucket = S3Server::start();
            let folder = tempfile::tempdir().unwrap();
            let queue = telecine_queue::open(&server.new_database()).await.unwrap();
            let scratch = folder.path().join("scratch");
            let studio = Studio::arranged(queue, bucket.open("store"), folder, &scratch, |_| ()).await;
            a_missing_segment_is_made_again(studio).await;
        },
    ));
    trials
}

/// A studio in which nothing that is not published is young, and whose store knows its database.
async fn settled(blobs: Option<Blobs>) -> Studio {
    let studio = match blobs {
        Some(blobs) => Studio::with(blobs, |shop| shop.keep_unpublished = Duration::ZERO).await,
        None => Studio::tuned(|shop| shop.keep_unpublished = Duration::ZERO).await,
    };
    kinds::schedule_sweeps(&studio.shop).await.unwrap();
    studio
}

async fn look(studio: &Studio, options: ReconcileOptions) -> (Vec<Finding>, Tally) {
    let mut findings = Vec::new();
    let tell = &mut |news: News<'_>| {
        if let News::Found(finding) = news {
            findings.push(finding);
        }
    };
    let tally = reconcile(&studio.shop, options, &CancellationToken::new(), tell).await.unwrap();
    (findings, tally)
}

fn told(findings: &[Finding]) -> Vec<(Trouble, &str, Outcome)> {
    let mut told: Vec<_> = findings.iter().map(|it| (it.trouble, it.at.as_str(), it.outcome)).collect();
    told.sort_by_key(|(_, at, _)| *at);
    told
}

fn film(studio: &Studio) -> PathBuf {
    let file = studio.file("film.mp4");
    clips::film(3, &file);
    file
}

async fn succeeds(studio: &Studio, recipe: &Recipe, file: &Path) -> RunId {
    let run = studio.submit(recipe, file).await;
    assert_succeeded(studio, &run, 1).await;
    run
}

async fn assert_succeeded(studio: &Studio, run: &RunId, generation: u32) {
    let ended = studio.ended(run).await;
    assert_eq!(
        (ended.state, ended.generation),
        (RunState::Succeeded, generation),
        "{:?}",
        studio.failures(run).await
    );
}

async fn files(studio: &Studio, run: &RunId) -> Vec<StoredFile> {
    studio.outputs(run).await.into_iter().flat_map(|output| output.files).collect()
}

/// What each file of the outputs has for bytes.
async fn contents(studio: &Studio, run: &RunId) -> BTreeMap<String, Vec<u8>> {
    let mut contents = BTreeMap::new();
    for file in files(studio, run).await {
        let bytes = studio.shop.blobs.get_bytes(&file.key).await.unwrap();
        assert_eq!(bytes.len() as u64, file.bytes, "{}", file.key);
        contents.insert(file.key, bytes.to_vec());
    }
    assert!(!contents.is_empty());
    contents
}

async fn a_segment(studio: &Studio, run: &RunId) -> StoredFile {
    files(studio, run).await.into_iter().find(|file| file.path.starts_with("180p/00001-")).unwrap()
}

async fn a_tidy_store_is_left_as_it_is() {
    let studio = settled(None).await;
    let run = succeeds(&studio, &images(160), &photo(&studio)).await;
    let before = contents(&studio, &run).await;

    let (findings, tally) = look(&studio, DEEP).await;

    assert_eq!(findings, []);
    assert_eq!((tally.runs, tally.folders, tally.cache_entries), (1, 1, 1));
    assert!(tally.is_clean() && tally.left_out.is_empty(), "{tally:?}");
    assert_eq!(contents(&studio, &run).await, before);
    assert_succeeded(&studio, &run, 1).await;
    studio.close().await;
}

async fn what_nobody_owns_is_told_of_and_removed_in_a_folder() {
    let studio = settled(None).await;
    // A put that was cut short.
    let staged = studio.file("store/_/half#123");
    std::fs::create_dir_all(staged.parent().unwrap()).unwrap();
    std::fs::write(&staged, "half").unwrap();
    let unfinished = what_nobody_owns_is_told_of_and_removed(&studio).await;

    assert_eq!(unfinished, [Outcome::Mendable, Outcome::Mended]);
    assert!(!staged.exists());
    studio.close().await;
}

async fn what_nobody_owns_is_told_of_and_removed_in_a_bucket() {
    let server = S3Server::start();
    let studio = settled(Some(server.open("store"))).await;

    let unfinished = what_nobody_owns_is_told_of_and_removed(&studio).await;

    assert_eq!(unfinished, [], "this server does not list them");
    let (_, tally) = look(&studio, LOOK).await;
    assert!(tally.left_out.iter().any(|why| why.contains("lifecycle")), "{tally:?}");
    studio.close().await;
}

/// One of each sort; says what became of puts that never ended.
async fn what_nobody_owns_is_told_of_and_removed(studio: &Studio) -> Vec<Outcome> {
    let blobs = &studio.shop.blobs;
    let known = succeeds(studio, &images(160), &photo(studio)).await;
    let before = contents(studio, &known).await;
    let unknown = keys::of_run("acme", &RunId::new());
    blobs.put_bytes(&format!("{unknown}/hls/master.m3u8"), "#EXTM3U".into()).await.unwrap();
    // What is unknown stays the first time, whatever the age of its blobs: the database may just have been restored.
    let (first, tally) = look(studio, MEND).await;
    assert_eq!(told(&first), [(Trouble::Orphan, unknown.as_str(), Outcome::Waits)]);
    assert!(tally.is_clean() && blobs.exists(&format!("{unknown}/hls/master.m3u8")).await.unwrap());
    let late = format!("{}/image/late.jpg", keys::of_run("", &known));
    blobs.put_bytes(&late, "late".into()).await.unwrap();
    let entry = format!("_cache/_/{}.json", "ab".repeat(32));
    blobs.put_bytes(&entry, format!("{{\"run\":\"{}\"}}", RunId::new()).into()).await.unwrap();
    let not_ours = "acme/manual/readme.txt";
    blobs.put_bytes(not_ours, "mine".into()).await.unwrap();

    let mut unfinished = Vec::new();
    for (options, outcome) in [(LOOK, Outcome::Mendable), (MEND, Outcome::Mended)] {
        let options = ReconcileOptions { unfinished_older_than: ANY_AGE, ..options };
        let (mut findings, tally) = look(studio, options).await;

        unfinished
            .extend(findings.iter().filter(|it| it.trouble == Trouble::Unfinished).map(|it| it.outcome));
        findings.retain(|it| it.trouble != Trouble::Unfinished);
        let mut expected = vec![
            (Trouble::Orphan, unknown.as_str(), outcome),
            (Trouble::Leftover, known.as_str(), outcome),
            (Trouble::StaleCache, entry.as_str(), outcome),
        ];
        expected.sort_by_key(|(_, at, _)| *at);
        assert_eq!(told(&findings), expected);
        assert_eq!(tally.is_clean(), options.mend, "{tally:?}");
        for gone in [&format!("{unknown}/hls/master.m3u8"), &late, &entry] {
            assert_eq!(blobs.exists(gone).await.unwrap(), !options.mend, "{gone}");
        }
    }

    assert!(blobs.exists(not_ours).await.unwrap());
    assert_eq!(contents(studio, &known).await, before);
    assert_eq!(look(studio, LOOK).await.0, []);
    unfinished
}

async fn what_is_young_waits() {
    let studio = Studio::open().await;
    kinds::schedule_sweeps(&studio.shop).await.unwrap();
    let known = succeeds(&studio, &images(160), &photo(&studio)).await;
    let unknown = keys::of_run("", &RunId::new());
    let key = format!("{unknown}/image/a.jpg");
    studio.shop.blobs.put_bytes(&key, "just now".into()).await.unwrap();
    let late = format!("{}/image/late.jpg", keys::of_run("", &known));
    studio.shop.blobs.put_bytes(&late, "just now".into()).await.unwrap();

    let (findings, tally) = look(&studio, MEND).await;

    assert_eq!(told(&findings), [(Trouble::Orphan, unknown.as_str(), Outcome::Waits)]);
    assert!(tally.is_clean(), "{tally:?}");
    assert!(studio.shop.blobs.exists(&key).await.unwrap() && studio.shop.blobs.exists(&late).await.unwrap());
    studio.close().await;
}

async fn what_was_kept_on_purpose_stays() {
    let studio = settled(None).await;
    let run = succeeds(&studio, &images(160), &photo(&studio)).await;
    let before = contents(&studio, &run).await;
    forget(&*studio.queue, &studio.shop.blobs, &run).await.unwrap();
    assert_eq!(studio.queue.get_run(&run).await.unwrap(), None);

    let (findings, _) = look(&studio, MEND).await;

    assert_eq!(findings, []);
    for (key, bytes) in before {
        assert_eq!(studio.shop.blobs.get_bytes(&key).await.unwrap(), bytes);
    }
    studio.close().await;
}

async fn in_a_store_of_several_databases_unknown_runs_are_nobodys() {
    let studio = settled(None).await;
    let other = settled(Some(Blobs::in_folder(&studio.file("store")).unwrap())).await;
    let stranger = settled(Some(Blobs::in_folder(&studio.file("store")).unwrap())).await;
    let ours = succeeds(&studio, &images(160), &photo(&studio)).await;
    let theirs = succeeds(&other, &images(160), &photo(&other)).await;
    let before = (contents(&studio, &ours).await, contents(&other, &theirs).await);

    for asked in [&studio, &other, &stranger] {
        let (findings, tally) = look(asked, MEND).await;

        assert_eq!(findings, []);
        assert!(tally.left_out.iter().any(|why| why.contains("unknown runs")), "{tally:?}");
    }

    assert_eq!((contents(&studio, &ours).await, contents(&other, &theirs).await), before);
    for each in [studio, other, stranger] {
        each.close().await;
    }
}

async fn a_missing_segment_is_made_again(studio: Studio) {
    let run = succeeds(&studio, &recipe(vec![hls()]), &film(&studio)).await;
    let before = contents(&studio, &run).await;
    let segment = a_segment(&studio, &run).await;
    studio.shop.blobs.delete(&segment.key).await.unwrap();

    let (seen, _) = look(&studio, LOOK).await;
    assert_eq!(told(&seen), [(Trouble::Damaged, run.as_str(), Outcome::Mendable)]);
    assert!(seen[0].message.contains(&format!("1 missing: hls/{}", segment.path)), "{seen:?}");
    assert!(!studio.shop.blobs.exists(&segment.key).await.unwrap(), "a look changes nothing");
    let (mended, tally) = look(&studio, MEND).await;
    assert_eq!(told(&mended), [(Trouble::Damaged, run.as_str(), Outcome::Mended)]);
    assert!(tally.is_clean());

    assert_succeeded(&studio, &run, 2).await;
    assert_eq!(contents(&studio, &run).await, before, "the same files with the same bytes");
    // Only what was missing was encoded.
    let ranges =
        JobFilter { run: Some(run.clone()), kind: Some("encode_range".into()), ..JobFilter::default() };
    let listed = studio.queue.list(&ranges, Page::first(10)).await.unwrap().data;
    let encoded: u64 = listed.iter().filter_map(|job| job.result.as_ref()?["encoded"].as_u64()).sum();
    assert_eq!(encoded, 1, "{listed:?}");
    studio.close().await;
}

async fn a_file_that_was_cut_is_made_again() {
    let studio = settled(None).await;
    let run = succeeds(&studio, &recipe(vec![hls()]), &film(&studio)).await;
    let before = contents(&studio, &run).await;
    let segment = a_segment(&studio, &run).await;
    damage(&studio, &segment, |bytes| bytes.truncate(bytes.len() / 2));

    let (findings, _) = look(&studio, MEND).await;

    assert_eq!(told(&findings), [(Trouble::Damaged, run.as_str(), Outcome::Mended)]);
    assert!(findings[0].message.contains("1 of another size"), "{findings:?}");
    assert_succeeded(&studio, &run, 2).await;
    assert_eq!(contents(&studio, &run).await, before);
    studio.close().await;
}

/// Replaces the file, which scratch or others may have by another name.
fn damage(studio: &Studio, file: &StoredFile, change: impl FnOnce(&mut Vec<u8>)) {
    let path = studio.shop.blobs.local_path(&file.key).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
}

async fn other_bytes_are_found_by_reading() {
    let studio = settled(None).await;
    let run = succeeds(&studio, &recipe(vec![hls()]), &film(&studio)).await;
    let before = contents(&studio, &run).await;
    let segment = a_segment(&studio, &run).await;
    damage(&studio, &segment, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    });

    let (shallow, _) = look(&studio, MEND).await;
    let (deep, _) = look(&studio, DEEP).await;

    assert_eq!(shallow, []);
    assert!(deep[0].message.contains("1 of other bytes"), "{deep:?}");
    assert_succeeded(&studio, &run, 2).await;
    assert_eq!(contents(&studio, &run).await, before);
    studio.close().await;
}

async fn a_picture_that_is_gone_is_made_again_alone() {
    let studio = settled(None).await;
    let pictures = crate::studio::pictures();
    let run = succeeds(&studio, &recipe(vec![hls(), pictures]), &film(&studio)).await;
    let before = contents(&studio, &run).await;
    let poster = studio.outputs(&run).await.into_iter().find(|output| output.name == "poster").unwrap();
    studio.shop.blobs.delete(&poster.files[0].key).await.unwrap();

    let (findings, _) = look(&studio, MEND).await;

    assert!(findings[0].message.contains("of pictures started over"), "{findings:?}");
    assert_succeeded(&studio, &run, 2).await;
    let after = contents(&studio, &run).await;
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    let ranges =
        JobFilter { run: Some(run.clone()), kind: Some("encode_range".into()), ..JobFilter::default() };
    let listed = studio.queue.list(&ranges, Page::first(10)).await.unwrap().data;
    assert!(listed.iter().all(|job| job.generation == 1), "the film was left alone: {listed:?}");
    studio.close().await;
}

async fn what_cannot_be_made_again_is_told() {
    let studio = settled(None).await;
    let photo = photo(&studio);
    let (source_gone, forgotten) = (
        succeeds(&studio, &images(160), &photo).await,
        succeeds(&studio, &images(200), &film_frame(&studio)).await,
    );
    for run in [&source_gone, &forgotten] {
        let first = files(&studio, run).await.remove(0);
        studio.shop.blobs.delete(&first.key).await.unwrap();
    }
    studio
        .until(async || {
            studio.queue.prune(Duration::ZERO).await.unwrap();
            studio.kinds_of(&forgotten).await.is_empty()
        })
        .await;
    std::fs::remove_file(&photo).unwrap();

    for options in [LOOK, MEND] {
        let (findings, tally) = look(&studio, options).await;

        let mut expected = vec![
            (Trouble::Damaged, source_gone.as_str(), Outcome::Lost),
            (Trouble::Damaged, forgotten.as_str(), Outcome::Lost),
        ];
        expected.sort_by_key(|(_, at, _)| *at);
        assert_eq!(told(&findings), expected);
        assert!(findings.iter().all(|it| it.message.contains("submit the input again")), "{findings:?}");
        assert!(!tally.is_clean());
    }
    for run in [&source_gone, &forgotten] {
        assert_eq!(studio.ended(run).await.generation, 1, "nothing was started that cannot succeed");
    }
    studio.close().await;
}

fn film_frame(studio: &Studio) -> PathBuf {
    let file = studio.file("other.jpg");
    clips::ffmpeg(&["-f", "lavfi", "-i", "testsrc=size=640x480", "-frames:v", "1"], &file);
    file
}

async fn a_run_at_work_is_left_alone() {
    let studio = settled(None).await;
    studio.queue.pause(&Pausable::Kind("package".into())).await.unwrap();
    let run = studio.submit(&recipe(vec![hls()]), &film(&studio)).await;
    let package = JobFilter { run: Some(run.clone()), kind: Some("package".into()), ..JobFilter::default() };
    studio
        .until(async || {
            let listed = studio.queue.list(&package, Page::first(1)).await.unwrap().data;
            listed.first().is_some_and(|job| job.state == JobState::Pending)
        })
        .await;
    let before = studio.shop.blobs.list(&keys::of_run("", &run)).await.unwrap();

    let (findings, tally) = look(&studio, DEEP).await;

    assert!(!before.is_empty());
    assert_eq!((findings, tally.runs), (Vec::new(), 0));
    assert_eq!(studio.shop.blobs.list(&keys::of_run("", &run)).await.unwrap(), before);
    studio.queue.resume(&Pausable::Kind("package".into())).await.unwrap();
    assert_succeeded(&studio, &run, 1).await;
    studio.close().await;
}

async fn a_borrower_waits_for_its_owner() {
    let studio = settled(None).await;
    let photo = photo(&studio);
    let owner = succeeds(&studio, &images(160), &photo).await;
    let borrower = succeeds(&studio, &images(160), &photo).await;
    assert_eq!(studio.kinds_of(&borrower).await, ["ingest"], "it has borrowed");
    let first = files(&studio, &owner).await.remove(0);
    studio.shop.blobs.delete(&first.key).await.unwrap();

    let (findings, _) = look(&studio, MEND).await;

    let mut expected = vec![
        (Trouble::Damaged, owner.as_str(), Outcome::Mended),
        (Trouble::Damaged, borrower.as_str(), Outcome::Waits),
    ];
    expected.sort_by_key(|(_, at, _)| *at);
    assert_eq!(told(&findings), expected);
    assert_succeeded(&studio, &owner, 2).await;
    contents(&studio, &borrower).await;
    assert_eq!(look(&studio, LOOK).await.0, []);
    studio.close().await;
}

async fn a_borrower_whose_owner_is_gone_makes_its_own() {
    let studio = settled(None).await;
    let photo = photo(&studio);
    let owner = succeeds(&studio, &images(160), &photo).await;
    let borrower = succeeds(&studio, &images(160), &photo).await;
    let publisher = submit(&*studio.queue, to("u1", 160, &photo)).await.unwrap().run;
    assert_succeeded(&studio, &publisher, 1).await;
    // Behind our back, with all it had.
    studio.queue.delete_run(&owner).await.unwrap();
    let stored = studio.shop.blobs.list(&keys::of_run("", &owner)).await.unwrap();
    studio.shop.blobs.delete_all(stored).await.unwrap();

    let (findings, _) = look(&studio, MEND).await;

    assert!(
        told(&findings).contains(&(Trouble::Damaged, borrower.as_str(), Outcome::Mended)),
        "{findings:?}"
    );
    // One of them makes it, and the other may borrow that.
    let of_both = [&borrower, &publisher].map(|run| keys::of_run("", run));
    for run in [&borrower, &publisher] {
        assert_succeeded(&studio, run, 2).await;
        let made = contents(&studio, run).await;
        let is_new = |key: &String| of_both.iter().any(|of| key.starts_with(of));
        assert!(made.keys().all(is_new), "{:?}", made.keys());
    }
    studio.until(async || look(&studio, LOOK).await.0.is_empty()).await;
    studio.close().await;
}

/// A picture in one width under keys of the caller's.
fn to(prefix: &str, width: u32, photo: &Path) -> Submission {
    Submission {
        publish_to: Some(prefix.to_owned()),
        ..Submission::new(images(width), Input::Path(photo.to_owned()))
    }
}

async fn two_at_once_start_a_run_over_once() {
    let studio = settled(None).await;
    let photo = photo(&studio);
    let mut runs = Vec::new();
    for width in [100, 120, 140, 160] {
        let fresh = Submission { fresh: true, ..Submission::new(images(width), Input::Path(photo.clone())) };
        let run = submit(&*studio.queue, fresh).await.unwrap().run;
        assert_succeeded(&studio, &run, 1).await;
        let first = files(&studio, &run).await.remove(0);
        // Now it is gone and now it is another.
        match runs.len() % 2 {
            0 => studio.shop.blobs.delete(&first.key).await.unwrap(),
            _ => damage(&studio, &first, |bytes| bytes.truncate(10)),
        }
        runs.push(run);
    }
    let unknown = keys::of_run("", &RunId::new());
    studio.shop.blobs.put_bytes(&format!("{unknown}/a"), "a".into()).await.unwrap();
    sweep(&studio).await;

    let (one, other) = tokio::join!(look(&studio, MEND), look(&studio, MEND));

    let mended = |run: &RunId| {
        let both = one.0.iter().chain(&other.0);
        both.filter(|it| it.at == run.as_str() && it.outcome == Outcome::Mended).count()
    };
    for run in &runs {
        assert_eq!(mended(run), 1, "{one:?} {other:?}");
        assert_succeeded(&studio, run, 2).await;
        contents(&studio, run).await;
    }
    assert!(!studio.shop.blobs.exists(&format!("{unknown}/a")).await.unwrap());
    assert_eq!(look(&studio, LOOK).await.0, []);
    studio.close().await;
}

/// A restore drill on the live store: both are at work.
async fn a_copy_of_the_database_leaves_what_it_does_not_know() {
    let studio = settled(None).await;
    let photo = photo(&studio);
    let both = succeeds(&studio, &images(100), &photo).await;
    sweep(&studio).await;
    let copy = studio.file("copy.db");
    let here = format!("sqlite:{}", studio.file("queue.db").display());
    telecine_queue::backup(&here, &copy).await.unwrap();
    let queue = telecine_queue::open(&format!("sqlite:{}", copy.display())).await.unwrap();
    let store = Blobs::in_folder(&studio.file("store")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path().join("scratch");
    let twin =
        Studio::arranged(queue, store, folder, &scratch, |shop| shop.keep_unpublished = Duration::ZERO).await;
    let ours = succeeds(&studio, &images(120), &photo).await;
    let theirs = succeeds(&twin, &images(140), &crate::studio::photo(&twin)).await;
    let before = (contents(&studio, &ours).await, contents(&twin, &theirs).await);

    // Both have swept many times before a day is over, which is nought here.
    for each in [&studio, &twin] {
        sweep(each).await;
    }
    for each in [&studio, &twin, &studio, &twin] {
        sweep(each).await;
        sweep(each).await;
        look(each, MEND).await;
        look(each, MEND).await;
    }

    assert!((contents(&studio, &ours).await, contents(&twin, &theirs).await) == before);
    for each in [&studio, &twin] {
        let (_, tally) = look(each, MEND).await;
        assert!(tally.left_out.iter().any(|why| why.contains("--claim-store")), "{tally:?}");
    }
    // The drill is over, and its database gone.
    twin.close().await;
    let claim = ReconcileOptions { claim_store: true, ..MEND };
    let orphan = keys::of_run("", &theirs);
    for (options, outcome) in [(claim, Outcome::Waits), (MEND, Outcome::Mended)] {
        let (findings, _) = look(&studio, options).await;
        assert!(told(&findings).contains(&(Trouble::Orphan, orphan.as_str(), outcome)), "{findings:?}");
    }
    sweep(&studio).await;
    assert!(look(&studio, LOOK).await.1.left_out.is_empty());
    contents(&studio, &both).await;
    studio.close().await;
}
