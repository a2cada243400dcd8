//! A hostile file on its way through the product: sniffed, probed, measured, planned, and then given to everything that
//! would work on it.

use std::collections::BTreeMap;
use std::path::Path;

use telecine_media::{
    AudioSpec, Channels, Class, Fit, Format, FramesSpec, ImageFormat, ImageSpec, ImageVariant, Limits,
    Loudness, MediaError, PicturesSpec, PosterSpec, Probe, RangeJob, Rational, Recipe, Remux, RemuxSpec,
    SoundtrackSpec, Timeline, encode_range, make_audio, make_images, make_pictures, make_soundtrack, plan,
    remux_to_segments, sniff_file, with_measured_length,
};
use tokio_util::sync::CancellationToken;

use super::{code, probed, toolbox};
use crate::video::capabilities;

/// What each entry point said, by its name: `ok`, `unfit` of a copy, or the code of its error.
pub(super) type Verdicts = BTreeMap<&'static str, String>;

/// One small rung: what is tried is decoding.
const RECIPE: &str = r#"{"video": {"ladder": {"heights": [96]}, "segment_seconds": 1, "preset": "fast"}}"#;

/// The whole way. What is refused at a door goes no further, as in the product.
pub(super) async fn worked(path: &Path) -> Verdicts {
    let mut verdicts = Verdicts::new();
    let format = match sniff_file(path).await {
        Ok(format) => format,
        Err(error) => return [("sniff", code::<()>(&Err(error)))].into(),
    };
    if format.class() == Class::Image {
        verdicts.insert("images", images(path, format).await);
    }
    let probe = probed(path).await;
    verdicts.insert("probe", code(&probe));
    let Ok(probe) = probe else { return verdicts };
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    let measured = with_measured_length(&toolbox(), path, probe, &limits, &cancel).await;
    verdicts.insert("measure", code(&measured));
    let Ok(probe) = measured else { return verdicts };
    if format.class() != Class::Image {
        verdicts.extend(worked_as(path, &probe).await);
    }
    verdicts
}

/// Everything that takes a probe, whether the probe is true or not: files change, and doors may be fooled.
pub(super) async fn worked_as(path: &Path, probe: &Probe) -> Verdicts {
    let mut verdicts = Verdicts::new();
    if probe.video().is_some() {
        let (encoded, copied, pictures) =
            tokio::join!(encoded(path, probe), copied(path, probe), pictures(path, probe));
        verdicts.insert("encode_range", encoded);
        verdicts.insert("remux", copied);
        verdicts.extend(pictures);
    }
    if probe.audio().is_some() {
        let (soundtrack, audio) = tokio::join!(soundtrack(path, probe), audio(path, probe));
        verdicts.insert("soundtrack", soundtrack);
        verdicts.insert("audio", audio);
    }
    verdicts
}

/// Every verdict is one of these, and there is one.
#[track_caller]
pub(super) fn assert_only(path: &Path, verdicts: &Verdicts, allowed: &[&str]) {
    let is_allowed = |verdict: &String| allowed.contains(&verdict.as_str());
    assert!(!verdicts.is_empty() && verdicts.values().all(is_allowed), "{}: {verdicts:#?}", path.display());
}

async fn images(path: &Path, format: Format) -> String {
    let (scratch, limits, cancel) =
        (tempfile::tempdir().unwrap(), Limits::default(), CancellationToken::new());
    let formats = vec![ImageFormat::Jpeg];
    let variant = ImageVariant { width: Some(40), height: None, fit: Fit::Contain, formats, quality: None };
    let spec = ImageSpec { variants: vec![variant], ..ImageSpec::default() };
    code(&make_images(&toolbox(), path, format, &spec, &limits, scratch.path(), &cancel).await)
}

async fn encoded(path: &Path, probe: &Probe) -> String {
    let (folder, limits, cancel) =
        (tempfile::tempdir().unwrap(), Limits::default(), CancellationToken::new());
    let recipe: Recipe = serde_json::from_str(RECIPE).unwrap();
    let plan = match plan(&recipe, probe, capabilities().await) {
        Ok(plan) => plan.video.unwrap(),
        Err(error) => return code::<()>(&Err(error)),
    };
    if plan.delivery == telecine_media::Delivery::Copy {
        return "unfit".into();
    }
    let range = plan.grid.whole();
    let job = RangeJob {
        plan: &plan,
        source: path,
        folder: folder.path(),
        range,
        skip: &[],
        limits: &limits,
        stall: RangeJob::STALL,
    };
    code(&Box::pin(encode_range(&toolbox(), &job, &cancel, &mut |_| {})).await)
}

async fn copied(path: &Path, probe: &Probe) -> String {
    let (folder, limits, cancel) =
        (tempfile::tempdir().unwrap(), Limits::default(), CancellationToken::new());
    let offset = Rational::whole(Timeline::OFFSET_SECONDS.into());
    let spec =
        RemuxSpec { source: path, probe, limits: &limits, segment_seconds: 1, offset, folder: folder.path() };
    match Box::pin(remux_to_segments(&toolbox(), &spec, &cancel)).await {
        Ok(Remux::Unfit(_)) => "unfit".into(),
        copied => code(&copied),
    }
}

async fn pictures(path: &Path, probe: &Probe) -> Verdicts {
    let (scratch, limits, cancel) =
        (tempfile::tempdir().unwrap(), Limits::default(), CancellationToken::new());
    let spec = PicturesSpec {
        poster: Some(PosterSpec::default()),
        frames: Some(FramesSpec { per_1000_s: 2_000, ..FramesSpec::default() }),
        ..PicturesSpec::default()
    };
    let made =
        Box::pin(make_pictures(&toolbox(), path, probe, &spec, &limits, scratch.path(), &cancel)).await;
    match made {
        Ok(made) => [("poster", code(&made.poster.unwrap())), ("frames", code(&made.frames.unwrap()))].into(),
        Err(error) => [("pictures", code::<()>(&Err::<(), MediaError>(error)))].into(),
    }
}

async fn soundtrack(path: &Path, probe: &Probe) -> String {
    let (folder, limits, cancel) =
        (tempfile::tempdir().unwrap(), Limits::default(), CancellationToken::new());
    let length_us = probe.duration_us.unwrap_or(1_000_000);
    let spec = SoundtrackSpec {
        source: path,
        probe,
        limits: &limits,
        codec: telecine_media::AudioCodec::Aac,
        kbits: 96,
        channels: Channels::Stereo,
        loudness: Loudness::Keep,
        zero_us: 0,
        duration: Rational::new(i64::try_from(length_us).unwrap().max(1), 1_000_000).unwrap(),
        offset: Rational::whole(Timeline::OFFSET_SECONDS.into()),
        boundaries: &[],
        folder: folder.path(),
    };
    code(&Box::pin(make_soundtrack(&toolbox(), &spec, &|_| {}, &cancel)).await)
}

async fn audio(path: &Path, probe: &Probe) -> String {
    let (scratch, limits, cancel) =
        (tempfile::tempdir().unwrap(), Limits::default(), CancellationToken::new());
    let spec = AudioSpec::default();
    code(&Box::pin(make_audio(&toolbox(), path, probe, &spec, &limits, scratch.path(), &cancel)).await)
}
