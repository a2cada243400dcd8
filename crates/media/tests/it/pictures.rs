//! Pictures of a video, made by the real FFmpeg.

use std::path::{Path, PathBuf};
use std::process::Command;

use telecine_media::{
    Confinement, FramesSpec, Limits, MediaError, Pictures, PicturesSpec, PosterSpec, PreviewSpec, Program,
    Storyboard, StoryboardSpec, Toolbox, make_pictures,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::clips::{self, AAC, AUDIO, VIDEO, X264, probed};
use crate::film;

const SECONDS: [(&str, [i32; 3]); 6] = [
    ("black", [0, 0, 0]),
    ("red", [255, 0, 0]),
    ("lime", [0, 255, 0]),
    ("blue", [0, 0, 255]),
    ("yellow", [255, 255, 0]),
    ("white", [255, 255, 255]),
];

/// A second of each colour, black first, with one keyframe at the start alone.
fn colours(name: &str, more: &[&str]) -> PathBuf {
    let mut args = Vec::new();
    for (colour, _) in SECONDS {
        args.extend([
            "-f".into(),
            "lavfi".into(),
            "-i".into(),
            format!("color={colour}:size=320x180:rate=25:duration=1"),
        ]);
    }
    args.extend(["-filter_complex".into(), "concat=n=6:v=1".into()]);
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    args.extend(X264);
    args.extend(["-g", "1000", "-keyint_min", "1000", "-sc_threshold", "0"]);
    args.extend(more);
    clips::clip(name, &args)
}

fn everything() -> PicturesSpec {
    PicturesSpec {
        poster: Some(PosterSpec::default()),
        storyboard: Some(StoryboardSpec { every_ms: Some(1000), ..StoryboardSpec::default() }),
        preview: Some(PreviewSpec::default()),
        scenes: true,
        frames: Some(FramesSpec { per_1000_s: 1000, ..FramesSpec::default() }),
    }
}

async fn taken_with(
    toolbox: &Toolbox,
    input: &Path,
    spec: &PicturesSpec,
) -> Result<(Pictures, TempDir), MediaError> {
    let scratch = tempfile::tempdir().unwrap();
    let probe = probed(input).await?;
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    let pictures = make_pictures(toolbox, input, &probe, spec, &limits, scratch.path(), &cancel).await?;
    Ok((pictures, scratch))
}

async fn taken(input: &Path, spec: &PicturesSpec) -> (Pictures, TempDir) {
    taken_with(&clips::toolbox(), input, spec).await.unwrap()
}

/// The mean colour of a place, through FFmpeg's own decoder.
fn colour(path: &Path, crop: &str) -> [i32; 3] {
    let filter = format!("crop={crop},scale=1:1:flags=area,format=rgb24");
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-i"]).arg(path).args([
        "-vf",
        &filter,
        "-frames:v",
        "1",
        "-f",
        "rawvideo",
        "-",
    ]);
    let done = command.output().unwrap();
    let bytes: [u8; 3] = done.stdout[..].try_into().unwrap_or_else(|_| panic!("{path:?}: {done:?}"));
    bytes.map(i32::from)
}

const WHOLE: &str = "iw:ih:0:0";

fn size(path: &Path) -> (u32, u32) {
    let args =
        ["-v", "error", "-select_streams", "v", "-show_entries", "stream=width,height", "-of", "csv=p=0"];
    let done = Command::new("ffprobe").args(args).arg(path).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let (width, height) = text.trim().split_once(',').unwrap_or_else(|| panic!("{path:?}: {text}"));
    (width.parse().unwrap(), height.parse().unwrap())
}

fn assert_near(have: [i32; 3], wanted: [i32; 3], what: &str) {
    let is_near = have.iter().zip(wanted).all(|(have, wanted)| (have - wanted).abs() <= 12);
    assert!(is_near, "{what}: {have:?}, not {wanted:?}");
}

fn assert_tiles_show_their_time(storyboard: &Storyboard) {
    for tile in &storyboard.tiles {
        let (name, wanted) = SECONDS[usize::try_from(tile.at_us / 1_000_000).unwrap()];
        let crop = format!("{}:{}:{}:{}", tile.width - 8, tile.height - 8, tile.x + 4, tile.y + 4);
        assert_near(colour(&storyboard.sprites[tile.sprite], &crop), wanted, name);
    }
}

