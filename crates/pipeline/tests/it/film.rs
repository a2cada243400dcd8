//! A film from its file to its playlists.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use telecine_media::{Ladder, VideoSpec};
use telecine_pipeline::{Blobs, Does, Recipe, Step};
use telecine_queue::testing::{Faults, faulty};
use telecine_queue::{JobFilter, JobState, Page, Pausable, RunState};

use crate::clips;
use crate::studio::{Studio, hls, recipe, step, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("film::a_file_becomes_a_film_that_plays".into(), a_file_becomes_a_film_that_plays),
        trial("film::a_source_that_fits_is_copied".into(), a_source_that_fits_is_copied),
        trial(
            "film::an_mp4_alone_is_joined_from_its_own_segments".into(),
            an_mp4_alone_is_joined_from_its_own_segments,
        ),
        trial(
            "film::what_cannot_be_copied_is_playable_once_encoded".into(),
            what_cannot_be_copied_is_playable_once_encoded,
        ),
        trial("film::sound_alone_becomes_a_stream".into(), sound_alone_becomes_a_stream),
        trial("film::a_range_reads_no_more_than_its_own_records".into(), a_range_reads_its_own_records),
    ]
}

async fn a_file_becomes_a_film_that_plays() {
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    clips::film(5, &file);
    let mp4 = Step {
        name: "mp4".into(),
        does: Does::Mp4(VideoSpec::default()),
        needs: vec!["hls".into()],
        ..hls()
    };

    let run = studio.submit(&recipe(vec![hls(), mp4]), &file).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    assert_eq!(frames(&studio.main_file(&run, "hls").await), [125, 125]);
    assert_eq!(frames(&studio.main_file(&run, "mp4").await), [125]);
    studio.close().await;
}

/// What a whole type of records comes to grows with the film; what is read by name does not.
async fn a_range_reads_its_own_records() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("queue.db").display());
    let faults = Faults::new().refuse("records", 1);
    let queue = faulty(telecine_queue::open(&database).await.unwrap(), &faults);
    let blobs = Blobs::in_folder(&folder.path().join("store")).unwrap();
    let scratch = folder.path().join("scratch");
    let studio = Studio::arranged(queue, blobs, folder, &scratch, |_| ()).await;
    studio.queue.pause(&Pausable::Kind("package".into())).await.unwrap();
    let file = studio.file("film.mp4");
    clips::film(5, &file);

    let run = studio.submit(&recipe(vec![hls()]), &file).await;
    let filter = JobFilter { run: Some(run), kind: Some("package".into()), ..JobFilter::default() };
    studio
        .until(async || {
            let listed = studio.queue.list(&filter, Page::first(1)).await.unwrap().data;
            listed.first().is_some_and(|job| job.state == JobState::Pending)
        })
        .await;

    assert_eq!(faults.injected("records"), 0);
    studio.close().await;
}

async fn a_source_that_fits_is_copied() {
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    let picture = ["-f", "lavfi", "-i", "smptebars=size=320x180:rate=25:duration=5"];
    let sound = ["-f", "lavfi", "-i", "sine=frequency=440:duration=5:sample_rate=48000"];
    let gop = ["-g", "50", "-bf", "0"];
    clips::ffmpeg(&[&picture[..], &sound, clips::X264, &gop, clips::AAC].concat(), &file);
    let spec = VideoSpec { ladder: Ladder::Heights(vec![180]), ..VideoSpec::default() };

    let run = studio.submit(&recipe(vec![step("hls", Does::Hls(spec))]), &file).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    assert_eq!(frames(&studio.main_file(&run, "hls").await), [125]);
    let kinds = studio.kinds_of(&run).await;
    assert!(kinds.contains(&"remux".to_owned()) && !kinds.contains(&"encode_range".to_owned()), "{kinds:?}");
    studio.close().await;
}

async fn an_mp4_alone_is_joined_from_its_own_segments() {
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    clips::film(3, &file);
    let spec = VideoSpec { ladder: Ladder::Heights(vec![120]), segment_seconds: 1, ..VideoSpec::default() };

    let run = studio.submit(&recipe(vec![step("mp4", Does::Mp4(spec))]), &file).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    assert_eq!(frames(&studio.main_file(&run, "mp4").await), [75]);
    studio.close().await;
}

async fn sound_alone_becomes_a_stream() {
    let studio = Studio::open().await;
    let file = studio.file("sound.m4a");
    clips::ffmpeg(
        &[&["-f", "lavfi", "-i", "sine=frequency=440:duration=5:sample_rate=48000"], clips::AAC].concat(),
        &file,
    );

    let run = studio.submit(&recipe(vec![hls()]), &file).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    let outputs = studio.outputs(&run).await;
    let sounds = outputs[0].files.iter().filter(|file| file.path.ends_with(".m4s")).count();
    assert_eq!(sounds, 5);
    studio.close().await;
}

/// Only its packets tell that a source with open groups of pictures cannot be cut where it is.
async fn what_cannot_be_copied_is_playable_once_encoded() {
    let studio = Studio::open().await;
    let file = studio.file("open.mp4");
    let picture = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=4"];
    let sound = ["-f", "lavfi", "-i", "aevalsrc=0.1*sin(880*PI*t)|0.1*sin(660*PI*t):s=48000:d=4:c=stereo"];
    let open = [
        "-c:v",
        "libx264",
        "-crf",
        "38",
        "-pix_fmt",
        "yuv420p",
        "-x264-params",
        "open-gop=1:keyint=25:min-keyint=25:scenecut=0",
    ];
    clips::ffmpeg(&[&picture[..], &sound, &open, clips::AAC].concat(), &file);
    let text = "[steps.film]\nkind = \"hls\"\nwith = { ladder = { heights = [180] }, segment_seconds = 1 }\n";
    let recipe = Recipe::parse("test", "test.toml", text).unwrap();

    let run = studio.submit(&recipe, &file).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    let filter = JobFilter { run: Some(run.clone()), ..JobFilter::default() };
    let jobs = studio.queue.list(&filter, Page::first(100)).await.unwrap().data;
    let of = |kind: &str| jobs.iter().filter(|job| job.kind == kind).collect::<Vec<_>>();
    assert_eq!((of("remux").len(), of("encode_audio").len()), (1, 1), "{jobs:#?}");
    assert!(of("encode_range").len() > 1, "{jobs:#?}");
    let first = jobs.iter().find(|job| job.payload["range"]["start"] == 0).unwrap();
    let told_at = of("playable")[0].finished_at.unwrap();
    assert!(told_at >= first.finished_at.unwrap() && told_at >= of("encode_audio")[0].finished_at.unwrap());
    studio.close().await;
}

/// How many frames a player finds in each video stream.
pub(crate) fn frames(file: &Path) -> Vec<u32> {
    let done = Command::new("ffprobe")
        .args(["-v", "error", "-allowed_extensions", "ALL", "-count_frames", "-select_streams", "v"])
        .args(["-show_entries", "stream=index,nb_read_frames", "-of", "csv=p=0"])
        .arg(file)
        .output()
        .unwrap();
    // Streams of a master playlist are listed once more with their programme.
    let text = String::from_utf8(done.stdout).unwrap();
    let streams: BTreeSet<&str> =
        text.lines().map(|line| line.trim_matches(',')).filter(|line| !line.is_empty()).collect();
    streams.iter().map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect()
}
