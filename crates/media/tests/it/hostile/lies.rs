//! Files that tell of themselves what is not true: how long they play, when they begin, how wide their pixels are.

use std::path::{Path, PathBuf};
use std::time::Duration;

use telecine_media::{
    AudioSpec, FramesSpec, Limits, Loudness, PicturesSpec, Rational, SoundtrackSpec, Timeline, make_audio,
    make_pictures, make_soundtrack, probe,
};
use tokio_util::sync::CancellationToken;

use super::{code, probed, toolbox, write};
use crate::clips::{self, AAC, AUDIO, VIDEO, X264};

/// Two seconds, with tags that tell the length of each stream as text.
fn tagged() -> Vec<u8> {
    std::fs::read(clips::clip("tagged.mkv", &[VIDEO, AUDIO, X264, AAC].concat())).unwrap()
}

/// The file with the tags replaced by a text of the same size.
fn claiming(length: &str) -> Vec<u8> {
    let (mut bytes, told) = (tagged(), b"00:00:02.");
    assert_eq!(length.len(), 18);
    let places: Vec<usize> = (0..bytes.len() - 18).filter(|at| bytes[*at..].starts_with(told)).collect();
    assert_eq!(places.len(), 2, "the picture's and the sound's");
    places.iter().for_each(|at| bytes[*at..at + 18].copy_from_slice(length.as_bytes()));
    bytes
}

#[tokio::test]
async fn a_length_that_a_tag_makes_up_is_too_long_and_takes_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    // A hundred thousand years; beyond 63 bits of microseconds; an hour more than is allowed.
    for (n, length) in ["900000000:00:00.00", "2562047788:0:54.80", "000007:00:00.00000"].iter().enumerate() {
        let path = write(folder.path(), &format!("{n}.mkv"), claiming(length));

        assert_eq!(code(&probed(&path).await), "input_too_long", "{length}");
    }
}

#[tokio::test]
async fn a_film_that_begins_when_no_clock_does_is_corrupt() {
    let source = clips::plain();
    let args = ["-i", source.to_str().unwrap(), "-c", "copy", "-output_ts_offset", "90000000"];
    let late = clips::clip("late.mkv", &args);

    let limits = Limits { duration: Duration::MAX, ..Limits::default() };
    let error = probe(&toolbox(), &late, &limits, &CancellationToken::new()).await.unwrap_err();

    assert_eq!(error.code(), "input_corrupt", "{error}");
}

/// Whoever stored the probe, and whatever is in it: the count ends in a verdict, not in a panic.
#[tokio::test]
async fn a_sound_of_any_claimed_length_is_counted_without_overflow() {
    let source = clips::plain();
    let mut probe = probed(&source).await.unwrap();
    for claimed_us in [1 << 63, (1 << 63) + 24_000, u64::MAX] {
        probe.audio_streams[0].duration_us = Some(claimed_us);
        let scratch = tempfile::tempdir().unwrap();
        let spec = SoundtrackSpec {
            source: &source,
            probe: &probe,
            limits: &Limits::default(),
            codec: telecine_media::AudioCodec::Aac,
            kbits: 96,
            channels: telecine_media::Channels::Stereo,
            loudness: Loudness::Keep,
            zero_us: 1_000_000,
            duration: Rational::whole(20),
            offset: Rational::whole(Timeline::OFFSET_SECONDS.into()),
            boundaries: &[],
            folder: scratch.path(),
        };

        let made = Box::pin(make_soundtrack(&toolbox(), &spec, &|_| {}, &CancellationToken::new())).await;

        assert_eq!(code(&made), "input_truncated", "{claimed_us}");
    }
}

#[tokio::test]
async fn pixels_of_a_mad_shape_are_square_and_wide_ones_count_as_displayed() {
    let wide = |name: &str, size: &str, aspect: &str| {
        let source = format!("testsrc2=size={size}:rate=25:duration=0.2,setsar={aspect}:max=10000");
        clips::clip(name, &[&["-f", "lavfi", "-i", &source], X264].concat())
    };

    let mad = probed(&wide("mad.mp4", "640x360", "2295/16")).await.unwrap();
    let wide = probed(&wide("wide.mp4", "1920x1080", "6/1")).await;

    let display = mad.video().unwrap().display;
    assert_eq!((display.width, display.height), (640, 360));
    assert_eq!(code(&wide), "input_too_large");
}

/// 20 s that say of themselves that they are one.
fn understated(folder: &Path) -> PathBuf {
    let video = ["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=20"];
    let audio = ["-f", "lavfi", "-i", "sine=440:sample_rate=48000:duration=20"];
    let long = clips::clip("long.mkv", &[&video[..], &audio, X264, AAC].concat());
    let mut bytes = std::fs::read(long).unwrap();
    // The element Duration, a float of eight bytes in milliseconds, and the tags.
    let at = bytes.windows(3).position(|window| window == [0x44, 0x89, 0x88]).unwrap() + 3;
    bytes[at..at + 8].copy_from_slice(&1_000_f64.to_be_bytes());
    let places: Vec<usize> =
        (0..bytes.len() - 18).filter(|at| bytes[*at..].starts_with(b"00:00:20.")).collect();
    assert_eq!(places.len(), 2);
    places.iter().for_each(|at| bytes[*at..at + 9].copy_from_slice(b"00:00:01."));
    write(folder, "understated.mkv", bytes)
}

#[tokio::test]
async fn no_more_is_decoded_than_a_file_says_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = understated(folder.path());
    let (probe, cancel) = (probed(&path).await.unwrap(), CancellationToken::new());
    let limits = Limits { duration: Duration::from_secs(5), ..Limits::default() };
    let scratch = tempfile::tempdir().unwrap();

    let spec = AudioSpec::default();
    let sound = make_audio(&toolbox(), &path, &probe, &spec, &limits, scratch.path(), &cancel).await;
    let spec = PicturesSpec {
        frames: Some(FramesSpec { per_1000_s: 25_000, ..FramesSpec::default() }),
        ..PicturesSpec::default()
    };
    let pictures =
        Box::pin(make_pictures(&toolbox(), &path, &probe, &spec, &limits, scratch.path(), &cancel)).await;

    assert_eq!(code(&sound), "input_corrupt");
    assert_eq!(code(&pictures.unwrap().frames.unwrap()), "input_corrupt");
    let frames = std::fs::read_dir(scratch.path()).unwrap().count();
    assert!(frames < 100, "{frames} files of three seconds at the most");
}

/// Where nobody tells a length, the limit itself ends the decoder.
#[tokio::test]
async fn what_tells_no_length_is_decoded_up_to_the_limit() {
    let sound = ["-f", "lavfi", "-i", "sine=440:sample_rate=48000:duration=20", "-write_xing", "0"];
    let (path, cancel) = (clips::clip("bare.mp3", &sound), CancellationToken::new());
    let probe = probed(&path).await.unwrap();
    let limits = Limits { duration: Duration::from_secs(5), ..Limits::default() };
    let scratch = tempfile::tempdir().unwrap();

    let made =
        make_audio(&toolbox(), &path, &probe, &AudioSpec::default(), &limits, scratch.path(), &cancel).await;

    assert_eq!(code(&made), "input_too_long");
}
