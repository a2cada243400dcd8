//! Sound alone, through the real FFmpeg.

use std::path::{Path, PathBuf};
use std::process::Command;

use telecine_media::{
    AudioCodec, AudioFormat, AudioSet, AudioSpec, Limits, Loudness, MediaError, Probe, Trim, make_audio,
    with_measured_length,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::clips::{self, AAC, AUDIO, VIDEO, X264, probed};
use crate::film;

/// Four seconds of a tone at -23 dBFS on both sides, then as much at a twentieth of it.
fn tones() -> PathBuf {
    let tone = "aevalsrc='0.0708*sin(2*PI*1000*t)*if(lt(t,4),1,0.05)|0.0708*sin(2*PI*1000*t)*if(lt(t,4),1,0.05)':s=44100:d=8";
    clips::clip("tones.wav", &["-f", "lavfi", "-i", tone])
}

fn format(codec: AudioCodec, kbits: u32) -> AudioFormat {
    AudioFormat { codec, kbits }
}

fn all_formats() -> Vec<AudioFormat> {
    vec![format(AudioCodec::Aac, 128), format(AudioCodec::Opus, 96), format(AudioCodec::Mp3, 160)]
}

async fn made(input: &Path, spec: &AudioSpec) -> Result<(AudioSet, TempDir), MediaError> {
    made_as(&probed(input).await?, input, spec).await
}

async fn made_as(probe: &Probe, input: &Path, spec: &AudioSpec) -> Result<(AudioSet, TempDir), MediaError> {
    let scratch = tempfile::tempdir().unwrap();
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    let toolbox = clips::toolbox();
    let set = make_audio(&toolbox, input, probe, spec, &limits, scratch.path(), &cancel).await?;
    Ok((set, scratch))
}

/// Integrated loudness and true peak as FFmpeg's own meter has them.
fn measured(path: &Path) -> (f64, f64) {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-nostats", "-i"]).arg(path);
    let done = command.args(["-af", "ebur128=peak=true", "-f", "null", "-"]).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    let summary = text.rsplit("Summary:").next().unwrap();
    let value = |name: &str| {
        let rest = summary.split(name).nth(1).unwrap_or_else(|| panic!("{text}"));
        rest.split_whitespace().next().unwrap().parse::<f64>().unwrap()
    };
    (value("I:"), value("Peak:"))
}

#[tokio::test]
async fn one_decode_gives_every_rendition_the_loudness_and_the_waveform() {
    let spec =
        AudioSpec { formats: all_formats(), waveform_points_per_second: Some(10), ..AudioSpec::default() };

    let (set, _scratch) = made(&tones(), &spec).await.unwrap();

    assert_eq!(set.duration_us, 8_000_000);
    let (lufs, peak) = measured(&tones());
    let loudness = set.loudness;
    assert!((loudness.integrated_lufs.unwrap() - lufs).abs() < 0.2, "{loudness:?}, not {lufs}");
    assert!((loudness.true_peak_dbtp.unwrap() - peak).abs() < 0.3, "{loudness:?}, not {peak}");
    for (rendition, codec) in set.renditions.iter().zip(["aac", "opus", "mp3"]) {
        let probe = probed(&rendition.path).await.unwrap();
        let audio = probe.audio().unwrap();
        assert_eq!((audio.codec.as_str(), audio.channels, rendition.channels), (codec, 2, 2));
        let duration_us = probe.duration_us.unwrap();
        assert!(duration_us.abs_diff(8_000_000) < 100_000, "{codec}: {duration_us}");
        assert_eq!(rendition.bytes, probe.file_bytes);
        assert!((measured(&rendition.path).0 - lufs).abs() < 1.0, "{codec}");
    }
    let text = std::fs::read_to_string(set.waveform.unwrap()).unwrap();
    let waveform: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&waveform["version"], &waveform["sample_rate"]), (&2.into(), &44_100.into()));
    assert_eq!((&waveform["length"], &waveform["samples_per_pixel"]), (&80.into(), &4_410.into()));
    let data: Vec<i64> = waveform["data"].as_array().unwrap().iter().map(|v| v.as_i64().unwrap()).collect();
    assert_eq!((data.len(), &data[10..12], &data[120..122]), (160, &[-10, 9][..], &[-1, 0][..]));
}

