use std::path::{Path, PathBuf};
use std::time::Duration;

use telecine_media::{
    ColourRange, Format, HdrKind, Limits, Program, Rational, Rotation, Size, probe, probe_as,
};
use tokio_util::sync::CancellationToken;

use crate::clips::{self, AAC, AUDIO, VIDEO, X264, probed};

fn rational(text: &str) -> Option<Rational> {
    Some(text.parse().unwrap())
}

#[tokio::test]
async fn a_plain_clip_is_described_exactly() {
    let probe = probed(&clips::plain()).await.unwrap();

    assert_eq!((probe.format, probe.duration_us, probe.stream_count), (Format::Mp4, Some(2_000_000), 2));
    let video = probe.video().unwrap();
    assert_eq!((video.codec.as_str(), video.width, video.height), ("h264", 320, 180));
    assert_eq!((video.avg_fps, video.base_fps, video.is_vfr), (rational("25/1"), rational("25/1"), false));
    assert_eq!((video.frame_count, video.duration_us), (Some(50), Some(2_000_000)));
    assert_eq!((video.pixel_format.as_deref(), video.bit_depth, video.hdr), (Some("yuv420p"), 8, None));
    assert_eq!((video.rotation, video.display), (Rotation::Upright, Size { width: 320, height: 180 }));
    let audio = probe.audio().unwrap();
    assert_eq!((audio.codec.as_str(), audio.sample_rate, audio.channels), ("aac", 48_000, 2));
    assert_eq!(audio.layout.as_deref(), Some("stereo"));
}

/// A display matrix in the header of the first track, as phones write it.
fn turned(name: &str, [a, b, c, d]: [i32; 4]) -> PathBuf {
    clips::made(name, |path| {
        let mut bytes = std::fs::read(clips::plain()).unwrap();
        let header = bytes.windows(4).position(|window| window == b"tkhd").unwrap();
        let matrix = [a, b, 0, c, d, 0, 0, 0, 0x4000].map(|value| (value << 16).to_be_bytes()).concat();
        bytes[header + 44..header + 80].copy_from_slice(&matrix);
        std::fs::write(path, bytes).unwrap();
    })
}

