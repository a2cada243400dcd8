use std::path::{Path, PathBuf};

use telecine_media::SegmentDone;

use super::{RECIPE, encode, encode_whole, hashes, planned_video, range};
use crate::clips;
use crate::film::lines_of;

/// Five seconds whose frames are all of about one size, with a keyframe every ten.
fn busy(name: &str) -> PathBuf {
    busy_with(name, "2")
}

fn busy_with(name: &str, b_frames: &str) -> PathBuf {
    let input = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=5", "-pix_fmt", "yuv420p"];
    let coded = ["-c:v", "libx264", "-preset", "veryfast", "-g", "10", "-bf", b_frames, "-sc_threshold", "0"];
    clips::clip(name, &[&input[..], &coded[..]].concat())
}

/// The kind of each packet is left, so that a keyframe still looks like one.
const KEPT_BYTES: usize = 5;

/// The same file with zeros in the packets that `choose` names by number, in the order of the file.
fn damaged(source: &Path, name: &str, choose: impl Fn(usize) -> bool) -> PathBuf {
    clips::made(name, |path| {
        let mut bytes = std::fs::read(source).unwrap();
        let args =
            ["-v", "error", "-select_streams", "v:0", "-show_entries", "packet=size,pos", "-of", "csv=p=0"];
        let packets = lines_of("ffprobe", &[&args[..], &[source.to_str().unwrap()]].concat());
        for (_, packet) in packets.iter().enumerate().filter(|(number, _)| choose(*number)) {
            let mut fields = packet.split(',').filter_map(|field| field.parse::<usize>().ok());
            let (size, at) = (fields.next().unwrap(), fields.next().unwrap());
            bytes[at + KEPT_BYTES..at + size].fill(0);
        }
        std::fs::write(path, bytes).unwrap();
    })
}

#[tokio::test]
async fn a_fifth_that_cannot_be_decoded_is_a_corrupt_input() {
    for extension in ["mp4", "mkv"] {
        let whole = busy(&format!("whole.{extension}"));
        let holed = clips::made(&format!("holed.{extension}"), |path| {
            let mut bytes = std::fs::read(&whole).unwrap();
            let length = bytes.len();
            bytes[length * 2 / 5..length * 3 / 5].fill(0);
            std::fs::write(path, bytes).unwrap();
        });
        let plan = planned_video(&whole, RECIPE).await;

        let error = encode(&holed, &plan, plan.grid.whole(), &[]).await.map(|it| it.segments).unwrap_err();

        assert_eq!(error.code(), "input_corrupt", "{extension}: {error}");
        assert!(error.to_string().contains("frames cannot be decoded"), "{error}");
    }
}

#[tokio::test]
async fn a_scratch_is_told_with_the_segment_that_has_it() {
    let whole = busy("unscratched.mp4");
    let scratched = damaged(&whole, "scratched.mp4", |number| (64..68).contains(&number));
    let plan = planned_video(&whole, RECIPE).await;

    let clean = encode_whole(&whole, &plan).await;
    let film = encode_whole(&scratched, &plan).await;

    let damage = |film: &super::Encoded| -> Vec<u32> {
        film.segments.iter().map(|segment| segment.damaged_frames).collect()
    };
    assert_eq!(damage(&clean), [0; 5]);
    let told = damage(&film);
    assert!((1..=8).contains(&told[2]) && told.iter().sum::<u32>() == told[2], "{told:?}");
}

#[tokio::test]
async fn a_broken_keyframe_gives_the_same_bytes_in_every_range() {
    let whole = busy_with("unbroken.mp4", "0");
    // The keyframe before frame 25, with which the second segment begins: the next one comes too late for it.
    let broken = damaged(&whole, "broken.mp4", |number| number == 20);
    let plan = planned_video(&whole, RECIPE).await;

    let film = encode_whole(&broken, &plan).await;
    let part = encode(&broken, &plan, range(1, 5), &[]).await.unwrap();

    // What FFmpeg makes up in the second one is drawn over memory that its threads left, since it has threads.
    let repeatable = if version().await < 7 { 1 } else { 2 };
    assert_eq!(hashes(&part.segments[repeatable - 1..]), hashes(&film.segments[repeatable..]));
    assert!(film.segments[1].damaged_frames > 0);
    let told = |segment: &SegmentDone| (segment.segment, segment.frames, segment.damaged_frames);
    assert_eq!(
        part.segments.iter().map(told).collect::<Vec<_>>(),
        film.segments[1..].iter().map(told).collect::<Vec<_>>()
    );
}

/// Of FFmpeg: `5.1.9-0+deb12u1` or `n7.0-7-gd38bf5e08e`.
async fn version() -> u32 {
    let version = super::capabilities().await.ffmpeg_version.as_deref().unwrap();
    version.trim_start_matches('n').split('.').next().unwrap().parse().unwrap()
}
