use std::f64::consts::TAU;
use std::path::{Path, PathBuf};

use telecine_media::{
    AudioCodec, Channels, Limits, Loudness, MediaError, Probe, Rational, Soundtrack, SoundtrackSpec,
    TrackKind, make_soundtrack, with_measured_length,
};
use tokio_util::sync::CancellationToken;

use crate::clips::{self, AAC, X264};
use crate::film::{self, seconds};

const RATE: usize = 48_000;
const AAC_FRAME: usize = 1024;

/// What differs between the tests; the rest is usual.
struct Wish<'a> {
    codec: AudioCodec,
    channels: Channels,
    loudness: Loudness,
    zero_us: u64,
    duration: Rational,
    boundaries: &'a [Rational],
}

impl Default for Wish<'_> {
    fn default() -> Self {
        Self {
            codec: AudioCodec::Aac,
            channels: Channels::Stereo,
            loudness: Loudness::Keep,
            zero_us: 0,
            duration: seconds(5, 1),
            boundaries: &[],
        }
    }
}

async fn made(source: &Path, folder: &Path, wish: Wish<'_>) -> Result<Soundtrack, MediaError> {
    made_as(&clips::probed(source).await?, source, folder, wish).await
}

async fn made_as(
    probe: &Probe,
    source: &Path,
    folder: &Path,
    wish: Wish<'_>,
) -> Result<Soundtrack, MediaError> {
    let limits = Limits::default();
    let spec = SoundtrackSpec {
        source,
        probe,
        limits: &limits,
        codec: wish.codec,
        kbits: 128,
        channels: wish.channels,
        loudness: wish.loudness,
        zero_us: wish.zero_us,
        duration: wish.duration,
        offset: seconds(film::OFFSET_SECONDS, 1),
        boundaries: wish.boundaries,
        folder,
    };
    make_soundtrack(&clips::toolbox(), &spec, &|_| {}, &CancellationToken::new()).await
}

/// Five seconds of picture with a tone of 440 Hz at half the full scale; options go before the inputs.
fn tone(name: &str, picture: &[&str], sound: &[&str]) -> PathBuf {
    let picture = [picture, &["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=5"]].concat();
    let source = "aevalsrc=0.5*sin(440*2*PI*t)|0.5*sin(440*2*PI*t):s=48000:d=5:c=stereo";
    let sound = [sound, &["-f", "lavfi", "-i", source]].concat();
    // An MP4's edits are in milliseconds otherwise, which is sixteen samples of error.
    let exact_clock: &[&str] =
        if name.ends_with("mp4") { &["-movie_timescale", "48000", "-vsync", "vfr"] } else { &[] };
    clips::clip(name, &[&picture, &sound, X264, &["-c:a", "aac", "-b:a", "256k"], exact_clock].concat())
}

/// The first channel, decoded out of all segments one after another.
fn heard(track: &Soundtrack, folder: &Path) -> Vec<f64> {
    let whole = folder.join("heard.mp4");
    film::joined(&whole, std::iter::once(track.init.clone()).chain(track.segments.clone()));
    let args = ["-v", "error", "-i", whole.to_str().unwrap(), "-af", "pan=mono|c0=c0", "-f", "f32le", "-"];
    let bytes = film::output_of("ffmpeg", &args);
    bytes.chunks_exact(4).map(|sample| f64::from(f32::from_le_bytes(sample.try_into().unwrap()))).collect()
}

/// How far the sound is from the tone whose phase is zero at `zero`, at worst.
fn worst_error(heard: &[f64], range: std::ops::Range<usize>, zero: f64) -> f64 {
    let expected = |at: usize| 0.5 * (440.0 * TAU * (at as f64 - zero) / RATE as f64).sin();
    range.map(|at| (heard[at] - expected(at)).abs()).fold(0.0, f64::max)
}

/// A sample too many or too few at 440 Hz would show as 0.029.
const EXACT: f64 = 0.015;

