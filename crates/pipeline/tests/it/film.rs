//! A film from its file to its playlists.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use telecine_media::{Ladder, VideoSpec};
use telecine_pipeline::{Does, Recipe, Step};
use telecine_queue::RunState;

use crate::clips;
use crate::studio::Studio;

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("a_file_becomes_a_film_that_plays", a_file_becomes_a_film_that_plays)]
}

fn trial<F: Future<Output = ()>>(name: &str, promise: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(format!("film::{name}"), move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(promise());
        Ok(())
    })
}

fn hls() -> Step {
    let spec =
        VideoSpec { ladder: Ladder::Heights(vec![180, 120]), segment_seconds: 1, ..VideoSpec::default() };
    Step::new("hls", Does::Hls(spec))
}

fn recipe(steps: Vec<Step>) -> Recipe {
    Recipe { name: "test".into(), description: String::new(), steps }
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
    let outputs = studio.outputs(&run).await;
    let main = |name: &str| {
        let output = outputs.iter().find(|output| output.name == name).unwrap();
        let main = output.files.iter().find(|file| file.path == output.main).unwrap();
        studio.shop.blobs.local_path(&main.key).unwrap()
    };
    assert_eq!(frames(&main("hls")), [125, 125]);
    assert_eq!(frames(&main("mp4")), [125]);
    studio.close().await;
}

/// How many frames a player finds in each video stream.
fn frames(file: &Path) -> Vec<u32> {
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