#[tokio::test]
async fn one_process_gives_every_picture() {
    let (pictures, _scratch) = taken(&colours("colours.mp4", &[]), &everything()).await;

    assert_eq!(pictures.processes, 1);
    let poster = pictures.poster.unwrap().unwrap();
    assert_eq!((poster.width, poster.height, poster.is_black), (320, 180, false));
    assert_eq!(size(&poster.path), (320, 180));
    let (name, wanted) = SECONDS[usize::try_from(poster.at_us / 1_000_000).unwrap()];
    assert_near(colour(&poster.path, WHOLE), wanted, name);

    let storyboard = pictures.storyboard.unwrap().unwrap();
    let times: Vec<u64> = storyboard.tiles.iter().map(|tile| tile.at_us).collect();
    assert_eq!(times, [0, 1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000]);
    assert_tiles_show_their_time(&storyboard);
    let vtt = std::fs::read_to_string(&storyboard.vtt).unwrap();
    assert!(vtt.contains("00:00:05.000 --> 00:00:06.000\nstoryboard-0001.jpg#xywh=800,0,160,90"), "{vtt}");

    let cuts: Vec<u64> = pictures.scenes.unwrap().unwrap().iter().map(|cut| cut.at_us).collect();
    assert_eq!(cuts, [1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000]);

    let frames = pictures.frames.unwrap().unwrap();
    assert_eq!(frames.len(), 6);
    for frame in &frames {
        let (name, wanted) = SECONDS[usize::try_from(frame.at_us / 1_000_000).unwrap()];
        assert_near(colour(&frame.path, WHOLE), wanted, name);
        assert_eq!(size(&frame.path), (320, 180), "never enlarged");
    }

    let preview = pictures.preview.unwrap().unwrap();
    assert_eq!((preview.width, preview.height, preview.frames), (320, 180, 30));
    // Frames that are alike are stored as one that stands longer.
    let delays_ms = field(&preview.path, "delay");
    let delays_ms: Vec<u32> = delays_ms.split_whitespace().map(|delay| delay.parse().unwrap()).collect();
    assert_eq!((delays_ms.len() >= 5, delays_ms.iter().sum::<u32>()), (true, 3000), "{delays_ms:?}");
}

