//! Files that cost more than they seem to.

use std::fmt::Write as _;

use super::boxes::{boxed, with_number};
use super::work::{assert_only, worked};
use super::{BROKEN, WHOLE, code, probed, write};
use crate::clips::{self, AAC, AUDIO, VIDEO, X264};

#[tokio::test]
async fn a_picture_of_sixty_four_thousand_pixels_a_side_is_refused_before_it_is_decoded() {
    let folder = tempfile::tempdir().unwrap();
    for (name, side) in [("64k.png", 65_535_u32), ("16k.png", 16_385), ("negative.png", u32::MAX)] {
        let path = write(folder.path(), name, png(side, side));

        let error = probed(&path).await.unwrap_err();

        assert_eq!(error.code(), "input_too_large", "{name}: {error} {}", error.stderr_tail());
        // libvips reads such a size as none at all.
        assert_only(&path, &worked(&path).await, &["input_too_large", "input_corrupt"]);
    }
}

/// A PNG file that declares a size and holds next to nothing.
fn png(width: u32, height: u32) -> Vec<u8> {
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    // One stored block of zlib, with a wrong checksum at its end that nobody gets to.
    let data = [0x78, 1, 1, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
    let part = |name: &[u8; 4], content: &[u8]| {
        let named = [name, content].concat();
        let size = u32::try_from(content.len()).unwrap();
        [&size.to_be_bytes()[..], &named, &crc32(&named).to_be_bytes()].concat()
    };
    [b"\x89PNG\r\n\x1a\n", &part(b"IHDR", &header)[..], &part(b"IDAT", &data), &part(b"IEND", &[])].concat()
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[tokio::test]
async fn a_gif_of_a_hundred_thousand_frames_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let frame = b"!\xf9\x04\0\x01\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0";
    let head = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0";
    let path = write(folder.path(), "frames.gif", [&head[..], &frame.repeat(100_000), b";"].concat());

    assert_only(&path, &worked(&path).await, &["input_too_large"]);
}

#[tokio::test]
async fn a_film_of_ten_hours_is_too_long() {
    let slow = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=1/3600", "-frames:v", "11"];
    let path = clips::clip("ten_hours.mp4", &[&slow[..], X264].concat());

    assert_eq!(code(&probed(&path).await), "input_too_long");
}

/// Only the header says so: the samples are those of two seconds.
#[tokio::test]
async fn a_film_that_claims_ten_hours_is_too_long_or_told_by_its_samples() {
    let folder = tempfile::tempdir().unwrap();
    let plain = std::fs::read(clips::plain()).unwrap();
    let claimed = with_number(&plain, b"mvhd", 16, 36_000_000);
    let claimed = with_number(&claimed, b"mdhd", 16, 36_000 * 48_000);
    let path = write(folder.path(), "claims.mp4", claimed);

    let verdicts = worked(&path).await;

    assert_only(&path, &verdicts, &["ok", "unfit", "input_too_long", "input_truncated"]);
    let mkv = std::fs::read(clips::clip("claims.mkv", &[VIDEO, X264].concat())).unwrap();
    // The element Duration: a float of eight bytes, in milliseconds.
    let at = mkv.windows(3).position(|window| window == [0x44, 0x89, 0x88]).unwrap() + 3;
    let mut long = mkv.clone();
    long[at..at + 8].copy_from_slice(&36_000_000_f64.to_be_bytes());
    assert_eq!(code(&super::probed(&write(folder.path(), "long.mkv", long)).await), "input_too_long");
    let mut negative = mkv;
    negative[at..at + 8].copy_from_slice(&(-5_f64).to_be_bytes());
    let path = write(folder.path(), "negative.mkv", negative);
    assert_only(&path, &worked(&path).await, WHOLE);
}

#[tokio::test]
async fn a_hundred_tracks_are_too_many() {
    let plain = clips::plain();
    let maps = ["-map", "0:v"].repeat(100);
    let path =
        clips::clip("tracks.mp4", &[&["-i", plain.to_str().unwrap()], &maps[..], &["-c", "copy"]].concat());

    assert_only(&path, &worked(&path).await, &["input_too_many_streams"]);
}

#[tokio::test]
async fn small_and_odd_sizes_are_films_like_others() {
    for size in ["1:1", "2:2", "321:181", "17:333"] {
        // Sources of FFmpeg round to even sizes; a crop of RGB does not.
        let source = format!("testsrc2=size=400x400:rate=25:duration=0.4,format=rgb24,crop={size}");
        let input = ["-f", "lavfi", "-i", &source, "-pix_fmt", "yuv444p"];
        let video = clips::clip(
            &format!("{}.mkv", size.replace(':', "x")),
            &[&input[..], &["-c:v", "ffv1"]].concat(),
        );
        let picture = clips::clip(
            &format!("{}.png", size.replace(':', "x")),
            &[&input[..4], &["-frames:v", "1"]].concat(),
        );

        assert_only(&video, &worked(&video).await, WHOLE);
        assert_only(&picture, &worked(&picture).await, WHOLE);
    }
}

#[tokio::test]
async fn boxes_in_boxes_and_boxes_larger_than_the_world_end_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let ftyp = boxed(b"ftyp", b"isom\0\0\x02\0isomiso2avc1mp41");
    let nested = |name: &[u8; 4], depth: usize| {
        let sizes = (1..=depth).rev().map(|n| u32::try_from(n * 8).unwrap());
        sizes.flat_map(|size| [&size.to_be_bytes()[..], name].concat()).collect::<Vec<u8>>()
    };
    let mut cases: Vec<(String, Vec<u8>)> = Vec::new();
    for name in [b"moov", b"trak", b"udta", b"meta", b"dinf"] {
        let bytes = [&ftyp[..], &boxed(b"moov", &nested(name, 10_000))].concat();
        cases.push((format!("{}.mp4", String::from_utf8_lossy(name)), bytes));
    }
    let endless = |name: &[u8; 4], size: u64| {
        [&ftyp[..], &1_u32.to_be_bytes(), name, &size.to_be_bytes(), b"rest"].concat()
    };
    for size in [0_u64, 1, 15, 1 << 40, i64::MAX.cast_unsigned(), u64::MAX] {
        for name in [b"moov", b"mdat", b"free"] {
            cases.push((format!("{}_{size}.mp4", String::from_utf8_lossy(name)), endless(name, size)));
        }
    }
    for (name, bytes) in cases {
        let path = write(folder.path(), &name, bytes);
        assert_only(&path, &worked(&path).await, &["input_truncated", "input_corrupt"]);
    }
}

