//! Files that end too soon, are two things at once, or were damaged.

use std::path::PathBuf;

use telecine_media::{Class, Format, sniff};

use super::work::{assert_only, worked, worked_as};
use super::{DAMAGED, WHOLE, code, probed, write};
use crate::canary::Canary;
use crate::clips::{self, AAC, VIDEO, X264};

/// A small valid file of every format that FFmpeg reads.
pub(super) fn of_every_format() -> Vec<PathBuf> {
    let short_video = ["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=1"];
    let short_audio = ["-f", "lavfi", "-i", "sine=440:sample_rate=44100:duration=1"];
    let both = [&short_video[..], &short_audio, X264, AAC].concat();
    let one = [&short_video[..], &["-frames:v", "1"]].concat();
    let webm = [&short_video[..], &["-c:v", "libvpx", "-deadline", "realtime"]].concat();
    let mut files = vec![
        clips::clip("s_fast.mp4", &[&both[..], &["-movflags", "+faststart"]].concat()),
        clips::clip("s_frag.mp4", &[&both[..], &["-movflags", "+frag_keyframe+empty_moov"]].concat()),
        clips::clip("s.webm", &webm),
    ];
    files.extend(["s.mp4", "s.mov", "s.mkv", "s.avi", "s.ts", "s.flv"].map(|name| clips::clip(name, &both)));
    files.extend(
        ["s.ogg", "s.wav", "s.mp3", "s.flac", "s.aac", "s.m4a"].map(|name| clips::clip(name, &short_audio)),
    );
    files.extend(["s.jpg", "s.png", "s.webp"].map(|name| clips::clip(name, &one)));
    files.push(clips::clip("s.gif", &[&short_video[..], &["-frames:v", "5"]].concat()));
    files
}

/// Every format goes the whole way, so what the other tests refuse is refused for its faults.
#[tokio::test]
async fn a_whole_file_of_every_format_is_worked_on() {
    for path in of_every_format() {
        assert_only(&path, &worked(&path).await, WHOLE);
    }
}

/// What is cut after it was probed: everything that works on it has the word of the whole file. No one but who takes a
/// single picture, or has nobody's word for the length, may be content.
#[tokio::test]
async fn a_file_that_is_cut_behind_the_probes_back_is_never_a_short_success() {
    let (folder, canary) = (tempfile::tempdir().unwrap(), Canary::new());
    for whole_path in of_every_format() {
        let name = whole_path.file_name().unwrap().to_str().unwrap().to_owned();
        let probe = probed(&whole_path).await.unwrap();
        if probe.format.class() == Class::Image {
            continue;
        }
        let whole = std::fs::read(&whole_path).unwrap();
        // Half a second more or less is a matter of rounding, and these files have one.
        for tenth in [1, 3] {
            let path = write(folder.path(), &format!("{tenth}_{name}"), &whole[..whole.len() * tenth / 10]);

            let at_the_door = worked(&path).await;
            let mut verdicts = worked_as(&path, &probe).await;

            assert_only(&path, &at_the_door, &["input_truncated"]);
            let is_guessed = matches!(probe.format, Format::MpegTs | Format::Avi);
            // One picture may be there.
            let poster = verdicts.remove("poster");
            assert!(poster.is_none_or(|code| DAMAGED.contains(&code.as_str())), "{tenth} {name}");
            let is_untold =
                probe.video().is_some() && probe.audio().is_some_and(|it| it.duration_us.is_none());
            // Beside pictures, sound whose length nobody tells may well end before them.
            let forgiving: &[&str] = match (is_guessed, is_untold) {
                (true, _) => &["audio", "frames"],
                (false, true) => &["soundtrack", "frames"],
                (false, false) => &["frames"],
            };
            for (entry, code) in &verdicts {
                let is_refused = matches!(code.as_str(), "input_truncated" | "input_corrupt" | "unfit");
                let may_pass = code == "ok" && forgiving.contains(entry);
                assert!(is_refused || may_pass, "{tenth} {name} {entry}: {code}");
            }
        }
    }
    canary.assert_untouched();
}