fn field(path: &Path, name: &str) -> String {
    let done = Command::new("vipsheader").args(["-f", name]).arg(path).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_film_that_starts_black_gets_a_poster_that_is_not() {
    let dark_start = "color=black:size=320x180:rate=25:duration=3.5[b];testsrc2=size=320x180:rate=25:duration=0.5[t];\
                      [b][t]concat=n=2:v=1";
    let input = clips::clip("dark.mp4", &[&["-filter_complex", dark_start][..], X264].concat());
    let spec = PicturesSpec { poster: Some(PosterSpec::default()), ..PicturesSpec::default() };

    let (pictures, _scratch) = taken(&input, &spec).await;

    let poster = pictures.poster.unwrap().unwrap();
    assert!(poster.at_us >= 3_500_000 && !poster.is_black, "{poster:?}");
    assert!(colour(&poster.path, WHOLE).iter().sum::<i32>() > 100);
}

#[tokio::test]
async fn a_film_without_light_still_has_a_poster_and_says_so() {
    let black = ["-f", "lavfi", "-i", "color=black:size=320x180:rate=25:duration=1"];
    let input = clips::clip("black.mp4", &[&black[..], X264].concat());

    let (pictures, _scratch) = taken(&input, &everything()).await;

    assert!(pictures.poster.unwrap().unwrap().is_black);
    assert_eq!(pictures.scenes.unwrap().unwrap(), []);
    assert!(pictures.storyboard.unwrap().is_ok() && pictures.frames.unwrap().is_ok());
}

#[tokio::test]
async fn a_poster_is_taken_at_the_time_asked_for() {
    let poster = Some(PosterSpec { at_ms: Some(4_200), long_side: 160 });
    let spec = PicturesSpec { poster, ..PicturesSpec::default() };

    let (pictures, _scratch) = taken(&colours("colours.mp4", &[]), &spec).await;

    let poster = pictures.poster.unwrap().unwrap();
    assert_eq!((poster.at_us, size(&poster.path)), (4_200_000, (160, 90)));
    assert_near(colour(&poster.path, WHOLE), SECONDS[4].1, "yellow");
}

#[tokio::test]
async fn a_long_film_gives_a_poster_by_a_seek() {
    let source = ["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=10:duration=60"];
    let input = clips::clip("long.mp4", &[&source[..], X264].concat());
    let spec = PicturesSpec { poster: Some(PosterSpec::default()), ..PicturesSpec::default() };

    let (pictures, _scratch) = taken(&input, &spec).await;

    let poster = pictures.poster.unwrap().unwrap();
    assert!((12_000_000..22_000_000).contains(&poster.at_us), "{poster:?}");
    assert_eq!(pictures.processes, 1);
}

#[tokio::test]
async fn a_storyboard_needs_keyframes_alone_where_there_are_enough() {
    let spec = PicturesSpec { storyboard: everything().storyboard, ..PicturesSpec::default() };

    let (dense, _dense_scratch) =
        taken(&colours("keyed.mp4", &["-force_key_frames", "expr:gte(t,n_forced)"]), &spec).await;
    let (sparse, _sparse_scratch) = taken(&colours("colours.mp4", &[]), &spec).await;

    assert_eq!((dense.processes, sparse.processes), (1, 2));
    for pictures in [dense, sparse] {
        let storyboard = pictures.storyboard.unwrap().unwrap();
        assert_eq!(storyboard.tiles.len(), 6);
        assert_tiles_show_their_time(&storyboard);
    }
}

#[tokio::test]
async fn storyboards_spread_over_several_sprites_and_keep_uneven_times() {
    let uneven =
        ["-vf", "select='lt(n,20)+not(mod(n,7))'", "-vsync", "vfr", "-video_track_timescale", "90000"];
    let input = clips::clip("uneven.mp4", &[VIDEO, &uneven, X264].concat());
    let storyboard = StoryboardSpec { every_ms: Some(200), tile_width: 80, columns: 2, rows: 2 };
    let spec = PicturesSpec { storyboard: Some(storyboard), scenes: true, ..PicturesSpec::default() };

    let (pictures, _scratch) = taken(&input, &spec).await;

    let storyboard = pictures.storyboard.unwrap().unwrap();
    let times: Vec<u64> = storyboard.tiles.iter().map(|tile| tile.at_us / 1000).collect();
    // Every frame to 0.76 s, then those of 0.84, 1.12, 1.40, 1.68 and 1.96 s.
    assert_eq!(times, [0, 200, 400, 600, 840, 1120, 1400, 1680, 1960]);
    assert_eq!(storyboard.sprites.len(), 3);
    assert_eq!((storyboard.tiles[5].sprite, storyboard.tiles[5].x, storyboard.tiles[5].y), (1, 80, 0));
    assert_eq!(size(&storyboard.sprites[0]), (160, 92));
}

#[tokio::test]
async fn a_phones_video_is_shown_upright() {
    let upright = "color=red:size=180x160:rate=25:duration=1[a];color=blue:size=180x160:rate=25:duration=1[b];\
                   [a][b]vstack,transpose=cclock";
    let stored = clips::clip("stored.mp4", &[&["-filter_complex", upright][..], X264].concat());
    let turned = clips::made("turned.mp4", |path| {
        let mut bytes = std::fs::read(&stored).unwrap();
        let header = bytes.windows(4).position(|window| window == b"tkhd").unwrap();
        let matrix = [0, 1, 0, -1, 0, 0, 0, 0, 0x4000].map(|value: i32| (value << 16).to_be_bytes()).concat();
        bytes[header + 44..header + 80].copy_from_slice(&matrix);
        std::fs::write(path, bytes).unwrap();
    });

    let (pictures, _scratch) = taken(&turned, &everything()).await;

    let poster = pictures.poster.unwrap().unwrap();
    assert_eq!((size(&poster.path), poster.width), ((180, 320), 180));
    assert_near(colour(&poster.path, "iw:ih/4:0:0"), [255, 0, 0], "red above");
    assert_near(colour(&poster.path, "iw:ih/4:0:ih*3/4"), [0, 0, 255], "blue below");
    let preview = pictures.preview.unwrap().unwrap();
    assert_eq!((preview.width, preview.height), (180, 320));
    assert_eq!(size(&pictures.storyboard.unwrap().unwrap().sprites[0]), (160, 284));
}

/// A bar that moves by its own width from field to field, so that the lines of a frame alternate.
fn interlaced(name: &str) -> PathBuf {
    let bar = "nullsrc=size=320x180:rate=50:duration=4,format=gray,\
               geq=lum='if(lt(mod(X+N*16,64),32),235,16)',format=yuv420p,tinterlace=interleave_top,setfield=tff";
    let x264 = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "4", "-flags", "+ildct+ilme"];
    let keys = ["-x264-params", "tff=1", "-g", "25"];
    clips::clip(name, &[&["-filter_complex", bar][..], &x264, &keys].concat())
}

