use std::path::{Path, PathBuf};
use std::time::Duration;

use telecine_media::{
    AudioRendition, Limits, MediaError, MediaFacts, Presentation, Probe, Promise, PromisedRung,
    PromisedSound, Remux, RemuxSpec, Remuxed, TrackKind, VideoRendition, copy_obstacle, mp4_summary,
    remux_to_mp4, remux_to_segments, verify,
};
use tokio_util::sync::CancellationToken;

use crate::clips::{self, AAC, X264};
use crate::film::{self, seconds};
use crate::playlist::{played, write_manifests};

/// Six seconds with B-frames and a key frame every second, and sound of 44.1 kHz.
fn source(name: &str, options: &[&str]) -> PathBuf {
    let video = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=6"];
    let audio = ["-f", "lavfi", "-i", "aevalsrc=0.3*sin(880*PI*t)|0.3*sin(660*PI*t):s=44100:d=6"];
    let x264 = ["-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-g", "25", "-pix_fmt", "yuv420p"];
    clips::clip(name, &[&video[..], &audio, &x264, AAC, options].concat())
}

async fn copied(source: &Path, folder: &Path, segment_seconds: u32) -> Result<Remux, MediaError> {
    copied_as(&clips::probed(source).await?, source, folder, segment_seconds).await
}

async fn copied_as(
    probe: &Probe,
    source: &Path,
    folder: &Path,
    segment_seconds: u32,
) -> Result<Remux, MediaError> {
    let limits = Limits::default();
    let offset = seconds(film::OFFSET_SECONDS, 1);
    let spec = RemuxSpec { source, probe, limits: &limits, segment_seconds, offset, folder };
    remux_to_segments(&clips::toolbox(), &spec, &CancellationToken::new()).await
}

async fn done(source: &Path, folder: &Path) -> Remuxed {
    match copied(source, folder, 2).await.unwrap() {
        Remux::Done(made) => *made,
        Remux::Unfit(why) => panic!("{source:?}: {why}"),
    }
}

/// Hashes of all decoded frames, in the order of their showing.
fn pictures(path: &Path, options: &[&str]) -> Vec<String> {
    let path = path.to_str().unwrap();
    let args = [&["-v", "error"], options, &["-i", path, "-map", "0:v:0", "-f", "framemd5", "-"]].concat();
    let lines = film::lines_of("ffmpeg", &args).into_iter().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit(',').next().unwrap().trim().to_owned()).collect()
}

/// Samples of the first audio stream, as they are decoded.
fn sound(path: &Path) -> Vec<u8> {
    let args = ["-v", "error", "-i", path.to_str().unwrap(), "-map", "0:a:0", "-f", "s16le", "-"];
    film::output_of("ffmpeg", &args)
}

#[tokio::test]
async fn links_that_a_tool_left_are_not_followed() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let victim = elsewhere.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    for name in ["video-init.mp4", "video-00000.m4s", "audio-init.mp4", "audio-00000.m4s"] {
        std::os::unix::fs::symlink(&victim, folder.path().join(name)).unwrap();
    }

    let made = done(&source("copy.mp4", &[]), folder.path()).await;

    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    let sound = made.audio.unwrap();
    for path in [&made.video.init, &made.video.segments[0], &sound.init, &sound.segments[0]] {
        assert!(std::fs::symlink_metadata(path).unwrap().is_file(), "{path:?}");
    }
}

