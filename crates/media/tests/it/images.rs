//! Pictures through the real `telecine-vips`.

use std::path::{Path, PathBuf};
use std::process::Command;

use telecine_media::{
    Animation, Fit, Format, ImageFormat, ImageSet, ImageSpec, ImageVariant, Limits, MediaError, Program,
    Toolbox, VipsAnswer, VipsJob, make_images, sniff_file,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::clips;
use crate::vips_helper::vips_helper;

pub(crate) fn toolbox() -> Toolbox {
    clips::toolbox().with(Program::VipsHelper, vips_helper())
}

fn variant(width: Option<u32>, height: Option<u32>, fit: Fit, formats: &[ImageFormat]) -> ImageVariant {
    ImageVariant { width, height, fit, formats: formats.into(), quality: None }
}

fn wide(width: u32, formats: &[ImageFormat]) -> ImageVariant {
    variant(Some(width), None, Fit::Contain, formats)
}

fn spec(variants: Vec<ImageVariant>) -> ImageSpec {
    ImageSpec { variants, thumbhash: false, ..ImageSpec::default() }
}

async fn made(input: &Path, spec: &ImageSpec) -> Result<(ImageSet, TempDir), MediaError> {
    let scratch = tempfile::tempdir().unwrap();
    let format = sniff_file(input).await?;
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    let set = make_images(&toolbox(), input, format, spec, &limits, scratch.path(), &cancel).await?;
    Ok((set, scratch))
}

fn vips(args: &[&str], paths: &[&Path]) {
    let done = Command::new("vips").args(args).args(paths).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A field of a picture's header as libvips tells it; `None` where there is none.
pub(crate) fn field(path: &Path, name: &str) -> Option<String> {
    let done = Command::new("vipsheader").args(["-f", name]).arg(path).output().unwrap();
    done.status.success().then(|| String::from_utf8(done.stdout).unwrap().trim().to_owned())
}

/// Red, green and blue at a place given in percent.
fn colour_at(path: &Path, (x, y): (i32, i32)) -> [i32; 3] {
    let side = |name| field(path, name).unwrap().parse::<i32>().unwrap();
    let (x, y) = ((side("width") - 1) * x / 100, (side("height") - 1) * y / 100);
    let done =
        Command::new("vips").arg("getpoint").arg(path).args([x.to_string(), y.to_string()]).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let values: Vec<i32> = text.split_whitespace().map(|v| v.parse::<f64>().unwrap() as i32).collect();
    values[..3].try_into().unwrap_or_else(|_| panic!("{text}"))
}

fn is_near(have: [i32; 3], wanted: [i32; 3], tolerance: i32) -> bool {
    have.iter().zip(wanted).all(|(have, wanted)| (have - wanted).abs() <= tolerance)
}

const CORNERS: [((i32, i32), [i32; 3]); 4] = [
    ((20, 20), [220, 30, 30]),
    ((80, 20), [30, 220, 30]),
    ((20, 80), [30, 30, 220]),
    ((80, 80), [220, 220, 220]),
];

/// A picture with a colour in each corner, as FFmpeg's geq draws it, and then filtered.
fn corners(name: &str, filter: &str) -> PathBuf {
    let draw = "color=black:size=240x160:duration=1:rate=1,format=rgb24,\
        geq=r='if(lt(Y,80),if(lt(X,120),220,30),if(lt(X,120),30,220))':\
        g='if(lt(Y,80),if(lt(X,120),30,220),if(lt(X,120),30,220))':\
        b='if(lt(Y,80),30,220)'";
    clips::clip(name, &["-f", "lavfi", "-i", &format!("{draw},{filter}"), "-frames:v", "1", "-q:v", "1"])
}

/// An EXIF block with the orientation and a camera's name.
fn with_exif(jpeg: &[u8], orientation: u8) -> Vec<u8> {
    let mut tiff = b"MM\0\x2a\0\0\0\x08\0\x02".to_vec();
    tiff.extend_from_slice(b"\x01\x0f\0\x02\0\0\0\x08\0\0\0\x26");
    tiff.extend_from_slice(&[1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0]);
    tiff.extend_from_slice(b"\0\0\0\0Obscura\0");
    let length = u16::try_from(tiff.len() + 8).unwrap().to_be_bytes();
    [&jpeg[..2], &[0xff, 0xe1], &length, b"Exif\0\0", &tiff, &jpeg[2..]].concat()
}

fn photo(orientation: u8, stored_by: &str) -> PathBuf {
    let plain = corners(&format!("corners{orientation}.jpg"), stored_by);
    clips::made(&format!("photo{orientation}.jpg"), |path| {
        std::fs::write(path, with_exif(&std::fs::read(plain).unwrap(), orientation)).unwrap();
    })
}

#[tokio::test]
async fn every_exif_orientation_is_applied_and_dropped() {
    let stored_by =
        ["null", "hflip", "hflip,vflip", "vflip", "transpose=0", "transpose=2", "transpose=3", "transpose=1"];
    for (orientation, stored_by) in (1..).zip(stored_by) {
        let input = photo(orientation, stored_by);
        assert_eq!(field(&input, "orientation"), Some(orientation.to_string()));

        let keep = ImageSpec { keep_metadata: true, ..spec(vec![wide(120, &[ImageFormat::Jpeg])]) };
        for spec in [spec(vec![wide(120, &[ImageFormat::Png])]), keep] {
            let (set, _scratch) = made(&input, &spec).await.unwrap();

            let output = &set.outputs[0];
            assert_eq!((set.source_width, set.source_height), (240, 160), "{orientation}");
            assert_eq!((output.width, output.height), (120, 80), "{orientation}");
            for (place, colour) in CORNERS {
                let have = colour_at(&output.path, place);
                assert!(is_near(have, colour, 24), "{orientation} {place:?}: {have:?}, not {colour:?}");
            }
            let left = field(&output.path, "orientation");
            assert!(left.is_none() || left.as_deref() == Some("1"), "{orientation}: {left:?}");
        }
    }
}

#[tokio::test]
async fn metadata_goes_unless_it_is_asked_to_stay() {
    let input = photo(6, "transpose=2");
    use ImageFormat::{Avif, Gif, Jpeg, Png, Webp};
    let wanted = spec(vec![wide(100, &[Jpeg, Webp, Png, Avif, Gif])]);

    let (set, _scratch) = made(&input, &wanted).await.unwrap();
    let (kept, _kept_scratch) = made(&input, &ImageSpec { keep_metadata: true, ..wanted }).await.unwrap();

    let holds = |path: &Path, word: &[u8]| {
        std::fs::read(path).unwrap().windows(word.len()).any(|window| window == word)
    };
    for output in &set.outputs {
        for word in [&b"Exif"[..], b"EXIF", b"eXIf", b"Obscura"] {
            assert!(!holds(&output.path, word), "{output:?}");
        }
    }
    for output in &kept.outputs[..2] {
        assert!(holds(&output.path, b"Obscura"), "{output:?}");
    }
}

#[tokio::test]
async fn one_decode_gives_every_size_and_format() {
    let input = clips::clip(
        "large.jpg",
        &["-f", "lavfi", "-i", "testsrc=size=1601x1067:rate=1:duration=1,format=yuvj444p", "-frames:v", "1"],
    );
    use ImageFormat::{Avif, Gif, Jpeg, Png, Webp};
    let formats = [Jpeg, Webp, Png, Avif, Gif];
    let wanted = ImageSpec {
        thumbhash: true,
        ..spec(vec![
            wide(64, &formats),
            wide(4000, &[Jpeg]),
            wide(801, &[Webp, Jpeg]),
            variant(Some(200), Some(200), Fit::Cover, &[Webp]),
            variant(Some(200), Some(200), Fit::Pad, &[Png]),
            variant(None, Some(300), Fit::Contain, &[Jpeg]),
        ])
    };

    let (set, scratch) = made(&input, &wanted).await.unwrap();

    let sizes: Vec<_> = set.outputs.iter().map(|o| (o.variant, o.format, o.width, o.height)).collect();
    let expected = [
        (0, Jpeg, 64, 43),
        (0, Webp, 64, 43),
        (0, Png, 64, 43),
        (0, Avif, 64, 43),
        (0, Gif, 64, 43),
        (1, Jpeg, 1601, 1067),
        (2, Webp, 801, 534),
        (2, Jpeg, 801, 534),
        (3, Webp, 200, 200),
        (4, Png, 200, 200),
        (5, Jpeg, 450, 300),
    ];
    assert_eq!(sizes, expected);
    for output in &set.outputs {
        let bytes = std::fs::read(&output.path).unwrap();
        assert_eq!(output.bytes, bytes.len() as u64);
        assert_eq!(output.sha256, sha256(&output.path));
        assert_eq!(field(&output.path, "width"), Some(output.width.to_string()));
        assert_eq!(field(&output.path, "height"), Some(output.height.to_string()));
        let format = sniff_file(&output.path).await.unwrap();
        let as_asked = match output.format {
            Jpeg => Format::Jpeg,
            Webp => Format::Webp,
            Png => Format::Png,
            Avif => Format::Avif,
            Gif => Format::Gif,
        };
        assert_eq!(format, as_asked);
    }
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), expected.len());
    // A progressive JPEG begins its frame with another marker.
    let jpeg = std::fs::read(&set.outputs[0].path).unwrap();
    assert!(jpeg.windows(2).any(|marker| marker == [0xff, 0xc2]));
    assert!(set.thumbhash.is_some_and(|hash| (20..50).contains(&hash.len())));
    assert!(is_near(colour_at(&set.outputs[9].path, (50, 2)), [255; 3], 0), "bars are white");
}