#[tokio::test]
async fn segments_of_sound_are_the_whole_again_to_the_sample() {
    let folder = tempfile::tempdir().unwrap();
    let boundaries = [seconds(2, 1), seconds(4, 1)];
    let wish = Wish { boundaries: &boundaries, ..Wish::default() };

    let track = made(&tone("tone.mp4", &[], &[]), folder.path(), wish).await.unwrap();

    assert_eq!(track.segments.len(), 3);
    assert_eq!(track.track.codec, "mp4a.40.2");
    // The encoder's first frame lies before zero, and every cut within half a frame of the picture's.
    let zero = 10 * RATE as u64;
    assert_eq!(track.facts[0].start_ticks, zero - AAC_FRAME as u64);
    for (fact, boundary) in track.facts[1..].iter().zip([2, 4]) {
        let picture = zero + boundary * RATE as u64;
        assert!(fact.start_ticks.abs_diff(picture) <= AAC_FRAME as u64 / 2, "{fact:?}");
    }
    for pair in track.facts.windows(2) {
        assert_eq!(pair[0].start_ticks + pair[0].duration_ticks, pair[1].start_ticks);
    }
    let frames: u32 = track.facts.iter().map(|fact| fact.frames).sum();
    let heard = heard(&track, folder.path());
    assert_eq!(heard.len(), frames as usize * AAC_FRAME);
    assert!(heard.len() >= 5 * RATE + AAC_FRAME && heard.len() < 5 * RATE + 3 * AAC_FRAME);
    let error = worst_error(&heard, AAC_FRAME + 2000..5 * RATE - 2000, AAC_FRAME as f64);
    assert!(error < EXACT, "{error}");
    assert!((4_900_000..=5_000_000).contains(&track.decoded_us), "{}", track.decoded_us);
}

#[tokio::test]
async fn opus_is_gapless_too() {
    let folder = tempfile::tempdir().unwrap();
    let boundaries = [seconds(2, 1), seconds(4, 1)];
    let wish = Wish { codec: AudioCodec::Opus, boundaries: &boundaries, ..Wish::default() };

    let track = made(&tone("tone.mp4", &[], &[]), folder.path(), wish).await.unwrap();

    let TrackKind::Audio { pre_skip, .. } = track.track.kind else { panic!("not sound") };
    assert_eq!((track.track.codec.as_str(), pre_skip), ("Opus", 312));
    assert_eq!(track.facts[0].start_ticks, 10 * RATE as u64 - 312);
    let heard = heard(&track, folder.path());
    // FFmpeg leaves out what the header says is for the decoder only.
    let error = worst_error(&heard, 4000..5 * RATE - 2000, 0.0);
    assert!(error < 0.03, "{error}");
}

#[tokio::test]
async fn sound_that_begins_late_or_early_keeps_its_place_beside_the_picture() {
    for name in ["late.mp4", "late.ts"] {
        let folder = tempfile::tempdir().unwrap();
        let late = tone(name, &[], &["-itsoffset", "0.5"]);
        let track = made(&late, folder.path(), Wish::default()).await.unwrap();

        let samples = heard(&track, folder.path());
        let begins = AAC_FRAME + RATE / 2;
        assert!(samples[AAC_FRAME..begins - 1500].iter().all(|sample| sample.abs() < 0.01), "{name}");
        let error = worst_error(&samples, begins + 2000..5 * RATE - 2000, begins as f64);
        assert!(error < EXACT, "{name}: {error}");
    }

    // The picture begins half a second into the file, and so does the film.
    let folder = tempfile::tempdir().unwrap();
    let early = tone("early.mp4", &["-itsoffset", "0.5"], &[]);
    let probe = clips::probed(&early).await.unwrap();
    let begins_us = probe.video().unwrap().start_us - probe.start_us;
    assert!(begins_us >= 500_000, "{begins_us}");
    let wish =
        Wish { zero_us: u64::try_from(begins_us).unwrap(), duration: seconds(4, 1), ..Wish::default() };
    let track = made(&early, folder.path(), wish).await.unwrap();

    let samples = heard(&track, folder.path());
    let zero = AAC_FRAME as f64 - (begins_us + probe.start_us) as f64 * RATE as f64 / 1e6;
    assert!(worst_error(&samples, AAC_FRAME + 2000..4 * RATE - 2000, zero) < EXACT, "{begins_us}");
}