#[tokio::test]
async fn loudness_is_brought_to_the_webs() {
    let spec = AudioSpec { formats: all_formats(), loudness: Loudness::Normalise, ..AudioSpec::default() };
    // At the rate of the renditions there is nothing to resample, which FFmpeg treats otherwise.
    for input in [tones(), clips::plain()] {
        let (set, _scratch) = made(&input, &spec).await.unwrap();

        for rendition in &set.renditions {
            let (lufs, peak) = measured(&rendition.path);
            assert!((lufs + 16.0).abs() < 1.0 && peak < -0.9, "{rendition:?}: {lufs} LUFS, {peak} dBTP");
        }
        let source = set.loudness.integrated_lufs.unwrap();
        assert!((source - measured(&input).0).abs() < 0.2, "what is told is the source's");
    }
}

#[tokio::test]
async fn silence_has_no_loudness_and_stays_silent() {
    let input = clips::clip("silence.flac", &["-f", "lavfi", "-i", "anullsrc=r=48000:cl=mono", "-t", "2"]);
    let spec = AudioSpec { loudness: Loudness::Normalise, ..AudioSpec::default() };

    let (set, _scratch) = made(&input, &spec).await.unwrap();

    assert_eq!((set.loudness.integrated_lufs, set.loudness.true_peak_dbtp), (None, None));
    assert_eq!(set.renditions[0].channels, 1);
}