fn sha256(path: &Path) -> String {
    let done = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(done.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

#[tokio::test]
async fn sizes_made_from_a_smaller_one_look_as_if_made_from_the_source() {
    let input =
        clips::clip("fine.png", &["-f", "lavfi", "-i", "mandelbrot=size=1280x960:rate=1", "-frames:v", "1"]);
    let png = [ImageFormat::Png];
    let cascade = spec(vec![wide(640, &png), wide(320, &png), wide(160, &png)]);

    let (set, _scratch) = made(&input, &cascade).await.unwrap();
    let (alone, _alone_scratch) = made(&input, &spec(vec![wide(160, &png)])).await.unwrap();

    let compare = ["-lavfi", "[0:v][1:v]psnr", "-f", "null", "-"];
    let mut command = Command::new("ffmpeg");
    command.arg("-i").arg(&set.outputs[2].path).arg("-i").arg(&alone.outputs[0].path).args(compare);
    let text = String::from_utf8(command.output().unwrap().stderr).unwrap();
    let psnr = text.split("average:").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(psnr == "inf" || psnr.parse::<f64>().unwrap() > 38.0, "{psnr} dB");
}

#[tokio::test]
async fn colours_of_another_profile_become_srgb() {
    let plain = corners("flat.png", "null");
    let p3 = clips::made("p3.jpg", |path| {
        vips(&["icc_transform"], &[&plain, path, Path::new("p3")]);
    });
    assert!(field(&p3, "icc-profile-data").is_some());
    let stored = colour_at(&p3, CORNERS[1].0);
    assert!(!is_near(stored, CORNERS[1].1, 20), "the profile changes nothing: {stored:?}");

    let (set, _scratch) = made(&p3, &spec(vec![wide(240, &[ImageFormat::Png])])).await.unwrap();

    for (place, colour) in CORNERS {
        let have = colour_at(&set.outputs[0].path, place);
        assert!(is_near(have, colour, 16), "{place:?}: {have:?}, not {colour:?}");
    }
    assert_eq!(field(&set.outputs[0].path, "icc-profile-data"), None);
}

#[tokio::test]
async fn an_animation_is_kept_or_becomes_its_first_frame() {
    let source = ["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=5:duration=1.4"];
    let gif = clips::clip("moving.gif", &source);
    let webp = clips::clip("moving.webp", &[&source[..], &["-c:v", "libwebp_anim", "-loop", "0"]].concat());
    let formats = [ImageFormat::Webp, ImageFormat::Gif, ImageFormat::Jpeg];
    for input in [gif, webp] {
        let still = spec(vec![wide(80, &formats)]);
        let keep = ImageSpec { animation: Animation::Keep, ..still.clone() };

        let (kept, _kept_scratch) = made(&input, &keep).await.unwrap();
        let (first, _first_scratch) = made(&input, &still).await.unwrap();

        assert_eq!(kept.source_frames, 7);
        let frames = |set: &ImageSet| set.outputs.iter().map(|output| output.frames).collect::<Vec<_>>();
        assert_eq!((frames(&kept), frames(&first)), (vec![7, 7, 1], vec![1, 1, 1]));
        for output in &kept.outputs[..2] {
            assert_eq!((output.width, output.height), (80, 45));
            assert_eq!(field(&output.path, "n-pages").as_deref(), Some("7"), "{output:?}");
            let delays = field(&output.path, "delay").unwrap();
            assert!(delays.split_whitespace().all(|delay| delay == "200"), "{delays}");
        }
        assert_ne!(field(&first.outputs[0].path, "n-pages").as_deref(), Some("7"));
    }
}

#[tokio::test]
async fn avif_and_heic_are_read() {
    let plain = corners("plain.png", "null");
    for (name, compression, format) in
        [("corners.avif", "av1", Format::Avif), ("corners.heic", "hevc", Format::Heic)]
    {
        let input = clips::made(name, |path| {
            let option = format!("--compression={compression}");
            vips(&["heifsave", &option], &[&plain, path]);
        });
        assert_eq!(sniff_file(&input).await.unwrap(), format);

        let (set, _scratch) = made(&input, &spec(vec![wide(120, &[ImageFormat::Png])])).await.unwrap();

        for (place, colour) in CORNERS {
            let have = colour_at(&set.outputs[0].path, place);
            assert!(is_near(have, colour, 24), "{name} {place:?}: {have:?}, not {colour:?}");
        }
    }
}

#[tokio::test]
async fn a_large_picture_that_must_be_decoded_whole_is_scaled_while_it_is_read() {
    let input = clips::made("poster.png", |path| {
        vips(&["black"], &[path, Path::new("9000"), Path::new("7000"), Path::new("--bands=3")]);
    });
    let wanted = spec(vec![wide(1000, &[ImageFormat::Jpeg]), wide(700, &[ImageFormat::Webp])]);

    let (set, _scratch) = made(&input, &wanted).await.unwrap();

    let sizes: Vec<_> = set.outputs.iter().map(|output| (output.width, output.height)).collect();
    assert_eq!(sizes, [(1000, 778), (700, 544)]);
    assert!(is_near(colour_at(&set.outputs[0].path, (50, 50)), [0; 3], 0));
}

#[tokio::test]
async fn what_can_be_seen_through_lies_on_white_in_a_jpeg() {
    let clear =
        ["-f", "lavfi", "-i", "color=red@0.0:size=64x64:duration=1:rate=1,format=rgba", "-frames:v", "1"];
    let input = clips::clip("clear.png", &clear);
    let formats = [ImageFormat::Jpeg, ImageFormat::Webp];

    let (set, _scratch) = made(&input, &spec(vec![wide(32, &formats)])).await.unwrap();

    assert!(set.has_alpha);
    assert!(is_near(colour_at(&set.outputs[0].path, (50, 50)), [255; 3], 2));
    assert_eq!(field(&set.outputs[1].path, "bands").as_deref(), Some("4"));
}

#[tokio::test]
async fn small_and_odd_sizes_work() {
    for (name, size) in [("dot.png", "1x1"), ("odd.png", "7x3"), ("line.png", "2000x1")] {
        let source = format!("color=blue:size={size}:duration=1:rate=1,format=rgb24");
        let input = clips::clip(name, &["-f", "lavfi", "-i", &source, "-frames:v", "1"]);
        use ImageFormat::{Avif, Jpeg, Png, Webp};
        let wanted = ImageSpec {
            thumbhash: true,
            ..spec(vec![
                wide(320, &[Jpeg, Webp, Png, Avif]),
                variant(Some(5), Some(5), Fit::Cover, &[Jpeg, Webp]),
                variant(Some(5), Some(5), Fit::Pad, &[Webp]),
            ])
        };

        let (set, _scratch) = made(&input, &wanted).await.unwrap_or_else(|error| panic!("{name}: {error}"));

        let whole = (set.outputs[0].width, set.outputs[0].height);
        assert_eq!(
            whole,
            [("1x1", (1, 1)), ("7x3", (7, 3)), ("2000x1", (320, 1))]
                .iter()
                .find(|(s, _)| *s == size)
                .unwrap()
                .1
        );
        assert_eq!((set.outputs[6].width, set.outputs[6].height), (5, 5));
    }
}

#[tokio::test]
async fn grey_deep_and_printed_colours_become_what_browsers_show() {
    let plain = corners("plain.png", "null");
    let grey = corners("grey.png", "format=gray");
    let deep = corners("deep.png", "format=rgb48be");
    let printed = clips::made("printed.jpg", |path| {
        vips(&["icc_transform"], &[&plain, path, Path::new("cmyk")]);
    });
    assert_eq!(field(&printed, "bands").as_deref(), Some("4"));
    let formats = [ImageFormat::Jpeg, ImageFormat::Webp, ImageFormat::Png, ImageFormat::Avif];
    for input in [grey, deep, printed] {
        let (set, _scratch) = made(&input, &spec(vec![wide(100, &formats)])).await.unwrap();

        for output in &set.outputs {
            assert!(field(&output.path, "format").unwrap().contains("UCHAR"), "{output:?}");
            assert!(matches!(field(&output.path, "bands").as_deref(), Some("1" | "3")), "{output:?}");
        }
    }
}

#[tokio::test]
async fn a_file_that_ends_early_is_told_from_a_small_picture() {
    let source = ["-f", "lavfi", "-i", "testsrc2=size=640x480:rate=1:duration=1", "-frames:v", "1"];
    let all = [("jpg", Format::Jpeg), ("png", Format::Png), ("webp", Format::Webp), ("gif", Format::Gif)];
    for (extension, format) in all {
        let name = &format!("whole.{extension}");
        let whole = std::fs::read(clips::clip(name, &source)).unwrap();
        for tenths in 1..10 {
            let cut = clips::made(&format!("cut{tenths}-{name}"), |path| {
                std::fs::write(path, &whole[..whole.len() * tenths / 10]).unwrap();
            });

            let answer = made(&cut, &spec(vec![wide(320, &[ImageFormat::Jpeg])])).await;

            let error = answer.map(|_| ()).expect_err(&format!("{name} at {tenths}/10"));
            assert_eq!(error.code(), "input_truncated", "{name} {tenths}: {error}");
            // A second line: were its end not looked at, the loaders would notice.
            let job = job(cut, format, ImageFormat::Jpeg);
            assert!(matches!(answered(&job), VipsAnswer::Refused { .. }), "{name} {tenths}");
        }
    }
}

#[tokio::test]
async fn nothing_and_not_a_picture_are_refused() {
    let empty = clips::made("empty.jpg", |path| std::fs::write(path, b"").unwrap());
    let wanted = spec(vec![wide(320, &[ImageFormat::Jpeg])]);

    assert_eq!(made(&empty, &wanted).await.map(|_| ()).unwrap_err().code(), "input_empty");
    assert_eq!(made(&clips::plain(), &wanted).await.map(|_| ()).unwrap_err().code(), "input_no_such_stream");
}

/// 64k x 64k pixels that a header of some bytes promises.
fn png_bomb() -> PathBuf {
    clips::made("bomb.png", |path| {
        let chunk = |kind: &[u8; 4], data: &[u8]| {
            let body = [kind, data].concat();
            [&u32::try_from(data.len()).unwrap().to_be_bytes()[..], &body, &crc32(&body).to_be_bytes()]
                .concat()
        };
        let side = 65_536_u32.to_be_bytes();
        let header = chunk(b"IHDR", &[&side[..], &side, &[8, 2, 0, 0, 0]].concat());
        let nothing = [0x78, 0x9c, 3, 0, 0, 0, 0, 1];
        let bytes =
            [&b"\x89PNG\r\n\x1a\n"[..], &header, &chunk(b"IDAT", &nothing), &chunk(b"IEND", &[])].concat();
        std::fs::write(path, bytes).unwrap();
    })
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}

fn gif_bomb() -> PathBuf {
    clips::made("bomb.gif", |path| {
        let mut bytes = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff".to_vec();
        for _ in 0..100_000 {
            bytes.extend_from_slice(b"\x21\xf9\x04\0\x01\0\0\0\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0");
        }
        bytes.push(0x3b);
        std::fs::write(path, bytes).unwrap();
    })
}

#[tokio::test]
async fn bombs_are_refused_by_their_headers() {
    for (bomb, animation) in [
        (png_bomb(), Animation::FirstFrame),
        (gif_bomb(), Animation::FirstFrame),
        (gif_bomb(), Animation::Keep),
    ] {
        let wanted = ImageSpec { animation, ..spec(vec![wide(320, &[ImageFormat::Webp])]) };

        let error = made(&bomb, &wanted).await.map(|_| ()).unwrap_err();

        assert_eq!((error.code(), error.is_retryable()), ("input_too_large", false), "{error}");
    }
}

fn job(input: PathBuf, format: Format, output: ImageFormat) -> VipsJob {
    let spec = spec(vec![wide(320, &[output])]);
    VipsJob { input, format, spec, limits: Limits::default(), threads: 2 }
}

/// By the program itself, in little memory and time.
fn answered(job: &VipsJob) -> VipsAnswer {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = Command::new("prlimit");
    command.args(["--as=1073741824", "--cpu=20"]).arg(vips_helper()).arg(serde_json::to_string(job).unwrap());
    let done = command.current_dir(scratch.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

#[tokio::test]
async fn a_bomb_is_refused_in_little_memory_and_time() {
    for (bomb, format) in [(png_bomb(), Format::Png), (gif_bomb(), Format::Gif)] {
        let answer = answered(&job(bomb, format, ImageFormat::Webp));

        assert!(matches!(answer, VipsAnswer::Refused { .. }), "{answer:?}");
    }
}

#[tokio::test]
async fn a_helper_that_dies_takes_nobody_along() {
    let toolbox = clips::toolbox().with(Program::VipsHelper, "/bin/false");
    let scratch = tempfile::tempdir().unwrap();
    let input = corners("corners1.jpg", "null");
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    let wanted = ImageSpec::default();

    let answer = make_images(&toolbox, &input, Format::Jpeg, &wanted, &limits, scratch.path(), &cancel).await;

    let error = answer.unwrap_err();
    assert_eq!((error.code(), error.is_retryable(), error.step()), ("tool_failed", true, "images"));
}

/// Names are bytes to Linux, and text to libvips and to JSON.
#[tokio::test]
async fn a_name_that_is_no_text_is_a_name_like_others() {
    use std::os::unix::ffi::OsStringExt;
    let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let name = |bytes: &[u8]| folder.path().join(std::ffi::OsString::from_vec(bytes.to_vec()));
    let (photo, film) = (name(b"photo\xff.png"), name(b"film\xff.mp4"));
    std::fs::copy(clips::clip("named.png", &[clips::VIDEO, &["-frames:v", "1"]].concat()), &photo).unwrap();
    std::fs::copy(clips::plain(), &film).unwrap();
    let confined = crate::sandbox::toolbox().with(Program::VipsHelper, vips_helper());
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    for toolbox in [confined, toolbox()] {
        let variants = spec(vec![wide(100, &[ImageFormat::Jpeg])]);

        let film = telecine_media::probe(&toolbox, &film, &limits, &cancel).await.unwrap();
        let set =
            make_images(&toolbox, &photo, Format::Png, &variants, &limits, scratch.path(), &cancel).await;

        assert_eq!(film.video().map(|video| video.width), Some(320));
        assert_eq!(set.unwrap().outputs[0].width, 100);
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1, "the output alone");
    }
}

#[tokio::test]
async fn pictures_that_ffmpeg_does_not_read_are_described_and_planned_for() {
    let still = clips::clip("described.png", &[clips::VIDEO, &["-frames:v", "1"]].concat());
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    let capabilities = telecine_media::Capabilities::detect(&toolbox(), &cancel).await.unwrap();
    let recipe = serde_json::from_str(r#"{"images": {}}"#).unwrap();
    for (name, format) in [("described.avif", Format::Avif), ("described.heic", Format::Heic)] {
        let options = if format == Format::Heic { "[compression=hevc]" } else { "" };
        let path = clips::made(name, |path| {
            vips(&["copy"], &[&still, Path::new(&format!("{}{options}", path.display()))]);
        });

        let probe = telecine_media::probe(&toolbox(), &path, &limits, &cancel).await.unwrap();
        let plan = telecine_media::plan(&recipe, &probe, &capabilities);

        let video = probe.video().unwrap();
        assert_eq!((probe.format, video.width, video.height), (format, 320, 180), "{name}");
        assert!(plan.is_ok(), "{name}: {plan:?}");
        let tools = toolbox();
        let measured = telecine_media::with_measured_length(&tools, &path, probe.clone(), &limits, &cancel);
        assert_eq!(measured.await.unwrap(), probe);
        let small = Limits { image_side: 200, ..Limits::default() };
        let error = telecine_media::probe(&toolbox(), &path, &small, &cancel).await.unwrap_err();
        assert_eq!(error.code(), "input_too_large", "{name}");
    }
}

/// libvips writes through mapped memory, so a full disk kills it. `/proc` has no block that is free.
#[tokio::test]
async fn a_crash_on_a_full_disk_is_told_as_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let dying = folder.path().join("telecine-vips");
    clips::script(&dying, "kill -BUS $$\n");
    let toolbox = clips::toolbox().with(Program::VipsHelper, &dying);
    let photo = clips::clip("full.png", &[clips::VIDEO, &["-frames:v", "1"]].concat());
    let (limits, cancel) = (Limits::default(), CancellationToken::new());

    for (scratch, expected) in [(folder.path(), "tool_crashed"), (Path::new("/proc"), "disk_full")] {
        let spec = ImageSpec::default();
        let made = make_images(&toolbox, &photo, Format::Png, &spec, &limits, scratch, &cancel).await;

        assert_eq!(made.unwrap_err().code(), expected);
    }
}