#[tokio::test]
async fn nothing_and_next_to_nothing_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, expected) in [
        (vec![], "input_empty"),
        (vec![0], "input_unrecognised"),
        (vec![0; 100_000], "input_unrecognised"),
        (vec![0xff; 100_000], "input_unrecognised"),
        (b"hello".to_vec(), "input_unrecognised"),
        (b"RIFF".to_vec(), "input_unrecognised"),
        (b"\0\0\0\x18ftyp".to_vec(), "input_truncated"),
    ] {
        let path = write(folder.path(), "x", &bytes);
        assert_eq!(code(&probed(&path).await), expected, "{:?}", &bytes[..bytes.len().min(12)]);
    }
}

#[tokio::test]
async fn a_file_that_is_two_things_is_treated_as_the_one_it_begins_with() {
    let folder = tempfile::tempdir().unwrap();
    let mp4 = std::fs::read(clips::plain()).unwrap();
    let gif = std::fs::read(clips::clip("c.gif", &[VIDEO, &["-frames:v", "1"]].concat())).unwrap();
    let jpeg = std::fs::read(clips::clip("c.jpg", &[VIDEO, &["-frames:v", "1"]].concat())).unwrap();
    let zip = b"PK\x03\x04\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0aPK\x05\x06\0\0\0\0\x01\0\x01\0\x2f\0\0\0\x1f\0\0\0\0\0";
    // `GIF89a/*` opens a comment of JavaScript, in which the picture hides: 0x2a2f pixels wide.
    let script = b"GIF89a/*\x2f\0\x80\0\0\0\0\0\xff\xff\xff*/=1;alert(document.cookie)//;";
    let html = b"<!doctype html><script>alert(1)</script>";

    for (name, bytes, class, expected) in [
        ("mp4_zip.mp4", [&mp4[..], zip].concat(), Some(Class::Video), "ok"),
        ("zip_mp4.mp4", [&zip[..], &mp4].concat(), None, "input_unsupported"),
        ("jpeg_zip.jpg", [&jpeg[..], zip].concat(), Some(Class::Image), "ok"),
        ("gif_html.gif", [&gif[..], html].concat(), Some(Class::Image), "ok"),
        ("html_gif.gif", [&html[..], &gif].concat(), None, "input_unsupported"),
        ("gif_js.gif", script.to_vec(), Some(Class::Image), "input_corrupt"),
        ("pdf_mp4.mp4", [b"%PDF-1.4\n", &mp4[..]].concat(), None, "input_unsupported"),
        ("script_mp4.mp4", [b"#!/bin/sh\n", &mp4[..]].concat(), None, "input_unsupported"),
        ("exe_mp4.mp4", [b"\x7fELF", &mp4[..]].concat(), None, "input_unsupported"),
    ] {
        let path = write(folder.path(), name, &bytes);
        assert_eq!(sniff(&bytes).ok().map(Format::class), class, "{name}");
        let verdicts = worked(&path).await;
        // ffprobe is content with the header of a picture.
        let allowed: &[&str] = match expected {
            "ok" => WHOLE,
            "input_corrupt" => &["ok", "input_corrupt"],
            refused => &[refused],
        };
        assert_only(&path, &verdicts, allowed);
        assert!(expected == "ok" || verdicts.values().any(|code| code == expected), "{name}: {verdicts:?}");
    }
}

#[tokio::test]
async fn damaged_samples_are_contained() {
    let (folder, canary) = (tempfile::tempdir().unwrap(), Canary::new());
    let plain = std::fs::read(clips::plain()).unwrap();
    let start = plain.windows(4).position(|window| window == b"mdat").unwrap() + 4;
    let end = plain.windows(4).position(|window| window == b"moov").unwrap() - 4;
    let mut random = super::mutants::Random::new(4);
    for (n, damage) in [1, 3, 10, 100, 1_000].into_iter().enumerate() {
        let mut bytes = plain.clone();
        for _ in 0..damage {
            let at = start + random.below(end - start);
            bytes[at] ^= 1 << random.below(8);
        }
        let path = write(folder.path(), &format!("nal_{n}.mp4"), bytes);

        let verdicts = worked(&path).await;

        assert_eq!(verdicts["probe"], "ok", "the headers are whole");
        assert_only(&path, &verdicts, &["ok", "unfit", "input_corrupt", "input_truncated"]);
    }
    canary.assert_untouched();
}