/// A hash of every frame as FFmpeg shows it.
fn frames(path: &Path, options: &[&str], filter: &str) -> Vec<u8> {
    let mut command = std::process::Command::new("ffmpeg");
    command.args(["-v", "error"]).args(options).arg("-i").arg(path);
    let done = command.args(["-an", "-vf", filter, "-f", "framemd5", "-"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

#[tokio::test]
async fn a_phones_video_is_turned_as_ffmpeg_turns_it() {
    let cases = [
        (
            "cw90.mp4",
            [0, 1, -1, 0],
            Rotation::Clockwise90,
            Size { width: 180, height: 320 },
            "transpose=clock",
        ),
        (
            "half_turn.mp4",
            [-1, 0, 0, -1],
            Rotation::UpsideDown,
            Size { width: 320, height: 180 },
            "hflip,vflip",
        ),
        (
            "cw270.mp4",
            [0, -1, 1, 0],
            Rotation::Clockwise270,
            Size { width: 180, height: 320 },
            "transpose=cclock",
        ),
    ];
    for (name, matrix, rotation, display, filter) in cases {
        let path = turned(name, matrix);

        let probe = probed(&path).await.unwrap();

        let video = probe.video().unwrap();
        assert_eq!((video.width, video.height), (320, 180));
        assert_eq!((video.rotation, video.display), (rotation, display));
        assert_eq!(frames(&path, &[], "null"), frames(&path, &["-noautorotate"], filter), "{name}");
    }
}

#[tokio::test]
async fn pixels_that_are_not_square_are_stretched_for_display() {
    let path = clips::clip("anamorphic.mp4", &[VIDEO, &["-vf", "scale=240:180,setsar=4/3"], X264].concat());

    let probe = probed(&path).await.unwrap();

    let video = probe.video().unwrap();
    assert_eq!((video.width, Some(video.sample_aspect)), (240, rational("4/3")));
    assert_eq!(video.display, Size { width: 320, height: 180 });
    assert!(probe.audio().is_none());
}

#[tokio::test]
async fn frames_that_come_at_no_one_pace_are_noticed() {
    let uneven =
        ["-vf", "select='lt(n,20)+not(mod(n,5))'", "-vsync", "vfr", "-video_track_timescale", "90000"];
    let path = clips::clip("vfr.mp4", &[VIDEO, &uneven, X264].concat());
    let ntsc = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=30000/1001:duration=2"];
    let even = clips::clip("ntsc.mp4", &[&ntsc[..], X264].concat());

    assert!(probed(&path).await.unwrap().video().unwrap().is_vfr);

    let even = probed(&even).await.unwrap();
    let video = even.video().unwrap();
    assert_eq!((video.is_vfr, video.avg_fps), (false, rational("30000/1001")));
}

#[tokio::test]
async fn hdr_is_known_by_its_transfer() {
    for (name, transfer, kind) in
        [("pq.mp4", "smpte2084", HdrKind::Pq), ("hlg.mp4", "arib-std-b67", HdrKind::Hlg)]
    {
        let params = format!(
            "log-level=error:colorprim=bt2020:transfer={transfer}:colormatrix=bt2020nc:range=limited"
        );
        let x265 =
            ["-c:v", "libx265", "-preset", "ultrafast", "-pix_fmt", "yuv420p10le", "-x265-params", &params];
        let path = clips::clip(name, &[VIDEO, &x265].concat());

        let probe = probed(&path).await.unwrap();

        let video = probe.video().unwrap();
        assert_eq!((video.hdr, video.bit_depth, video.codec.as_str()), (Some(kind), 10, "hevc"));
        assert_eq!(video.colour_primaries.as_deref(), Some("bt2020"));
        assert_eq!(video.colour_transfer.as_deref(), Some(transfer));
        assert_eq!(video.colour_matrix.as_deref(), Some("bt2020nc"));
        assert_eq!(video.colour_range, Some(ColourRange::Limited));
    }
}

#[tokio::test]
async fn chapters_and_languages_are_kept() {
    let notes = clips::made("chapters.txt", |path| {
        let text = ";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=500\ntitle=Start\n\
                    [CHAPTER]\nTIMEBASE=1/1000\nSTART=500\nEND=2000\ntitle=The rest\n";
        std::fs::write(path, text).unwrap();
    });
    let inputs = [VIDEO, AUDIO, &["-i", notes.to_str().unwrap(), "-map_metadata", "2"]].concat();
    let path =
        clips::clip("chapters.mkv", &[&inputs[..], &["-metadata:s:a:0", "language=deu"], X264, AAC].concat());

    let probe = probed(&path).await.unwrap();

    let chapters: Vec<_> =
        probe.chapters.iter().map(|c| (c.start_us, c.end_us, c.title.as_deref())).collect();
    assert_eq!(chapters, [(0, 500_000, Some("Start")), (500_000, 2_000_000, Some("The rest"))]);
    assert_eq!(probe.audio().unwrap().language.as_deref(), Some("deu"));
}

#[tokio::test]
async fn a_cover_is_not_taken_for_the_film() {
    let cover = clips::clip("cover.jpg", &[VIDEO, &["-frames:v", "1"]].concat());
    let inputs = [AUDIO, &["-i", cover.to_str().unwrap(), "-map", "0", "-map", "1", "-c:v", "copy"]].concat();
    let path = clips::clip("cover.mp3", &[&inputs[..], &["-disposition:v", "attached_pic"]].concat());

    let probe = probed(&path).await.unwrap();

    assert_eq!((probe.format, probe.video_streams.len()), (Format::Mp3, 1));
    assert!(probe.video().is_none() && probe.audio().is_some());
}

#[tokio::test]
async fn every_container_is_opened_with_its_own_demuxer() {
    let both = [VIDEO, AUDIO, X264, AAC].concat();
    for name in ["c.mov", "c.mkv", "c.ts", "c.flv", "c.avi"] {
        let probe = probed(&clips::clip(name, &both)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(probe.video().map(|video| video.width), Some(320), "{name}");
        assert!(probe.audio().is_some() && probe.duration_us.is_some(), "{name}: {probe:?}");
    }
    for name in ["c.wav", "c.mp3", "c.flac", "c.aac", "c.ogg", "c.m4a"] {
        let probe = probed(&clips::clip(name, AUDIO)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(probe.audio().map(|audio| audio.sample_rate), Some(48_000), "{name}");
    }
    for name in ["c.jpg", "c.png", "c.webp", "c.gif"] {
        let path = clips::clip(name, &[VIDEO, &["-frames:v", "1"]].concat());
        let probe = probed(&path).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(probe.video().map(|video| (video.width, video.height)), Some((320, 180)), "{name}");
    }
}

#[tokio::test]
async fn a_file_without_its_index_is_truncated() {
    let path = clips::made("half.mp4", |path| {
        let whole = std::fs::read(clips::plain()).unwrap();
        std::fs::write(path, &whole[..whole.len() / 2]).unwrap();
    });

    let error = probed(&path).await.unwrap_err();

    assert_eq!((error.code(), error.is_retryable(), error.step()), ("input_truncated", false, "probe"));
    assert!(error.to_string().contains("mdat reaches"), "{error}");
}

#[tokio::test]
async fn a_playlist_named_as_a_film_reaches_no_program() {
    let path = clips::made("playlist.mp4", |path| {
        std::fs::write(path, "#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n").unwrap();
    });
    let toolbox = clips::toolbox().with(Program::Ffprobe, "/nonexistent/ffprobe");

    let error = probe(&toolbox, &path, &Limits::default(), &CancellationToken::new()).await.unwrap_err();

    assert_eq!(error.code(), "input_hostile");
}

#[tokio::test]
async fn a_playlist_passed_off_as_a_film_is_not_followed_by_ffprobe_either() {
    let path = clips::made("passed_off.mp4", |path| {
        let segment = clips::clip("c.ts", &[VIDEO, AUDIO, X264, AAC].concat());
        std::fs::write(path, format!("#EXTM3U\n#EXTINF:2,\n{}\n#EXT-X-ENDLIST\n", segment.display()))
            .unwrap();
    });
    let (toolbox, limits, cancel) = (clips::toolbox(), Limits::default(), CancellationToken::new());
    for format in [Format::Mp4, Format::Matroska, Format::MpegTs, Format::Avi] {
        let error = probe_as(&toolbox, &path, format, &limits, &cancel).await.unwrap_err();
        assert!(!error.is_retryable() && error.code().starts_with("input_"), "{format:?}: {error}");
    }
}

#[tokio::test]
async fn limits_refuse_before_anything_is_decoded() {
    let refused = async |path: PathBuf, limits: Limits| {
        let error = probe(&clips::toolbox(), &path, &limits, &CancellationToken::new()).await.unwrap_err();
        assert!(!error.is_retryable());
        error.code()
    };
    let plain = clips::plain;
    let still = || clips::clip("c.png", &[VIDEO, &["-frames:v", "1"]].concat());
    let usual = Limits::default;

    assert_eq!(refused(plain(), Limits { file_bytes: 100, ..usual() }).await, "input_too_large");
    assert_eq!(refused(plain(), Limits { video_short_side: 179, ..usual() }).await, "input_too_large");
    assert_eq!(refused(plain(), Limits { video_fps: 24, ..usual() }).await, "input_too_large");
    assert_eq!(
        refused(plain(), Limits { duration: Duration::from_secs(1), ..usual() }).await,
        "input_too_long"
    );
    assert_eq!(refused(plain(), Limits { streams: 1, ..usual() }).await, "input_too_many_streams");
    assert_eq!(refused(still(), Limits { image_pixels: 57_599, ..usual() }).await, "input_too_large");
    assert_eq!(refused(still(), Limits { image_side: 319, ..usual() }).await, "input_too_large");
}

#[tokio::test]
async fn a_path_that_looks_like_an_option_or_an_address_is_a_path() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["-i", "http:evil.mp4", "a%03d.mp4", "with space 'and' \"quotes\".mp4"] {
        let path = folder.path().join(name);
        std::fs::copy(clips::plain(), &path).unwrap();
        assert_eq!(probed(&path).await.unwrap().stream_count, 2, "{name}");
    }
}