#[tokio::test]
async fn the_same_sound_gives_the_same_bytes() {
    let boundaries = [seconds(2, 1)];
    let mut runs = Vec::new();
    for _ in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let wish = Wish { boundaries: &boundaries, loudness: Loudness::Normalise, ..Wish::default() };
        let track = made(&tone("tone.mp4", &[], &[]), folder.path(), wish).await.unwrap();
        let files = std::iter::once(&track.init).chain(&track.segments);
        runs.push(files.map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>());
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 3, "only what was asked for: {left:?}");
    }

    assert!(runs[0] == runs[1]);
}

fn loud(name: &str, expression: &str) -> PathBuf {
    let source = format!("aevalsrc={expression}:s=48000:d=5");
    clips::clip(name, &[&["-f", "lavfi", "-i", &source], AAC].concat())
}

#[tokio::test]
async fn loudness_is_always_measured_and_changed_only_when_asked() {
    let quiet = loud("quiet.m4a", "0.02*sin(1000*2*PI*t)|0.02*sin(1000*2*PI*t)");
    let folder = tempfile::tempdir().unwrap();
    let kept = made(&quiet, folder.path(), Wish::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let wish = Wish { loudness: Loudness::Normalise, ..Wish::default() };
    let normalised = made(&quiet, folder.path(), wish).await.unwrap();

    let lufs = kept.loudness.integrated_lufs.unwrap();
    assert!((-36.0..-32.0).contains(&lufs), "{lufs}");
    assert_eq!(kept.source_loudness, kept.loudness);
    assert_eq!(normalised.source_loudness, kept.loudness);
    let after = normalised.loudness.integrated_lufs.unwrap();
    assert!((after + 16.0).abs() < 0.5, "{after}");
}

#[tokio::test]
async fn peaks_that_leave_no_room_for_a_gain_move_neither_the_length_nor_the_ceiling() {
    let folder = tempfile::tempdir().unwrap();
    // A quiet tone with a click of nearly full scale every second.
    let clicks = "0.01*sin(1000*2*PI*t)+0.9*lt(mod(t+0.5\\,1)\\,0.001)";
    let peaky = loud("peaky.m4a", clicks);
    let wish = Wish { loudness: Loudness::Normalise, ..Wish::default() };

    let track = made(&peaky, folder.path(), wish).await.unwrap();

    let (before, after) = (track.source_loudness, track.loudness);
    assert!(before.true_peak_dbtp.unwrap() > -3.0, "{before:?}");
    assert!(after.integrated_lufs >= before.integrated_lufs, "{before:?} {after:?}");
    assert!(after.true_peak_dbtp.unwrap() <= -1.0, "{after:?}");
    let length = heard(&track, folder.path()).len();
    assert!((5 * RATE + AAC_FRAME..5 * RATE + 3 * AAC_FRAME).contains(&length), "{length}");
}

#[tokio::test]
async fn silence_has_no_loudness_and_is_not_amplified() {
    let folder = tempfile::tempdir().unwrap();
    let wish = Wish { loudness: Loudness::Normalise, ..Wish::default() };

    let track = made(&loud("silent.m4a", "0|0"), folder.path(), wish).await.unwrap();

    assert_eq!(track.loudness.integrated_lufs, None);
    assert!(heard(&track, folder.path()).iter().all(|sample| sample.abs() < 0.001));
}

#[tokio::test]
async fn channels_are_kept_or_mixed_down() {
    let source = "aevalsrc=0.1*sin(400*t)|0.1*sin(500*t)|0|0|0.1*sin(600*t)|0:s=48000:d=5:c=5.1(side)";
    let surround = clips::clip("surround.mkv", &["-f", "lavfi", "-i", source, "-c:a", "flac"]);
    let mono = loud("mono.m4a", "0.1*sin(400*t)");
    for (source, channels, expected) in [
        (&surround, Channels::Keep, 6),
        (&surround, Channels::Stereo, 2),
        (&mono, Channels::Keep, 1),
        (&mono, Channels::Stereo, 1),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let track = made(source, folder.path(), Wish { channels, ..Wish::default() }).await.unwrap();
        let TrackKind::Audio { channels, .. } = track.track.kind else { panic!("not sound") };
        assert_eq!(channels, expected, "{source:?}");
    }
}

#[tokio::test]
async fn a_last_segment_shorter_than_a_frame_still_has_its_sound() {
    let folder = tempfile::tempdir().unwrap();
    // One frame of 60 fps is left for the last segment.
    let boundaries = [seconds(2, 1), seconds(4, 1)];
    let duration = seconds(241, 60);

    let wish = Wish { duration, boundaries: &boundaries, ..Wish::default() };
    let track = made(&tone("tone.mp4", &[], &[]), folder.path(), wish).await.unwrap();

    assert_eq!(track.facts.len(), 3);
    assert!(track.facts.iter().all(|fact| fact.frames > 0));
}

#[tokio::test]
async fn sound_that_ends_before_the_film_is_followed_by_silence() {
    let folder = tempfile::tempdir().unwrap();
    let wish = Wish { duration: seconds(7, 1), ..Wish::default() };

    let track = made(&tone("tone.mp4", &[], &[]), folder.path(), wish).await.unwrap();

    let heard = heard(&track, folder.path());
    assert!(heard.len() >= 7 * RATE);
    assert!(heard[AAC_FRAME + 5 * RATE + 2500..].iter().all(|sample| sample.abs() < 0.01));
}

#[tokio::test]
async fn a_film_cut_from_behind_the_end_of_the_sound_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let video = ["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=5"];
    let source = clips::clip("sound_of_two_seconds.mp4", &[&video[..], clips::AUDIO, X264, AAC].concat());
    let wish = Wish { zero_us: 3_000_000, duration: seconds(2, 1), ..Wish::default() };

    let track = made(&source, folder.path(), wish).await.unwrap();

    let heard = heard(&track, folder.path());
    assert!(heard.len() >= 2 * RATE && heard.iter().all(|sample| sample.abs() < 0.001));
    assert_eq!((track.loudness.integrated_lufs, track.decoded_us), (None, 0));
}