#[tokio::test]
async fn a_copy_in_segments_is_the_source_to_the_last_frame_and_verified() {
    for name in ["copy.mp4", "copy.ts", "copy.mkv"] {
        let folder = tempfile::tempdir().unwrap();
        let path = source(name, &[]);

        let made = done(&path, folder.path()).await;

        assert_eq!(made.segment_frames, [50, 50, 50], "{name}");
        let promise = Promise {
            rungs: vec![PromisedRung { name: "video".to_owned(), width: 320, height: 180 }],
            segment_frames: made.segment_frames.clone(),
            // Matroska rounds times to milliseconds, and a copy keeps them.
            frame_rate: (name != "copy.mkv").then(|| seconds(25, 1)),
            offset: seconds(film::OFFSET_SECONDS, 1),
            sound: Some(PromisedSound { segments: 3, duration_us: 6_000_000 }),
            damaged_frames: 0,
            end_tolerance_frames: 0,
        };
        let (video, audio) = (std::slice::from_ref(&made.video), made.audio.as_ref());
        let cancel = CancellationToken::new();
        let verified = verify(&clips::toolbox(), &promise, video, audio, None, &cancel).await;
        let verified = verified.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(verified.frames, 150, "{name}");

        let whole = folder.path().join("whole.mp4");
        film::joined(&whole, std::iter::once(made.video.init.clone()).chain(made.video.segments.clone()));
        assert_eq!(pictures(&whole, &[]), pictures(&path, &[]), "{name}");
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 3 + 1 + 3 + 1 + 1, "{name}: segments and init of both, and the joined file");
    }
}

#[tokio::test]
async fn a_player_plays_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let made = done(&source("copy.mp4", &[]), folder.path()).await;
    let audio_track = made.audio_track.clone().unwrap();
    let video = MediaFacts::of(&made.video_track, "video-init.mp4", made.video_facts.clone());
    let audio = MediaFacts::of(&audio_track, "audio-init.mp4", made.audio_facts.clone());
    let film = Presentation {
        video: VideoRendition::of("video", &made.video_track, seconds(25, 1), video).into_iter().collect(),
        audio: AudioRendition::of("audio", &audio_track, audio),
        offset: seconds(film::OFFSET_SECONDS, 1),
    };
    write_manifests(folder.path(), &film);

    let audio_frames: u32 = made.audio_facts.iter().map(|fact| fact.frames).sum();
    let streams = played(&folder.path().join("master.m3u8"), "");

    assert_eq!(streams, [format!("audio,2,{audio_frames}"), "video,320,150".to_owned()]);
    assert!(matches!(audio_track.kind, TrackKind::Audio { sample_rate: 44_100, .. }));
}

#[tokio::test]
async fn sound_stays_beside_its_picture_in_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = source("copy.mp4", &[]);
    let made = done(&path, folder.path()).await;
    let whole = folder.path().join("sound.mp4");
    let audio = made.audio.unwrap();
    film::joined(&whole, std::iter::once(audio.init).chain(audio.segments));

    // The encoder's first frame, which the source hides by an edit, lies before the film's zero here.
    let frame_bytes = 1024 * 2 * 2;
    let (copied, original) = (sound(&whole), sound(&path));

    assert_eq!(made.audio_facts[0].start_ticks, 441_000 - 1024);
    assert!(copied[frame_bytes..].starts_with(&original[..original.len() - frame_bytes]));
}

/// Six seconds of H.265 with B-frames and a key frame every second.
fn h265_source(name: &str, params: &str) -> PathBuf {
    let video = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=6"];
    let params = format!("log-level=error:keyint=25:min-keyint=25:{params}");
    let x265 = ["-c:v", "libx265", "-preset", "ultrafast", "-bf", "2", "-pix_fmt", "yuv420p"];
    clips::clip(name, &[&video[..], &x265, &["-x265-params", &params]].concat())
}

#[tokio::test]
async fn h265_is_copied_under_the_name_that_apples_players_take() {
    // FFmpeg writes `hev1` into MP4 unless told otherwise, and Matroska knows no such names.
    for name in ["h265.mp4", "h265.mkv"] {
        let folder = tempfile::tempdir().unwrap();
        let path = h265_source(name, "open-gop=0");

        let made = done(&path, folder.path()).await;

        assert!(made.video_track.codec.starts_with("hvc1.1."), "{name}: {}", made.video_track.codec);
        assert_eq!(made.segment_frames, [50, 50, 50], "{name}");
        let whole = folder.path().join("whole.mp4");
        film::joined(&whole, std::iter::once(made.video.init.clone()).chain(made.video.segments.clone()));
        assert_eq!(pictures(&whole, &[]), pictures(&path, &[]), "{name}");
        for segment in &made.video.segments {
            let alone = folder.path().join("alone.mp4");
            film::joined(&alone, [made.video.init.clone(), segment.clone()]);
            assert_eq!(pictures(&alone, &[]).len(), 50, "{name}: each segment decodes by itself");
        }
    }
}

