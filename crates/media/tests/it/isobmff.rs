use std::path::PathBuf;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use telecine_media::{TrackKind, mp4_summary, read_init, read_segment};

use crate::clips::{self, AAC, AUDIO, VIDEO, X264};
use crate::film::{self, H264, Shape};

#[test]
fn a_segments_samples_are_those_that_ffprobe_sees() {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape { size: "160x90", rate: "30000/1001", frames: 70, gop: 30 };
    let rung = film::rung(folder.path(), "v", shape, H264);

    let segments = rung.read();

    assert_eq!(segments.iter().map(|segment| segment.samples.len()).collect::<Vec<_>>(), [30, 30, 10]);
    let whole = folder.path().join("joined.mp4");
    film::joined(&whole, std::iter::once(rung.init.clone()).chain(rung.segments.clone()));
    let entries = "packet=pts,dts,duration,size,flags";
    let seen = film::lines_of(
        "ffprobe",
        &["-v", "error", "-show_entries", entries, "-of", "csv=p=0", whole.to_str().unwrap()],
    );
    let read = segments.iter().flat_map(|segment| &segment.samples).map(|sample| {
        let flags = if sample.is_sync { "K_" } else { "__" };
        let (pts, dts) = (sample.presentation_time(), sample.decode_time);
        format!("{pts},{dts},{},{},{flags}", sample.duration, sample.data.len())
    });
    assert_eq!(seen, read.collect::<Vec<_>>());
    let track = rung.track();
    assert_eq!(segments[0].presentation_start(), 10 * u64::from(track.timescale));
    assert_eq!(track.kind, TrackKind::Video { width: 160, height: 90 });
}

#[test]
fn codecs_are_named_from_their_parameter_sets() {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape { size: "320x180", rate: "25", frames: 5, gop: 5 };
    let baseline = ["-c:v", "libx264", "-profile:v", "baseline", "-level", "3.0", "-pix_fmt", "yuv420p"];
    let x265 =
        ["-c:v", "libx265", "-tag:v", "hvc1", "-preset", "ultrafast", "-x265-params", "log-level=error"];
    let av1 = ["-c:v", "libsvtav1", "-preset", "12"];
    let codec = |name: &str, args: &[&str]| film::rung(folder.path(), name, shape, args).track().codec;

    assert_eq!(codec("avc", &baseline), "avc1.42C01E");
    assert_eq!(codec("high", H264), "avc1.64000C");
    assert_eq!(codec("hevc", &x265), "hvc1.1.6.L60.90");
    assert_eq!(codec("av1", &av1), "av01.0.00M.08");
    for (name, encoder, expected, channels, pre_skip) in
        [("aac.mp4", "aac", "mp4a.40.2", 2, 0), ("opus.mp4", "libopus", "Opus", 2, 312)]
    {
        let path = folder.path().join(name);
        clips::ffmpeg(&[AUDIO, &["-c:a", encoder, "-movflags", "+cmaf+empty_moov"]].concat(), &path);
        let init = read_init(&std::fs::read(path).unwrap()).unwrap();
        let track = init.only_track().unwrap();
        assert_eq!((track.codec.as_str(), track.timescale), (expected, 48_000));
        assert_eq!(track.kind, TrackKind::Audio { channels, sample_rate: 48_000, pre_skip });
    }
}

fn faststart() -> PathBuf {
    clips::clip("faststart.mp4", &[VIDEO, AUDIO, X264, AAC, &["-movflags", "+faststart"]].concat())
}

#[tokio::test]
async fn a_whole_file_is_summarised_without_a_program() {
    let plain = mp4_summary(&clips::plain()).await.unwrap();
    let fast = mp4_summary(&faststart()).await.unwrap();

    assert_eq!((plain.truncated, plain.faststart, plain.fragmented), (None, false, false));
    assert_eq!((fast.truncated, fast.faststart, fast.duration_us), (None, true, Some(2_000_000)));
}