/// How much a line differs from the next, against how much it differs from the one after that: 1 or less of a picture
/// of one moment, far more of two woven into each other.
fn combing(path: &Path) -> f64 {
    let args = ["-v", "error", "-i", path.to_str().unwrap(), "-frames:v", "1"];
    let raw = ["-vf", "crop=320:180:0:0,format=gray", "-f", "rawvideo", "-"];
    let pixels = film::output_of("ffmpeg", &[&args[..], &raw].concat());
    let line = |y: usize| &pixels[y * 320..(y + 1) * 320];
    let differ = |y: usize, z: usize| -> f64 {
        line(y).iter().zip(line(z)).map(|(a, b)| f64::from(a.abs_diff(*b))).sum()
    };
    let sum = |step: usize| -> f64 { (20..160).map(|y| differ(y, y + step)).sum() };
    sum(1) / (sum(2) + 1.0)
}

#[tokio::test]
async fn fields_of_an_interlaced_film_are_not_seen_in_its_pictures() {
    let input = interlaced("interlaced.mp4");
    assert!(probed(&input).await.unwrap().video().unwrap().is_interlaced);
    assert!(combing(&input) > 5.0, "the film's own frames are combs: {}", combing(&input));
    let spec = PicturesSpec {
        storyboard: Some(StoryboardSpec { every_ms: Some(1000), tile_width: 320, columns: 2, rows: 2 }),
        ..everything()
    };
    let alone = PicturesSpec { storyboard: spec.storyboard.clone(), ..PicturesSpec::default() };

    let (pictures, scratch) = taken(&input, &spec).await;
    let (storyboard, _scratch) = taken(&input, &alone).await;

    assert_eq!(pictures.processes, 1);
    let frames = pictures.frames.unwrap().unwrap();
    assert_eq!(
        frames.iter().map(|frame| frame.at_us).collect::<Vec<_>>(),
        [0, 1_000_000, 2_000_000, 3_000_000]
    );
    let preview = scratch.path().join("preview.png");
    let page = format!("{}[page=9]", pictures.preview.unwrap().unwrap().path.display());
    film::output_of("vips", &["copy", &page, preview.to_str().unwrap()]);
    for (what, path) in [
        ("poster", &pictures.poster.unwrap().unwrap().path),
        ("frame", &frames[2].path),
        ("preview", &preview),
        ("tile", &pictures.storyboard.unwrap().unwrap().sprites[0]),
        ("tile of a storyboard alone", &storyboard.storyboard.unwrap().unwrap().sprites[0]),
    ] {
        assert!(combing(path) < 1.5, "{what}: {}", combing(path));
    }
}

#[tokio::test]
async fn hdr_is_brought_to_what_screens_show() {
    let params = "log-level=error:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc:range=limited";
    let grey = ["-f", "lavfi", "-i", "color=0x808080:size=320x180:rate=25:duration=1,format=yuv420p10le"];
    let x265 = ["-c:v", "libx265", "-preset", "ultrafast", "-pix_fmt", "yuv420p10le", "-x265-params", params];
    let input = clips::clip("hdr-grey.mp4", &[&grey[..], &x265].concat());

    let (pictures, _scratch) = taken(&input, &everything()).await;

    // Half of PQ is 92 cd/m2, near the white of SDR; without a mapping it would stay at 128.
    let poster = colour(&pictures.poster.unwrap().unwrap().path, WHOLE);
    assert!(poster.iter().all(|value| *value > 145), "{poster:?}");
    for outcome in [pictures.storyboard.unwrap().map(|_| ()), pictures.frames.unwrap().map(|_| ())] {
        outcome.unwrap();
    }
}

#[tokio::test]
async fn a_film_of_one_frame_has_all_its_pictures() {
    let input = clips::clip("one-frame.mp4", &[VIDEO, &["-frames:v", "1"], X264].concat());

    let (pictures, _scratch) = taken(&input, &everything()).await;

    assert_eq!(pictures.poster.unwrap().unwrap().at_us, 0);
    assert_eq!(pictures.storyboard.unwrap().unwrap().tiles.len(), 1);
    assert_eq!(pictures.frames.unwrap().unwrap().len(), 1);
    assert_eq!(pictures.preview.unwrap().unwrap().frames, 1);
    assert_eq!(pictures.scenes.unwrap().unwrap(), []);
}

#[tokio::test]
async fn sound_alone_has_no_pictures() {
    let input = clips::clip("sound.m4a", &[AUDIO, AAC].concat());

    let error = taken_with(&clips::toolbox(), &input, &everything()).await.map(|_| ()).unwrap_err();

    assert_eq!(error.code(), "input_no_such_stream");
}