#[tokio::test]
async fn h265_that_hls_does_not_allow_is_told_by_its_packets() {
    for (name, params, reason) in [
        ("h265-open.mp4", "open-gop=1", "no picture stands alone for"),
        ("h265-repeated.mp4", "open-gop=0:repeat-headers=1", "parameter sets"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = h265_source(name, params);

        let Remux::Unfit(why) = copied(&path, folder.path(), 1).await.unwrap() else { panic!("{name}") };

        assert!(why.contains(reason), "{name}: {why}");
    }
}

#[tokio::test]
async fn what_does_not_fit_is_told_and_not_copied() {
    let picture = ["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=2"];
    let unfit = [
        ("vp8.mkv", &["-c:v", "libvpx", "-deadline", "realtime"][..], "only H.264 and H.265"),
        ("deep.mp4", &["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv444p"], "8-bit 4:2:0"),
        ("h265.ts", &["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error"], "hvc1"),
    ];
    for (name, codec, reason) in unfit {
        let folder = tempfile::tempdir().unwrap();
        let path = clips::clip(name, &[&picture[..], codec].concat());

        let why = copy_obstacle(&clips::probed(&path).await.unwrap()).unwrap();

        assert!(why.contains(reason), "{why}");
        let Remux::Unfit(told) = copied(&path, folder.path(), 2).await.unwrap() else { panic!("{name}") };
        assert_eq!(told, why);
    }
    let opus = [&picture[..], clips::AUDIO, X264, &["-c:a", "libopus"]].concat();
    let why = copy_obstacle(&clips::probed(&clips::clip("opus_sound.mp4", &opus)).await.unwrap()).unwrap();
    assert!(why.contains("not plain AAC"), "both or neither: {why}");
    assert_eq!(copy_obstacle(&clips::probed(&source("copy.mp4", &[])).await.unwrap()), None);
}

#[tokio::test]
async fn key_frames_that_do_not_stand_alone_begin_no_segment() {
    let folder = tempfile::tempdir().unwrap();
    let open = ["-x264-params", "open-gop=1:keyint=25:min-keyint=25:scenecut=0"];
    let path = source("open_gop.mp4", &open);

    // Only the first picture is an IDR: a segment of more than three seconds, which is too long for players.
    let Remux::Unfit(why) = copied(&path, folder.path(), 1).await.unwrap() else { panic!("copied") };

    assert!(why.contains("no picture stands alone for"), "{why}");
}

#[tokio::test]
async fn sound_that_needs_filling_is_not_copied() {
    let folder = tempfile::tempdir().unwrap();
    let video = ["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=4"];
    let path = clips::clip("short_sound.mp4", &[&video[..], clips::AUDIO, X264, AAC, &["-g", "25"]].concat());

    let Remux::Unfit(why) = copied(&path, folder.path(), 2).await.unwrap() else { panic!("copied") };

    assert!(why.contains("the sound"), "{why}");
}

#[tokio::test]
async fn a_copy_into_one_file_is_the_source_with_its_index_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = source("copy.mp4", &[]);
    let (limits, probe) = (Limits::default(), clips::probed(&path).await.unwrap());
    let (offset, folder) = (seconds(film::OFFSET_SECONDS, 1), folder.path());
    let spec =
        RemuxSpec { source: &path, probe: &probe, limits: &limits, segment_seconds: 2, offset, folder };

    let made = remux_to_mp4(&clips::toolbox(), &spec, &CancellationToken::new()).await.unwrap();

    assert_eq!(made.frames, 150);
    assert!(mp4_summary(&made.path).await.unwrap().faststart);
    assert_eq!(pictures(&made.path, &[]), pictures(&path, &[]));
    assert!(sound(&made.path) == sound(&path));
}

