//! Photos and clips that nobody here made, as phones wrote them.

use std::path::{Path, PathBuf};
use std::process::Command;

use telecine_media::{
    AudioSpec, Format, FramesSpec, ImageSpec, Limits, PicturesSpec, PosterSpec, PreviewSpec, StoryboardSpec,
    make_audio, make_images, make_pictures,
};
use tokio_util::sync::CancellationToken;

use crate::clips::{self, probed};
use crate::images::{field, toolbox};

pub(crate) fn sample(name: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fetch-samples");
    let done = Command::new(script).output().unwrap();
    assert!(done.status.success(), "make setup: {}", String::from_utf8_lossy(&done.stderr));
    Path::new(String::from_utf8(done.stdout).unwrap().trim()).join(name)
}

#[tokio::test]
async fn photos_of_phones_become_variants_without_a_trace_of_the_camera() {
    for name in ["pic2/IMG_20191224_234846.jpg", "pic1/IMG_1054.JPG"] {
        let (photo, scratch) = (sample(name), tempfile::tempdir().unwrap());
        assert!(field(&photo, "exif-data").is_some(), "{name} was to have EXIF");
        let (spec, limits, cancel) = (ImageSpec::default(), Limits::default(), CancellationToken::new());

        let set = make_images(&toolbox(), &photo, Format::Jpeg, &spec, &limits, scratch.path(), &cancel)
            .await
            .unwrap();

        assert_eq!(set.outputs.len(), 8);
        let shape = f64::from(set.source_width) / f64::from(set.source_height);
        for output in &set.outputs {
            assert_eq!(field(&output.path, "width"), Some(output.width.to_string()), "{name}");
            assert_eq!(field(&output.path, "exif-data"), None, "{name}");
            let difference = f64::from(output.width) / f64::from(output.height) - shape;
            assert!(difference.abs() < 0.01, "{name}: {output:?}");
        }
    }
}

#[tokio::test]
async fn clips_of_phones_give_every_picture_and_their_sound() {
    for name in ["movie1/VID_20191220_170832.mp4", "movie2/movie-hello.mp4"] {
        let (clip, scratch) = (sample(name), tempfile::tempdir().unwrap());
        let probe = probed(&clip).await.unwrap();
        let (limits, cancel) = (Limits::default(), CancellationToken::new());
        let spec = PicturesSpec {
            poster: Some(PosterSpec::default()),
            storyboard: Some(StoryboardSpec::default()),
            preview: Some(PreviewSpec::default()),
            scenes: true,
            frames: Some(FramesSpec::default()),
        };

        let toolbox = clips::toolbox();
        let pictures =
            make_pictures(&toolbox, &clip, &probe, &spec, &limits, scratch.path(), &cancel).await.unwrap();

        assert!(!pictures.poster.unwrap().unwrap().is_black, "{name}");
        assert!(!pictures.storyboard.unwrap().unwrap().tiles.is_empty(), "{name}");
        assert!(pictures.preview.unwrap().unwrap().frames > 1, "{name}");
        assert!(!pictures.frames.unwrap().unwrap().is_empty(), "{name}");
        assert!(pictures.scenes.unwrap().is_ok(), "{name}");
        assert_eq!(pictures.processes, 1, "{name}");

        let spec = AudioSpec { waveform_points_per_second: Some(20), ..AudioSpec::default() };
        let sound =
            make_audio(&toolbox, &clip, &probe, &spec, &limits, scratch.path(), &cancel).await.unwrap();

        assert!(sound.loudness.integrated_lufs.is_some_and(|lufs| (-70.0..0.0).contains(&lufs)), "{name}");
        assert!(sound.waveform.is_some() && sound.renditions[0].bytes > 1000, "{name}");
    }
}
