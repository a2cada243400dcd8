//! A film from its file to its playlists.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use telecine_media::{Ladder, VideoSpec};
use telecine_pipeline::{Does, Recipe, Step};
use telecine_queue::{JobFilter, Page, RunState};

use crate::clips;
use crate::studio::Studio;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_file_becomes_a_film_that_plays", a_file_becomes_a_film_that_plays),
        trial(
            "what_cannot_be_copied_is_playable_once_encoded",
            what_cannot_be_copied_is_playable_once_encoded,
        ),
    ]
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