#[tokio::test]
async fn tables_that_count_to_the_sky_and_times_before_time_end_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let plain = std::fs::read(clips::plain()).unwrap();
    for (name, at) in [
        (b"stts", 4),
        (b"stsc", 4),
        (b"stsz", 8),
        (b"stco", 4),
        (b"ctts", 4),
        (b"stss", 4),
        (b"stsd", 4),
        (b"elst", 4),
        (b"dref", 4),
        // Time scales, then durations.
        (b"mvhd", 12),
        (b"mdhd", 12),
        (b"mvhd", 16),
        (b"mdhd", 16),
        (b"stts", 12),
    ] {
        for value in [0, 0x7fff_ffff, u32::MAX] {
            let mut file = String::from_utf8_lossy(name).into_owned();
            write!(file, "_{at}_{value:x}.mp4").unwrap();
            let path = write(folder.path(), &file, with_number(&plain, name, at, value));
            assert_only(&path, &worked(&path).await, BROKEN);
        }
    }
}

/// A file that is much when unpacked: the answer of ffprobe itself is the bomb.
#[tokio::test]
async fn a_million_chapters_are_a_bounded_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut notes = String::from(";FFMETADATA1\n");
    for n in 0..60_000 {
        write!(notes, "[CHAPTER]\nTIMEBASE=1/1000\nSTART={n}\nEND={}\ntitle={}\n", n + 1, "x".repeat(200))
            .unwrap();
    }
    let notes = write(folder.path(), "notes.txt", notes);
    let inputs = [VIDEO, AUDIO, &["-i", notes.to_str().unwrap(), "-map_metadata", "2"]].concat();
    let path = clips::clip("chapters_many.mkv", &[&inputs[..], X264, AAC].concat());

    assert_eq!(code(&probed(&path).await), "input_hostile");
}
