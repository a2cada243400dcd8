use std::path::{Path, PathBuf};

use super::{RECIPE, encode, encode_whole, hashes, planned_video, range};
use crate::clips;
use crate::film::lines_of;

/// Five seconds whose frames are all of about one size, with a keyframe every ten.
fn busy(name: &str) -> PathBuf {
    let input = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=5", "-pix_fmt", "yuv420p"];
    let coded = ["-c:v", "libx264", "-preset", "veryfast", "-g", "10", "-bf", "2", "-sc_threshold", "0"];
    clips::clip(name, &[&input[..], &coded[..]].concat())
}

/// The same file with zeros for the packets that `choose` names by number, in the order of the file.
fn damaged(source: &Path, name: &str, choose: impl Fn(usize) -> bool) -> PathBuf {
    clips::made(name, |path| {
        let mut bytes = std::fs::read(source).unwrap();
        let args =
            ["-v", "error", "-select_streams", "v:0", "-show_entries", "packet=size,pos", "-of", "csv=p=0"];
        let packets = lines_of("ffprobe", &[&args[..], &[source.to_str().unwrap()]].concat());
        for (_, packet) in packets.iter().enumerate().filter(|(number, _)| choose(*number)) {
            let mut fields = packet.split(',').filter_map(|field| field.parse::<usize>().ok());
            let (size, at) = (fields.next().unwrap(), fields.next().unwrap());
            bytes[at..at + size].fill(0);
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
    let whole = busy("unbroken.mp4");
    // The keyframe that the second range begins with.
    let broken = damaged(&whole, "broken.mp4", |number| number == 50);
    let plan = planned_video(&whole, RECIPE).await;

    let film = encode_whole(&broken, &plan).await;
    let part = encode(&broken, &plan, range(2, 5), &[]).await.unwrap();

    assert_eq!(hashes(&part.segments), hashes(&film.segments[2..]));
    assert!(film.segments[2].damaged_frames > 0);
    assert_eq!(film.segments[2].damaged_frames, part.segments[0].damaged_frames);
}
