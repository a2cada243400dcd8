//! Poster, storyboard, scene cuts and frames of a film: CPU against one decode, and against a pass for each.

use telecine_media::{
    FramesSpec, Limits, Output, PicturesSpec, PosterSpec, Program, StoryboardSpec, make_pictures, probe,
};
use tokio_util::sync::CancellationToken;

use crate::figure::{Figure, median};
use crate::ground::Ground;

const ROUNDS: usize = 3;

/// As they are found in tutorials, each over the whole film.
const SEPARATE: [&[&str]; 4] = [
    &["-vf", "fps=1/2,thumbnail=n=6,scale=1280:-2", "-frames:v", "1", "poster.jpg"],
    &["-vf", "fps=1/2,scale=160:-2,tile=10x10", "storyboard-%d.jpg"],
    &["-vf", "scdet=threshold=10", "-f", "null", "-"],
    &["-vf", "fps=1/2,scale=768:-2", "frame-%d.jpg"],
];

pub(crate) async fn figures(ground: &Ground) -> Vec<Figure> {
    let (mut ours, mut decode, mut separate) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!("pictures of a film, round {round} of {ROUNDS}");
        decode.push(ffmpeg_cpu_s(ground, &["-f", "null", "-"]).await);
        ours.push(pictures_cpu_s(ground).await);
        let mut sum = 0.0;
        for args in SEPARATE {
            sum += ffmpeg_cpu_s(ground, args).await;
        }
        separate.push(sum);
    }
    let ours = median(ours);
    vec![
        Figure::at_most("pictures_cpu_vs_decode", ours, "s", median(decode), 1.15),
        Figure::at_most("pictures_cpu_vs_separate", ours, "s", median(separate), 1.0 / 3.0),
    ]
}

async fn pictures_cpu_s(ground: &Ground) -> f64 {
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    let scratch = tempfile::tempdir().unwrap();
    let probe = probe(&ground.toolbox, &ground.film, &limits, &cancel).await.unwrap();
    let spec = PicturesSpec {
        poster: Some(PosterSpec::default()),
        storyboard: Some(StoryboardSpec::default()),
        scenes: true,
        frames: Some(FramesSpec::default()),
        preview: None,
    };
    let (toolbox, film) = (&ground.toolbox, &ground.film);
    let pictures =
        make_pictures(toolbox, film, &probe, &spec, &limits, scratch.path(), &cancel).await.unwrap();
    let cuts: Vec<u64> = pictures.scenes.unwrap().unwrap().iter().map(|cut| cut.at_us).collect();
    assert_eq!(cuts, [3_000_000, 6_000_000, 9_000_000]);
    assert_eq!(pictures.frames.unwrap().unwrap().len(), 6);
    assert!(pictures.poster.unwrap().is_ok() && pictures.storyboard.unwrap().is_ok());
    pictures.cpu.as_secs_f64()
}

async fn ffmpeg_cpu_s(ground: &Ground, args: &[&str]) -> f64 {
    let scratch = tempfile::tempdir().unwrap();
    let tool = ground.toolbox.tool(Program::Ffmpeg, "bench").unwrap().args(["-y", "-i"]).arg(&ground.film);
    let tool = tool.args(["-an"]).args(args).scratch(scratch.path()).stdout(Output::Null);
    tool.start(&CancellationToken::new()).unwrap().finish().await.unwrap().cpu.as_secs_f64()
}