#[tokio::test]
async fn odd_rates_and_layouts_become_the_usual_ones() {
    for (name, source) in [
        ("telephone.wav", "aevalsrc=0.3*sin(440*2*PI*t):s=8000:d=5"),
        ("studio.wav", "aevalsrc=0.3*sin(440*2*PI*t)|0.3*sin(440*2*PI*t):s=96000:d=5"),
        ("three.wav", "aevalsrc=0.3*sin(440*2*PI*t)|0|0:s=22050:d=5:c=2.1"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let source = clips::clip(name, &["-f", "lavfi", "-i", source]);

        let track = made(&source, folder.path(), Wish::default()).await.unwrap();

        assert_eq!((track.track.timescale, track.segments.len()), (48_000, 1), "{name}");
        let length = heard(&track, folder.path()).len();
        assert!((5 * RATE + AAC_FRAME..5 * RATE + 3 * AAC_FRAME).contains(&length), "{name}: {length}");
    }
}

#[tokio::test]
async fn cancelling_ends_the_encode() {
    let folder = tempfile::tempdir().unwrap();
    let source = tone("tone.mp4", &[], &[]);
    let (limits, probe) = (Limits::default(), clips::probed(&source).await.unwrap());
    let spec = SoundtrackSpec {
        source: &source,
        probe: &probe,
        limits: &limits,
        codec: AudioCodec::Aac,
        kbits: 128,
        channels: Channels::Stereo,
        loudness: Loudness::Keep,
        zero_us: 0,
        duration: seconds(3600, 1),
        offset: seconds(film::OFFSET_SECONDS, 1),
        boundaries: &[],
        folder: folder.path(),
    };
    let cancel = CancellationToken::new();

    // An hour of silence behind five seconds of sound: the first report comes long before its end.
    let stop = |_| cancel.cancel();
    let error = make_soundtrack(&clips::toolbox(), &spec, &stop, &cancel).await.unwrap_err();

    assert_eq!(error.code(), "cancelled");
}

#[tokio::test]
async fn sound_whose_end_is_missing_is_truncated_and_never_a_short_success() {
    let whole = clips::made("tone_faststart.mp4", |path| {
        let tone = tone("tone.mp4", &[], &[]);
        clips::ffmpeg(&["-i", tone.to_str().unwrap(), "-c", "copy", "-movflags", "+faststart"], path);
    });
    let bytes = std::fs::read(&whole).unwrap();
    // The probe of a cut file would be refused: it became so after it.
    let probe = clips::probed(&whole).await.unwrap();
    for tenth in [3, 5, 8] {
        let folder = tempfile::tempdir().unwrap();
        let cut = folder.path().join("cut.mp4");
        std::fs::write(&cut, &bytes[..bytes.len() * tenth / 10]).unwrap();

        let error = made_as(&probe, &cut, folder.path(), Wish::default()).await.unwrap_err();

        assert_eq!((error.code(), error.is_retryable()), ("input_truncated", false), "{tenth}: {error}");
    }
}

#[tokio::test]
async fn a_source_without_sound_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let mute = clips::clip("mute.mp4", &[clips::VIDEO, X264].concat());

    let error = made(&mute, folder.path(), Wish::default()).await.unwrap_err();

    assert_eq!(error.code(), "input_no_such_stream");
}