#[tokio::test]
async fn a_waveform_alone_encodes_nothing_and_a_trim_is_exact() {
    let spec = AudioSpec {
        formats: Vec::new(),
        trim: Trim { start_ms: 1_500, end_ms: Some(4_000) },
        waveform_points_per_second: Some(100),
        ..AudioSpec::default()
    };

    let (set, scratch) = made(&tones(), &spec).await.unwrap();

    assert_eq!((set.duration_us, set.renditions.len()), (2_500_000, 0));
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn surround_becomes_stereo_and_a_films_sound_will_do() {
    let surround = "anoisesrc=d=2:c=pink:a=0.2:r=96000,pan=5.1|c0=c0|c1=c0|c2=c0|c3=c0|c4=c0|c5=c0";
    let surround = clips::clip("surround.wav", &["-f", "lavfi", "-i", surround]);
    for input in [surround, clips::plain()] {
        let spec = AudioSpec { formats: all_formats(), ..AudioSpec::default() };

        let (set, _scratch) = made(&input, &spec).await.unwrap();

        for rendition in &set.renditions {
            let probe = probed(&rendition.path).await.unwrap();
            assert_eq!((probe.audio().unwrap().channels, probe.audio().unwrap().sample_rate), (2, 48_000));
            assert!(probe.video_streams.is_empty());
        }
    }
}

#[tokio::test]
async fn half_a_sound_is_not_taken_for_a_whole_one() {
    for name in ["whole.m4a", "whole.flac"] {
        let tone = ["-f", "lavfi", "-i", "anoisesrc=d=6:c=pink:a=0.3:r=48000", "-movflags", "+faststart"];
        let args: &[&str] = if name.ends_with("m4a") { &tone } else { &tone[..4] };
        let whole = clips::clip(name, args);
        let half = clips::made(&format!("half-{name}"), |path| {
            let bytes = std::fs::read(&whole).unwrap();
            std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        });

        // Its probe would be refused: it became so after it.
        let probe = probed(&whole).await.unwrap();
        let error = made_as(&probe, &half, &AudioSpec::default()).await.map(|_| ()).unwrap_err();

        assert!(matches!(error.code(), "input_truncated" | "input_corrupt"), "{name}: {error}");
    }
}

#[tokio::test]
async fn a_silent_film_has_no_sound() {
    let input = clips::clip("mute.mp4", &[VIDEO, X264].concat());

    let error = made(&input, &AudioSpec::default()).await.map(|_| ()).unwrap_err();

    assert_eq!(error.code(), "input_no_such_stream");
    assert!(made(&clips::clip("tone.m4a", &[AUDIO, AAC].concat()), &AudioSpec::default()).await.is_ok());
}

#[tokio::test]
async fn a_rendition_is_the_same_bytes_each_time_and_is_told_with_its_hash() {
    let spec = AudioSpec { formats: all_formats(), ..AudioSpec::default() };

    let (first, _first) = made(&tones(), &spec).await.unwrap();
    let (second, _second) = made(&tones(), &spec).await.unwrap();

    for (one, other) in first.renditions.iter().zip(&second.renditions) {
        let told = film::lines_of("sha256sum", &[one.path.to_str().unwrap()]).remove(0);
        assert_eq!(told.split_whitespace().next(), Some(one.sha256.as_str()), "{:?}", one.codec);
        assert_eq!(one.sha256, other.sha256, "{:?}", one.codec);
        assert_eq!(one.bytes, std::fs::metadata(&one.path).unwrap().len());
    }
}

/// An encoder that exits with 0 and leaves half of its work.
#[tokio::test]
async fn a_rendition_that_lacks_sound_is_no_rendition() {
    let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lazy = folder.path().join("ffmpeg");
    let real = clips::toolbox().path(telecine_media::Program::Ffmpeg).unwrap().display().to_string();
    let script = format!(
        "{real} \"$@\" || exit 1\nfor made in audio-0.*; do\n\
         [ -e cut ] || truncate -s $(($(stat -c %s $made) / 2)) $made\ndone\ntouch cut\n"
    );
    clips::script(&lazy, &script);
    let toolbox = clips::toolbox().with(telecine_media::Program::Ffmpeg, &lazy);
    let (input, cancel) = (tones(), CancellationToken::new());
    let probe = probed(&input).await.unwrap();
    for codec in [AudioCodec::Aac, AudioCodec::Opus, AudioCodec::Mp3] {
        let _ = std::fs::remove_file(scratch.path().join("cut"));
        let spec = AudioSpec { formats: vec![format(codec, 96)], ..AudioSpec::default() };
        let limits = Limits::default();

        let made = make_audio(&toolbox, &input, &probe, &spec, &limits, scratch.path(), &cancel).await;

        let error = made.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("tool_failed", true), "{codec:?}: {error}");
        std::fs::remove_file(scratch.path().join(match codec {
            AudioCodec::Aac => "audio-0.m4a",
            AudioCodec::Opus => "audio-0.opus",
            AudioCodec::Mp3 => "audio-0.mp3",
        }))
        .unwrap();
    }
}

#[tokio::test]
async fn sound_whose_length_is_only_guessed_is_heard_to_its_end() {
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    let spec = AudioSpec { formats: vec![format(AudioCodec::Opus, 64)], ..AudioSpec::default() };
    for source in crate::soundtrack::uncounted() {
        let guessed = probed(&source).await.unwrap();
        let measured = with_measured_length(&clips::toolbox(), &source, guessed.clone(), &limits, &cancel)
            .await
            .unwrap();
        for probe in [&guessed, &measured] {
            let (set, _scratch) = made_as(probe, &source, &spec).await.unwrap();

            assert!(set.duration_us.abs_diff(10_000_000) < 100_000, "{source:?}: {} us", set.duration_us);
        }
        let scratch = tempfile::tempdir().unwrap();
        let part = scratch.path().join(source.file_name().unwrap());
        let bytes = std::fs::read(&source).unwrap();
        std::fs::write(&part, &bytes[..bytes.len() / 4]).unwrap();

        let error = made_as(&measured, &part, &spec).await.map(|_| ()).unwrap_err();

        assert_eq!(error.code(), "input_truncated", "{source:?}: {error}");
    }
}
