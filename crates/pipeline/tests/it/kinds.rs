//! The kinds that make one thing each, and what becomes of a run when one of them fails.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use libtest_mimic::Trial;
use telecine_media::{
    AudioCodec, AudioFormat, AudioSpec, Confinement, ImageSpec, ImageVariant, Program, Toolbox,
};
use telecine_pipeline::Does;
use telecine_queue::{JobState, Run, RunState};

use crate::clips;
use crate::studio::{Studio, hls, pictures, recipe, step, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("kinds::an_image_has_all_its_variants".into(), an_image_has_all_its_variants),
        trial("kinds::a_sound_has_its_renditions".into(), a_sound_has_its_renditions),
        trial("kinds::a_video_has_its_pictures".into(), a_video_has_its_pictures),
        trial(
            "kinds::a_poster_that_cannot_be_made_leaves_the_run_partial".into(),
            a_lost_poster_is_a_warning,
        ),
        trial(
            "kinds::sound_that_fails_fails_the_run_and_is_retried_alone".into(),
            lost_sound_fails_and_is_retried_alone,
        ),
        trial("kinds::what_is_no_media_fails_at_once_and_says_why".into(), no_media_fails_at_once),
    ]
}

async fn an_image_has_all_its_variants() {
    let studio = Studio::open().await;
    let file = studio.file("photo.jpg");
    clips::ffmpeg(&["-f", "lavfi", "-i", "testsrc2=size=640x480", "-frames:v", "1"], &file);
    let spec = ImageSpec { variants: [160, 320].map(ImageVariant::of_width).into(), ..ImageSpec::default() };

    let run = studio.submit(&recipe(vec![step("image", Does::Image(spec))]), &file).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    let outputs = studio.outputs(&run).await;
    let paths: Vec<&str> = outputs[0].files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["0-160x120.jpg", "0-160x120.webp", "1-320x240.jpg", "1-320x240.webp"]);
    assert!(outputs[0].facts["thumbhash"].is_string(), "{:?}", outputs[0].facts);
    studio.close().await;
}

async fn a_sound_has_its_renditions() {
    let studio = Studio::open().await;
    let file = studio.file("sound.wav");
    clips::ffmpeg(&["-f", "lavfi", "-i", "sine=frequency=440:duration=3:sample_rate=48000"], &file);
    let formats = [AudioCodec::Aac, AudioCodec::Mp3].map(|codec| AudioFormat { codec, kbits: 96 }).into();
    let spec = AudioSpec { formats, waveform_points_per_second: Some(10), ..AudioSpec::default() };

    let run = studio.submit(&recipe(vec![step("audio", Does::Audio(spec))]), &file).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    let output = &studio.outputs(&run).await[0];
    assert_eq!(output.files.len(), 3, "{:?}", output.files);
    assert!(
        (2_990_000..3_010_000).contains(&output.facts["duration_us"].as_u64().unwrap()),
        "{}",
        output.facts
    );
    studio.close().await;
}

async fn a_video_has_its_pictures() {
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    clips::film(4, &file);

    let run = studio.submit(&recipe(vec![pictures()]), &file).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    let mut names: Vec<String> = studio.outputs(&run).await.into_iter().map(|output| output.name).collect();
    names.sort();
    assert_eq!(names, ["frames", "poster", "preview", "scenes", "storyboard"]);
    studio.close().await;
}

/// ffmpeg, but for what a pattern of the shell says of its arguments: that fails like a broken encoder.
pub(crate) fn broken_ffmpeg(folder: &Path, pattern: &str) -> Toolbox {
    let path = folder.join("ffmpeg");
    let real = Toolbox::from_path(Confinement::None).path(Program::Ffmpeg).unwrap().display().to_string();
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in {pattern}) [ -e {} ] && {{ echo 'the encoder gave up' >&2; exit 1; }};; esac\nexec {real} \"$@\"\n",
        folder.join("broken").display()
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(folder.join("broken"), "").unwrap();
    Toolbox::from_path(Confinement::None).with(Program::Ffmpeg, path)
}

async fn a_lost_poster_is_a_warning() {
    let shims = tempfile::tempdir().unwrap();
    let studio = Studio::with_programs(broken_ffmpeg(shims.path(), "*poster*")).await;
    let file = studio.file("film.mp4");
    clips::film(3, &file);
    let once = telecine_pipeline::Step { attempts: Some(1), ..pictures() };

    let run = studio.submit(&recipe(vec![hls(), once]), &file).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Partial, "{:?}", studio.failures(&run).await);
    let warnings = studio.warnings(&run).await;
    assert!(warnings.iter().any(|warning| warning.code == "poster_failed"), "{warnings:?}");
    let names: Vec<String> = studio.outputs(&run).await.into_iter().map(|output| output.name).collect();
    assert!(names.contains(&"hls".into()) && names.contains(&"storyboard".into()), "{names:?}");
    assert!(!names.contains(&"poster".into()), "{names:?}");
    studio.close().await;
}

async fn lost_sound_fails_and_is_retried_alone() {
    let shims = tempfile::tempdir().unwrap();
    let studio = Studio::with_programs(broken_ffmpeg(shims.path(), "*aac*")).await;
    let file = studio.file("film.mp4");
    clips::film(3, &file);
    let once = telecine_pipeline::Step { attempts: Some(1), ..hls() };

    let run = studio.submit(&recipe(vec![once]), &file).await;
    let failed = studio.ended(&run).await;

    assert_eq!(failed.state, RunState::Failed);
    let failures = studio.failures(&run).await;
    let failure = failures.iter().find(|failure| failure.step == "hls.audio").expect("the sound failed");
    assert_eq!(failure.code, "tool_failed");
    assert!(failure.stderr_tail.contains("the encoder gave up") && !failure.hint.is_empty(), "{failure:?}");

    let before = attempts(&studio, &failed).await;
    std::fs::remove_file(shims.path().join("broken")).unwrap();
    studio.queue.retry_run(&run, &["hls.audio".into()]).await.unwrap();
    let mended = studio.ended(&run).await;

    assert_eq!(mended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    let after = attempts(&studio, &mended).await;
    assert_eq!(after["encode_range"], before["encode_range"], "ranges were not made again");
    assert!(after["encode_audio"] > before["encode_audio"] && after["package"] > 0);
    studio.close().await;
}

/// How often jobs of each kind were tried.
async fn attempts(studio: &Studio, run: &Run) -> std::collections::BTreeMap<String, usize> {
    let filter = telecine_queue::JobFilter { run: Some(run.id.clone()), ..Default::default() };
    let jobs = studio.queue.list(&filter, telecine_queue::Page::first(100)).await.unwrap().data;
    let mut tried = std::collections::BTreeMap::new();
    for job in jobs {
        *tried.entry(job.kind).or_default() += studio.queue.attempts(job.id).await.unwrap().len();
    }
    tried
}

async fn no_media_fails_at_once() {
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    std::fs::write(&file, "#EXTM3U\nhttp://127.0.0.1:1/x.ts\n").unwrap();

    let run = studio.submit(&recipe(vec![hls()]), &file).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Failed);
    let failures = studio.failures(&run).await;
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].code.starts_with("input_") && failures[0].step == "ingest", "{failures:?}");
    assert_eq!((failures[0].retryable, failures[0].attempt), (false, 1));
    let filter = telecine_queue::JobFilter { run: Some(run), ..Default::default() };
    let jobs = studio.queue.list(&filter, telecine_queue::Page::first(10)).await.unwrap().data;
    assert!(jobs.len() == 1 && jobs[0].state == JobState::Failed);
    studio.close().await;
}