/// Zero crossings upwards in a second of sound from `at` on: its pitch.
fn pitch(heard: &[f64], at: usize) -> usize {
    heard[at..at + RATE].windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count()
}

fn transport_tone(name: &str, pitch: u32, format: &[&str], start: &str) -> PathBuf {
    let source = format!("aevalsrc=0.3*sin({pitch}*2*PI*t)|0.3*sin({pitch}*2*PI*t):s=48000:d=5:c=stereo");
    let coded = ["-c:a", "aac", "-output_ts_offset", start];
    clips::clip(name, &[&["-f", "lavfi", "-i", &source], format, &coded[..]].concat())
}

#[tokio::test]
async fn sound_that_changes_its_rate_and_channels_goes_on_in_time() {
    let (folder, stereo) = (tempfile::tempdir().unwrap(), transport_tone("stereo.ts", 440, &[], "0"));
    let surround = transport_tone("surround.ts", 880, &["-ac", "6", "-ar", "44100"], "5");
    let source = clips::made("changing.ts", |path| film::joined(path, [stereo, surround]));

    for loudness in [Loudness::Keep, Loudness::Normalise] {
        let wish = Wish { duration: seconds(10, 1), loudness, ..Wish::default() };
        let track = made(&source, folder.path(), wish).await.unwrap();

        let heard = heard(&track, folder.path());
        assert!(heard.len().abs_diff(10 * RATE) < 4 * AAC_FRAME, "{} samples", heard.len());
        let pitches = [RATE / 2, 3 * RATE, 6 * RATE, 8 * RATE].map(|at| pitch(&heard, at));
        for (heard, wanted) in pitches.into_iter().zip([440, 440, 880, 880]) {
            assert!(heard.abs_diff(wanted) <= 2, "{pitches:?}");
        }
        assert_eq!(track.damaged_us, 0);
        // Every frame has its length, but the last may be cut.
        let (ticks, frames) = track.facts.iter().fold((0, 0), |(ticks, frames), fact| {
            (ticks + fact.duration_ticks, frames + u64::from(fact.frames))
        });
        assert_eq!(ticks.div_ceil(AAC_FRAME as u64), frames);
    }
}

/// The same file with zeros from one share of it to another, in hundredths.
fn holed(source: &Path, name: &str, from: usize, until: usize) -> PathBuf {
    clips::made(name, |path| {
        let mut bytes = std::fs::read(source).unwrap();
        let length = bytes.len();
        bytes[length * from / 100..length * until / 100].fill(0);
        std::fs::write(path, bytes).unwrap();
    })
}

