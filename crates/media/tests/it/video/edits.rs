use std::path::{Path, PathBuf};

use super::{encode_whole, planned, planned_video, stream};
use crate::clips::{self, VIDEO, X264};

fn size(path: &Path) -> (u64, u64) {
    let stream = stream(path);
    (stream["width"].as_u64().unwrap(), stream["height"].as_u64().unwrap())
}

/// A red left and a blue right half, so that turning and cutting show.
fn halves() -> PathBuf {
    let graph = "color=red:size=160x180:rate=25:duration=1[l];color=blue:size=160x180:rate=25:duration=1[r];\
                 [l][r]hstack,format=yuv420p";
    clips::clip("halves.mp4", &[&["-f", "lavfi", "-i", graph], X264].concat())
}

/// The colour at a place of the first frame.
fn pixel(path: &Path, x: u64, y: u64) -> [u8; 3] {
    let crop = format!("crop=2:2:{x}:{y},scale=1:1:flags=area,format=rgb24");
    let mut command = std::process::Command::new("ffmpeg");
    command.args(["-v", "error", "-i"]).arg(path).args([
        "-frames:v",
        "1",
        "-vf",
        &crop,
        "-f",
        "rawvideo",
        "-",
    ]);
    command.output().unwrap().stdout.try_into().unwrap()
}

fn is_red([r, g, b]: [u8; 3]) -> bool {
    r > 200 && g < 60 && b < 60
}

fn is_blue([r, g, b]: [u8; 3]) -> bool {
    b > 200 && g < 60 && r < 60
}

fn is_black(colour: [u8; 3]) -> bool {
    colour.iter().all(|part| *part < 30)
}

#[tokio::test]
async fn a_phones_video_stands_upright_in_every_rung() {
    let source = clips::made("halves-cw90.mp4", |path| {
        let mut bytes = std::fs::read(halves()).unwrap();
        let header = bytes.windows(4).position(|window| window == b"tkhd").unwrap();
        let matrix = [0, 1, 0, -1, 0, 0, 0, 0, 0x4000].map(|value: i32| (value << 16).to_be_bytes()).concat();
        bytes[header + 44..header + 80].copy_from_slice(&matrix);
        std::fs::write(path, bytes).unwrap();
    });
    let plan = planned_video(&source, r#"{"video": {"ladder": {"heights": [180, 120]}}}"#).await;

    let encoded = encode_whole(&source, &plan).await;

    let (large, small) = (encoded.joined("180p"), encoded.joined("120p"));
    assert_eq!((size(&large), size(&small)), ((180, 320), (120, 214)));
    assert!(is_red(pixel(&large, 90, 40)), "the left half is on top now: {:?}", pixel(&large, 90, 40));
    assert!(is_blue(pixel(&large, 90, 280)));
    assert!(stream(&large)["side_data_list"].is_null(), "nothing is left to be turned");
}

#[tokio::test]
async fn hdr_becomes_what_every_screen_shows() {
    let x265 = "log-level=error:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc:range=limited";
    let hdr = ["-c:v", "libx265", "-preset", "ultrafast", "-pix_fmt", "yuv420p10le", "-x265-params", x265];
    let source = clips::clip("pq.mp4", &[VIDEO, &hdr].concat());
    let plan = planned_video(&source, r#"{"video": {"ladder": {"heights": [180, 120]}}}"#).await;

    let encoded = encode_whole(&source, &plan).await;

    for rung in ["180p", "120p"] {
        let stream = stream(&encoded.joined(rung));
        assert_eq!(stream["pix_fmt"], "yuv420p");
        for tag in ["color_space", "color_transfer", "color_primaries"] {
            assert_eq!(stream[tag], "bt709", "{tag} of {rung}");
        }
        assert_eq!(stream["color_range"], "tv");
    }
}

#[tokio::test]
async fn odd_and_stretched_pictures_come_out_even_and_square() {
    let odd = clips::clip(
        "odd.mp4",
        &[
            VIDEO,
            &["-vf", "scale=321:181,setsar=1,format=yuv444p", "-c:v", "libx264", "-preset", "ultrafast"],
        ]
        .concat(),
    );
    let wide = clips::clip("wide.mp4", &[VIDEO, &["-vf", "scale=240:180,setsar=4/3"], X264].concat());
    for (source, wanted) in [(odd, (320, 180)), (wide, (320, 180))] {
        let plan = planned_video(&source, r#"{"video": {"allow_copy": false}}"#).await;

        let encoded = encode_whole(&source, &plan).await;

        let stream = stream(&encoded.joined("180p"));
        assert_eq!((stream["width"].as_u64(), stream["height"].as_u64()), (Some(wanted.0), Some(wanted.1)));
        assert_eq!(stream["pix_fmt"], "yuv420p");
        assert!(matches!(stream["sample_aspect_ratio"].as_str(), None | Some("1:1")));
        assert!(plan.rungs.iter().all(|rung| rung.size.short_side() <= 180), "nothing is enlarged");
    }
}

#[tokio::test]
async fn another_shape_is_cut_or_filled_with_bars() {
    let source = halves();
    let recipe =
        |fit| format!(r#"{{"video": {{"ladder": {{"heights": [180]}}, "aspect": [1, 1], "fit": "{fit}"}}}}"#);

    let cover = planned_video(&source, &recipe("cover")).await;
    let covered = encode_whole(&source, &cover).await.joined_size_and(&[(10, 90), (170, 90)]);
    let pad = planned_video(&source, &recipe("pad")).await;
    let padded = encode_whole(&source, &pad).await.joined_size_and(&[(90, 10), (10, 90), (170, 90)]);

    assert_eq!(covered.0, (180, 180));
    assert!(is_red(covered.1[0]) && is_blue(covered.1[1]));
    assert_eq!(padded.0, (180, 180));
    assert!(is_black(padded.1[0]) && is_red(padded.1[1]) && is_blue(padded.1[2]), "{:?}", padded.1);
}

impl super::Encoded {
    /// The size of the highest rung, and the colours at some places.
    fn joined_size_and(&self, places: &[(u64, u64)]) -> ((u64, u64), Vec<[u8; 3]>) {
        let joined = self.joined(&self.segments[0].files[0].rung);
        (size(&joined), places.iter().map(|(x, y)| pixel(&joined, *x, *y)).collect())
    }
}

#[tokio::test]
async fn a_watermark_lies_in_its_corner_in_every_segment() {
    let image = clips::clip("mark.png", &["-f", "lavfi", "-i", "color=white:size=40x40", "-frames:v", "1"]);
    let source = clips::clip(
        "blue.mp4",
        &[&["-f", "lavfi", "-i", "color=blue:size=320x180:rate=25:duration=2.5,format=yuv420p"], X264]
            .concat(),
    );
    let recipe = format!(
        r#"{{"video": {{"ladder": {{"heights": [180]}}, "segment_seconds": 1,
            "watermark": {{"image": {:?}, "corner": "top_right"}}}}}}"#,
        image.to_str().unwrap()
    );
    let plan = planned_video(&source, &recipe).await;

    let whole = encode_whole(&source, &plan).await;
    let last = super::encode(&source, &plan, super::range(2, 3), &[]).await.unwrap();

    assert_eq!(super::hashes(&whole.segments[2..]), super::hashes(&last.segments));
    let (_, colours) = last.joined_size_and(&[(300, 16), (10, 16), (300, 160)]);
    assert!(colours[0].iter().all(|part| *part > 220), "{colours:?}");
    assert!(is_blue(colours[1]) && is_blue(colours[2]), "{colours:?}");
}