#[tokio::test]
async fn a_file_that_is_cut_anywhere_is_truncated() {
    let folder = tempfile::tempdir().unwrap();
    let fragmented = folder.path().join("fragmented.mp4");
    clips::ffmpeg(
        &[VIDEO, X264, &["-g", "10", "-movflags", "+cmaf+empty_moov+frag_keyframe"]].concat(),
        &fragmented,
    );
    for path in [faststart(), clips::plain(), fragmented] {
        let whole = std::fs::read(&path).unwrap();
        let tenths = (1..10).map(|tenth| whole.len() * tenth / 10);
        for length in tenths.chain([whole.len() - 1]) {
            let cut = folder.path().join("cut.mp4");
            std::fs::write(&cut, &whole[..length]).unwrap();

            let summary = mp4_summary(&cut).await.unwrap();

            let error = summary.require_whole().unwrap_err();
            assert_eq!((error.code(), error.is_retryable()), ("input_truncated", false), "{path:?} {length}");
        }
    }
    // Every atom whole, and what the index points at not there.
    let whole = std::fs::read(faststart()).unwrap();
    let (_, mdat) = film::atoms(&whole).into_iter().find(|(kind, _)| kind == "mdat").unwrap();
    let mut open_ended = whole[..mdat].to_vec();
    open_ended.extend_from_slice(b"\0\0\0\x0cmdat\0\0\0\0");
    for bytes in [&whole[..mdat], &open_ended[..]] {
        let cut = folder.path().join("cut.mp4");
        std::fs::write(&cut, bytes).unwrap();
        let summary = mp4_summary(&cut).await.unwrap();
        assert_eq!(summary.require_whole().unwrap_err().code(), "input_truncated");
    }
}

#[test]
fn a_run_of_four_billion_samples_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let rung = film::rung(folder.path(), "v", Shape { size: "160x90", rate: "25", frames: 5, gop: 5 }, H264);
    let mut bytes = std::fs::read(&rung.segments[0]).unwrap();
    let run = bytes.windows(4).position(|window| window == b"trun").unwrap();
    // No field per sample: only a count.
    bytes[run + 4..run + 12].copy_from_slice(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    let started = Instant::now();

    let result = read_segment(&bytes, &rung.track());

    assert!(result.is_err());
    assert!(started.elapsed() < Duration::from_secs(5));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn hostile_bytes_are_refused_and_never_panic(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..12),
        length in any::<proptest::sample::Index>(),
    ) {
        let (init, segment) = samples();
        for whole in [&init, &segment] {
            let mut bytes = whole.clone();
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            bytes.truncate(length.index(bytes.len()) + 1);
            let _ = read_init(&bytes);
            let track = read_init(&init).unwrap().only_track().unwrap().clone();
            let _ = read_segment(&bytes, &track);
            // Only the headers are worth changing: the media behind them is not looked at.
            let mut headers = segment.clone();
            for (at, value) in &changes {
                let at = at.index(300.min(headers.len()));
                headers[at] = *value;
            }
            if let Ok(read) = read_segment(&headers, &track) {
                prop_assert!(read.samples.iter().all(|sample| sample.data.end <= headers.len()));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_look_at_hostile_atoms_ends_and_never_panics(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hostile.mp4");
        let mut bytes = std::fs::read(faststart()).unwrap();
        // The index is at the start; behind it is media, which is not looked at.
        let (_, media) = film::atoms(&bytes).into_iter().find(|(kind, _)| kind == "mdat").unwrap();
        for (at, value) in &changes {
            let at = at.index(media + 8);
            bytes[at] = *value;
        }
        std::fs::write(&path, bytes).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        prop_assert!(runtime.block_on(mp4_summary(&path)).is_ok());
    }
}

/// An init segment and a media segment, made once.
fn samples() -> (Vec<u8>, Vec<u8>) {
    let marker = clips::made("fuzzed", |path| {
        std::fs::create_dir_all(path).unwrap();
        film::rung(path, "v", Shape { size: "160x90", rate: "25", frames: 10, gop: 10 }, H264);
    });
    (std::fs::read(marker.join("v-init.mp4")).unwrap(), std::fs::read(marker.join("v-00000.m4s")).unwrap())
}