/// An FFmpeg that refuses whatever names that word, as one that was built without it would.
fn ffmpeg_without(word: &str, folder: &Path) -> Toolbox {
    let real = clips::toolbox().path(Program::Ffmpeg).unwrap().display().to_string();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *{word}*) echo \"Unknown encoder '{word}'\" >&2; exit 1;; esac\nexec {real} \"$@\"\n"
    );
    let path = folder.join("ffmpeg");
    std::fs::write(&path, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).unwrap();
    Toolbox::from_path(Confinement::None).with(Program::Ffmpeg, path)
}

#[tokio::test]
async fn a_part_that_fails_takes_no_other_along() {
    let folder = tempfile::tempdir().unwrap();
    let toolbox = ffmpeg_without("libwebp_anim", folder.path());
    let input = colours("colours.mp4", &[]);

    let (pictures, _scratch) = taken_with(&toolbox, &input, &everything()).await.unwrap();

    assert_eq!(pictures.preview.unwrap().unwrap_err().code(), "capability_missing");
    assert_eq!(pictures.storyboard.unwrap().unwrap().tiles.len(), 6);
    assert_eq!(pictures.scenes.unwrap().unwrap().len(), 5);
    assert_eq!(pictures.frames.unwrap().unwrap().len(), 6);
    assert!(!pictures.poster.unwrap().unwrap().is_black);
}

#[tokio::test]
async fn half_a_film_is_not_taken_for_a_whole_one() {
    let source = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=4"];
    let whole = clips::clip("whole-film.mp4", &[&source[..], X264, &["-movflags", "+faststart"]].concat());
    let half = clips::made("half-film.mp4", |path| {
        let bytes = std::fs::read(&whole).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    });

    // Its probe would be refused: it became so after it.
    let (probe, scratch) = (probed(&whole).await.unwrap(), tempfile::tempdir().unwrap());
    let (spec, limits, cancel) = (everything(), Limits::default(), CancellationToken::new());
    let toolbox = clips::toolbox();
    let pictures =
        make_pictures(&toolbox, &half, &probe, &spec, &limits, scratch.path(), &cancel).await.unwrap();

    assert_eq!(pictures.storyboard.unwrap().unwrap_err().code(), "input_truncated");
    assert_eq!(pictures.scenes.unwrap().unwrap_err().code(), "input_truncated");
    assert_eq!(pictures.frames.unwrap().unwrap_err().code(), "input_truncated");
    assert!(pictures.poster.unwrap().is_ok());
}

#[tokio::test]
async fn cancelling_ends_it() {
    let input = colours("colours.mp4", &[]);
    let probe = probed(&input).await.unwrap();
    let (scratch, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    cancel.cancel();

    let spec = everything();
    let limits = Limits::default();
    let answer =
        make_pictures(&clips::toolbox(), &input, &probe, &spec, &limits, scratch.path(), &cancel).await;

    assert_eq!(answer.map(|_| ()).unwrap_err().code(), "cancelled");
}

/// Six seconds have no frame at the sixtieth: the last one is as near as can be.
#[tokio::test]
async fn a_poster_behind_the_end_is_the_last_frame() {
    let poster = Some(PosterSpec { at_ms: Some(60_000), long_side: 160 });
    let spec = PicturesSpec { poster, ..PicturesSpec::default() };
    let input = colours("colours.mp4", &[]);
    let mut overstated = probed(&input).await.unwrap();
    overstated.duration_us = Some(3_600_000_000);
    overstated.video_streams[0].duration_us = None;

    let (pictures, _scratch) = taken(&input, &spec).await;
    let (limits, scratch) = (Limits::default(), tempfile::tempdir().unwrap());
    let cancel = CancellationToken::new();
    let wrong =
        make_pictures(&clips::toolbox(), &input, &overstated, &spec, &limits, scratch.path(), &cancel).await;

    let poster = pictures.poster.unwrap().unwrap();
    let length_us = i64::try_from(probed(&input).await.unwrap().duration_us.unwrap()).unwrap();
    let at_us = i64::try_from(poster.at_us).unwrap();
    assert!((length_us - 100_000..length_us).contains(&at_us), "{at_us} of {length_us}");
    // Where the length is not the truth, it is the last of one for each second.
    let at_us = i64::try_from(wrong.unwrap().poster.unwrap().unwrap().at_us).unwrap();
    assert!((length_us - 1_100_000..length_us).contains(&at_us), "{at_us} of {length_us}");
}