#[tokio::test]
async fn a_watermark_that_is_no_picture_is_refused() {
    let source = halves();
    let list = clips::made("mark.m3u8", |path| std::fs::write(path, "#EXTM3U\n/etc/passwd\n").unwrap());
    let recipe = format!(r#"{{"video": {{"watermark": {{"image": {:?}}}}}}}"#, list.to_str().unwrap());
    let plan = planned(&source, &recipe).await.video.unwrap();

    let error =
        super::encode(&source, &plan, plan.grid.whole(), &[]).await.map(|it| it.segments).unwrap_err();

    assert_eq!(error.code(), "input_hostile");
}

#[tokio::test]
async fn rgb_and_full_range_keep_their_colours() {
    let graph = "color=0x3040f0:size=320x180:rate=25:duration=1";
    let lossless = ["-c:v", "libx264rgb", "-qp", "0", "-preset", "ultrafast", "-pix_fmt", "rgb24"];
    let rgb = clips::clip("rgb.mkv", &[&["-f", "lavfi", "-i", graph], &lossless[..]].concat());
    let full = "scale=out_range=full:out_color_matrix=bt601,format=yuvj420p";
    let jpeg = ["-vf", full, "-c:v", "mjpeg", "-q:v", "2"];
    let jpeg = clips::clip("full.mkv", &[&["-f", "lavfi", "-i", graph], &jpeg[..]].concat());
    for source in [rgb, jpeg] {
        let plan = planned_video(&source, r#"{"video": {"ladder": {"heights": [180]}}}"#).await;

        let encoded = encode_whole(&source, &plan).await;

        assert_eq!(stream(&encoded.joined("180p"))["color_range"], "tv");
        let (_, colours) = encoded.joined_size_and(&[(100, 100)]);
        let near = colours[0].iter().zip([0x30, 0x40, 0xf0]).all(|(seen, wanted)| seen.abs_diff(wanted) < 12);
        assert!(near, "{}: {:?}", source.display(), colours[0]);
    }
}
