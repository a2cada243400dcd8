//! A film from its file to its playlists.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use telecine_media::{Ladder, VideoSpec};
use telecine_pipeline::{Does, Step};
use telecine_queue::RunState;

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
        trial("film::sound_alone_becomes_a_stream".into(), sound_alone_becomes_a_stream),
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
