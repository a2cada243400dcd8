//! Steps by what an input is: its content decides which of them are done, whatever it is called.

use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use telecine_pipeline::{
    Input, OutputStatus, Recipe, Recipes, RunDocument, StepStatus, Submission, describe, submit,
};
use telecine_queue::RunState;

use crate::clips;
use crate::kinds::broken_ffmpeg;
use crate::studio::{Studio, trial};

pub(crate) fn trials() -> Vec<Trial> {
    macro_rules! all {
        ($($promise:ident),+ $(,)?) => { vec![$(trial(format!("optimize::{}", stringify!($promise)), $promise)),+] };
    }
    all![
        a_picture_that_calls_itself_a_film_is_a_picture,
        a_film_that_calls_itself_a_picture_is_a_film,
        a_picture_that_moves_is_a_picture,
        a_sound_is_refused_with_what_is_taken,
        a_thumbnail_that_cannot_be_made_is_a_warning,
    ]
}

pub(crate) fn optimize() -> Recipe {
    Recipes::built_in().get("optimize").unwrap().clone()
}

pub(crate) fn photo(studio: &Studio, name: &str) -> PathBuf {
    let file = studio.file(name);
    let picture = ["-f", "lavfi", "-i", "testsrc2=size=640x480", "-frames:v", "1", "-f", "mjpeg"];
    clips::ffmpeg(&picture, &file);
    file
}

/// What became of it, by a run that has ended.
pub(crate) async fn processed(studio: &Studio, recipe: Recipe, file: &Path) -> RunDocument {
    let submission = Submission::new(recipe, Input::Path(file.to_owned()));
    let run = submit(&*studio.queue, submission).await.unwrap().run;
    studio.ended(&run).await;
    describe(&*studio.queue, &run).await.unwrap().unwrap()
}

fn skipped(document: &RunDocument) -> Vec<&str> {
    let skipped = document.steps.iter().filter(|step| step.status == StepStatus::Skipped);
    skipped.map(|step| step.name.as_str()).collect()
}

async fn a_picture_that_calls_itself_a_film_is_a_picture() {
    let studio = Studio::open().await;

    let run = processed(&studio, optimize(), &photo(&studio, "film.mp4")).await;

    assert_eq!((run.status, &run.warnings[..]), (RunState::Succeeded, &[][..]), "{:?}", run.error);
    let made: Vec<&str> = run.outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!(made, ["image", "thumb"]);
    assert!(run.outputs[0].facts["thumbhash"].is_string(), "{:?}", run.outputs[0].facts);
    assert_eq!(run.outputs[0].files.len(), 8);
    assert_eq!(skipped(&run), ["hls", "video", "poster"]);
    studio.close().await;
}

/// FFmpeg reads no WebP that moves.
async fn a_picture_that_moves_is_a_picture() {
    let studio = Studio::open().await;
    let drawn = ["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=5:duration=1"];
    for (name, encoder) in [("moving.webp", "libwebp_anim"), ("moving.gif", "gif")] {
        let file = studio.file(name);
        clips::ffmpeg(&[&drawn[..], &["-c:v", encoder]].concat(), &file);

        let run = processed(&studio, optimize(), &file).await;

        assert_eq!(run.status, RunState::Succeeded, "{name}: {:?}", run.error);
        let made: Vec<&str> = run.outputs.iter().map(|output| output.name.as_str()).collect();
        assert_eq!(made, ["image", "thumb"], "{name}");
    }
    let cut = studio.file("cut.webp");
    let whole = std::fs::read(studio.file("moving.webp")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(processed(&studio, optimize(), &cut).await.error.unwrap().code, "input_truncated");
    studio.close().await;
}

async fn a_film_that_calls_itself_a_picture_is_a_film() {
    let studio = Studio::open().await;
    let film = studio.file("film.mp4");
    clips::film(2, &film);
    let photo = studio.file("photo.jpg");
    std::fs::rename(film, &photo).unwrap();

    let run = processed(&studio, optimize(), &photo).await;

    assert_eq!((run.status, &run.warnings[..]), (RunState::Succeeded, &[][..]), "{:?}", run.error);
    let made: Vec<&str> = run.outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!(made, ["hls", "video", "poster"]);
    assert_eq!(skipped(&run), ["image", "thumb"]);
    studio.close().await;
}

async fn a_sound_is_refused_with_what_is_taken() {
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    clips::ffmpeg(&["-f", "lavfi", "-i", "sine=frequency=440:duration=1", "-f", "mp3"], &file);

    let run = processed(&studio, optimize(), &file).await;

    let error = run.error.unwrap();
    assert_eq!((run.status, error.code.as_str()), (RunState::Failed, "unsupported_format"));
    assert!(!error.retryable && error.message.contains("takes image or video"), "{error:?}");
    assert!(error.message.contains("the input is audio"), "{error:?}");
    studio.close().await;
}

async fn a_thumbnail_that_cannot_be_made_is_a_warning() {
    let shims = tempfile::tempdir().unwrap();
    let studio = Studio::with_programs(broken_ffmpeg(shims.path(), "*poster*")).await;
    let film = studio.file("film.mp4");
    clips::film(2, &film);
    let mut recipe = optimize();
    recipe.steps.iter_mut().filter(|step| step.name == "poster").for_each(|step| step.attempts = Some(1));

    let run = processed(&studio, recipe, &film).await;

    assert_eq!(run.status, RunState::Partial, "{:?}", run.error);
    assert!(run.warnings.iter().any(|warning| warning.code == "poster_failed"), "{:?}", run.warnings);
    let status = |name: &str| run.outputs.iter().find(|output| output.name == name).unwrap().status;
    assert_eq!(
        ["hls", "video", "poster"].map(status),
        [OutputStatus::Ready, OutputStatus::Ready, OutputStatus::Failed]
    );
    studio.close().await;
}