/// Whatever is left of a file that was whole when it was probed.
#[tokio::test]
async fn a_source_that_is_cut_anywhere_is_never_a_short_copy() {
    for (name, options) in [
        ("copy_faststart.mp4", &["-movflags", "+faststart"][..]),
        ("copy_sized.mkv", &[]),
        // As it is written to a pipe: nobody knows the size of anything.
        ("copy_live.mkv", &["-live", "1"]),
        ("copy_packets.ts", &[]),
    ] {
        let path = source(name, options);
        let whole = std::fs::read(&path).unwrap();
        let mut probe = clips::probed(&path).await.unwrap();
        // A live recording does not tell how long it gets, but here somebody has counted.
        probe.duration_us = probe.duration_us.or(Some(6_000_000));
        for part in (0..10).map(|tenth| whole.len() * tenth / 10).chain([whole.len() / 50]) {
            let folder = tempfile::tempdir().unwrap();
            let cut = folder.path().join(name);
            std::fs::write(&cut, &whole[..part]).unwrap();
            let never_longer = Probe { file_bytes: part as u64, ..probe.clone() };

            for (probe, codes) in [
                (&probe, &["input_truncated"][..]),
                // Of headers that are cut nobody knows what would have come.
                (&never_longer, &["input_truncated", "input_corrupt", "input_no_such_stream"]),
            ] {
                let error = match copied_as(probe, &cut, folder.path(), 2).await {
                    Err(error) => error,
                    Ok(made) => panic!("{part} bytes of {name}: {made:?}"),
                };

                let is_told = codes.contains(&error.code()) && !error.is_retryable();
                assert!(is_told, "{part} bytes of {name}: {error}: {}", error.stderr_tail());
            }
        }
    }
}

#[tokio::test]
async fn a_source_whose_pictures_are_gone_is_no_copy_of_its_sound() {
    let whole = source("pictured.mkv", &[]);
    let mute = clips::made("pictures-gone.mkv", |path| {
        clips::ffmpeg(&["-i", whole.to_str().unwrap(), "-c", "copy", "-bsf:v", "noise=drop=1"], path);
    });
    let probe = Probe { file_bytes: 0, ..clips::probed(&whole).await.unwrap() };
    let folder = tempfile::tempdir().unwrap();

    let error = copied_as(&probe, &mute, folder.path(), 2).await.unwrap_err();

    assert_eq!((error.code(), error.is_retryable()), ("input_truncated", false), "{error}");
}

#[tokio::test]
async fn half_a_file_that_tells_only_its_own_length_is_no_short_copy() {
    let whole = source("told-by-file.mkv", &[]);
    let mut probe = clips::probed(&whole).await.unwrap();
    probe.video_streams.iter_mut().for_each(|video| video.duration_us = None);
    probe.audio_streams.iter_mut().for_each(|audio| audio.duration_us = None);
    let half = clips::made("told-by-file-half.mkv", |path| {
        let bytes = std::fs::read(&whole).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    });
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];

    let copy = copied_as(&probe, &whole, folders[0].path(), 2).await.unwrap();
    let error = copied_as(&probe, &half, folders[1].path(), 2).await.unwrap_err();

    assert!(matches!(copy, Remux::Done(_)));
    assert_eq!(error.code(), "input_truncated");
}

#[tokio::test]
async fn a_source_without_pictures_that_stand_alone_is_given_up_early() {
    let video = ["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=40"];
    let one = [
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-g",
        "9999",
        "-sc_threshold",
        "0",
        "-pix_fmt",
        "yuv420p",
    ];
    let source = clips::clip("one-picture.mp4", &[&video[..], &one].concat());
    let folder = tempfile::tempdir().unwrap();

    let Remux::Unfit(why) = copied(&source, folder.path(), 2).await.unwrap() else { panic!("it was copied") };

    // Told after the longest that a segment may be, and not at the end of the film.
    let seconds: Vec<u64> = why.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(why.starts_with("no picture stands alone") && (6..=12).contains(&seconds[0]), "{why}");
}

#[tokio::test]
async fn a_copys_gain_over_an_encode_is_a_ratio() {
    let folder = tempfile::tempdir().unwrap();
    let made = done(&source("copy.mp4", &[]), folder.path()).await;

    assert!(made.wall > Duration::ZERO);
    assert!((made.times_faster_than(made.wall * 50) - 50.0).abs() < 0.001);
}