#[tokio::test]
async fn sound_with_a_hole_is_corrupt_and_a_scratch_is_told() {
    let noise = ["-f", "lavfi", "-i", "anoisesrc=d=20:c=pink:a=0.5:seed=1:r=48000", "-c:a", "aac"];
    let whole = clips::clip("noise.m4a", &noise);
    let wish = || Wish { duration: seconds(20, 1), ..Wish::default() };
    let folder = || tempfile::tempdir().unwrap();
    let probe = clips::probed(&whole).await.unwrap();

    let clean = made_as(&probe, &whole, folder().path(), wish()).await.unwrap();
    let scratch =
        made_as(&probe, &holed(&whole, "scratch.m4a", 50, 52), folder().path(), wish()).await.unwrap();
    let error =
        made_as(&probe, &holed(&whole, "hole.m4a", 30, 60), folder().path(), wish()).await.unwrap_err();

    assert_eq!(clean.damaged_us, 0);
    assert!((100_000..1_000_000).contains(&scratch.damaged_us), "{}", scratch.damaged_us);
    assert_eq!(error.code(), "input_corrupt", "{error}");
}

/// Ten seconds of frames without any header, silent in one half and loud in the other: their rate is that of neither.
pub(crate) fn uncounted() -> [PathBuf; 4] {
    let made = |name: &str, first: &str, then: &str, coded: &[&str]| {
        let source = format!("aevalsrc=if(lt(t\\,5)\\,{first}\\,{then}):d=10:s=44100");
        clips::clip(name, &[&["-f", "lavfi", "-i", &source], coded].concat())
    };
    let (noise, hush) = ("0.5*(random(0)-0.5)", "0.0001*sin(440*t)");
    let mp3 = ["-c:a", "libmp3lame", "-q:a", "2", "-write_xing", "0", "-id3v2_version", "0"];
    let adts = ["-c:a", "aac", "-b:a", "128k"];
    [
        made("loud-first.mp3", noise, hush, &mp3),
        made("loud-last.mp3", hush, noise, &mp3),
        made("loud-first.aac", noise, hush, &adts),
        made("loud-last.aac", hush, noise, &adts),
    ]
}

#[tokio::test]
async fn a_length_that_is_only_guessed_makes_no_sound_too_short() {
    for source in uncounted() {
        let folder = tempfile::tempdir().unwrap();
        let guessed_us = clips::probed(&source).await.unwrap().duration_us.unwrap();
        assert!(guessed_us.abs_diff(10_000_000) > 1_000_000, "{source:?} tells {guessed_us} us");

        let wish = Wish { duration: seconds(10, 1), ..Wish::default() };
        let track = made(&source, folder.path(), wish).await.unwrap();

        assert!(track.decoded_us.abs_diff(10_000_000) < 100_000, "{source:?}: {} us", track.decoded_us);
    }
}

#[tokio::test]
async fn a_guessed_length_is_measured_and_half_of_it_is_truncated() {
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    for source in uncounted() {
        let probe = clips::probed(&source).await.unwrap();
        let probe = with_measured_length(&clips::toolbox(), &source, probe, &limits, &cancel).await.unwrap();
        let lengths = [probe.duration_us, probe.audio().unwrap().duration_us].map(Option::unwrap);
        assert!(lengths.iter().all(|us| us.abs_diff(10_000_000) < 100_000), "{source:?}: {lengths:?}");
        let folder = tempfile::tempdir().unwrap();
        let half = folder.path().join(source.file_name().unwrap());
        let bytes = std::fs::read(&source).unwrap();
        // Most of the bytes are of the loud half.
        std::fs::write(&half, &bytes[..bytes.len() / 4]).unwrap();

        let wish = || Wish { duration: seconds(10, 1), ..Wish::default() };
        made_as(&probe, &source, folder.path(), wish()).await.unwrap();
        let error = made_as(&probe, &half, folder.path(), wish()).await.unwrap_err();

        assert_eq!(error.code(), "input_truncated", "{source:?}: {error}");
    }
}
