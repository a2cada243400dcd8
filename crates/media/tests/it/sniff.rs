use telecine_media::{Format, sniff, sniff_file};

use crate::clips::{self, AAC, AUDIO, VIDEO, X264};

#[tokio::test]
async fn every_accepted_type_is_known_by_its_content() {
    let both = [VIDEO, AUDIO, X264, AAC].concat();
    let vp9 = ["-c:v", "libvpx", "-b:v", "200k", "-deadline", "realtime", "-c:a", "libopus"];
    let webm = [VIDEO, AUDIO, &vp9].concat();
    let image = [VIDEO, &["-frames:v", "1"]].concat();
    let sound = |codec: &'static [&'static str]| [AUDIO, codec].concat();
    let cases: Vec<(&str, Format, Vec<&str>)> = vec![
        ("a.mp4", Format::Mp4, both.clone()),
        ("a.mov", Format::Mp4, both.clone()),
        ("a.m4a", Format::M4a, sound(&["-c:a", "aac"])),
        ("a.mkv", Format::Matroska, both.clone()),
        ("a.webm", Format::Webm, webm),
        ("a.avi", Format::Avi, [VIDEO, &["-c:v", "mpeg4"]].concat()),
        ("a.ts", Format::MpegTs, both.clone()),
        ("a.m2ts", Format::MpegTs, both.clone()),
        ("a.flv", Format::Flv, [VIDEO, AUDIO, X264, AAC].concat()),
        ("a.ogg", Format::Ogg, sound(&["-c:a", "libopus"])),
        ("a.wav", Format::Wav, sound(&[])),
        ("a.mp3", Format::Mp3, sound(&["-b:a", "128k"])),
        ("no_tag.mp3", Format::Mp3, sound(&["-write_xing", "0", "-id3v2_version", "0", "-ar", "22050"])),
        ("a.flac", Format::Flac, sound(&[])),
        ("a.aac", Format::Adts, sound(&["-c:a", "aac"])),
        ("a.jpg", Format::Jpeg, image.clone()),
        ("a.png", Format::Png, image.clone()),
        ("a.webp", Format::Webp, image.clone()),
        ("a.gif", Format::Gif, image),
        (
            "a.avif",
            Format::Avif,
            [VIDEO, &["-frames:v", "1", "-c:v", "libaom-av1", "-cpu-used", "8"]].concat(),
        ),
    ];
    for (name, format, args) in cases {
        let path = clips::clip(&format!("sniff_{name}"), &args);
        assert_eq!(sniff_file(&path).await.map_err(|error| error.to_string()), Ok(format), "{name}");
    }
}

#[tokio::test]
async fn a_name_decides_nothing() {
    let path = clips::made("really_a_png.mp4", |path| {
        clips::ffmpeg(&[VIDEO, &["-frames:v", "1", "-c:v", "png", "-f", "image2"]].concat(), path);
    });

    assert_eq!(sniff_file(&path).await.unwrap(), Format::Png);
}

#[test]
fn what_is_not_accepted_is_refused_with_its_code() {
    let heic = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic";
    assert_eq!(sniff(heic).unwrap(), Format::Heic);

    let cases: &[(&[u8], &str)] = &[
        (b"", "input_empty"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "input_hostile"),
        (b"\xef\xbb\xbf \r\n#EXTM3U\nhttp://localhost/\n", "input_hostile"),
        (b"ffconcat version 1.0\nfile '/etc/passwd'\n", "input_hostile"),
        (b"file '/etc/passwd'\n", "input_hostile"),
        (b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\n", "input_hostile"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "input_unsupported"),
        (b"<?xml version='1.0'?><MPD/>", "input_unsupported"),
        (b"<!DOCTYPE html><html></html>", "input_unsupported"),
        (b"PK\x03\x04\x14\x00", "input_unsupported"),
        (b"\x1f\x8b\x08\x00", "input_unsupported"),
        (b"BM\x00\x00", "input_unsupported"),
        (b"II*\x00\x08", "input_unsupported"),
        (b"\x7fELF\x02\x01", "input_unsupported"),
        (b"\xff\xfb", "input_unrecognised"),
        (b"GGGGGGGGGGGG", "input_unrecognised"),
        (b"just some words", "input_unrecognised"),
        (&[0; 4096], "input_unrecognised"),
        (&[0xff; 4096], "input_unrecognised"),
    ];
    for (head, code) in cases {
        let error = sniff(head).expect_err(&format!("{head:?}"));
        assert_eq!((error.code(), error.is_retryable()), (*code, false), "{}", String::from_utf8_lossy(head));
    }
}

#[tokio::test]
async fn no_beginning_of_a_file_makes_it_panic() {
    let whole = std::fs::read(clips::plain()).unwrap();
    for length in 0..600 {
        let _ = sniff(&whole[..length]);
        let _ = sniff(&whole[length..]);
    }
    for first in 0..=u8::MAX {
        for second in 0..=u8::MAX {
            let _ = sniff(&[first, second, 0x90, 0x64, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
    }
}

/// A pipe that nobody writes to would be waited for, for ever.
#[tokio::test]
async fn what_is_no_regular_file_is_refused_before_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.mp4");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    let cancel = tokio_util::sync::CancellationToken::new();
    let (toolbox, limits) = (crate::clips::toolbox(), telecine_media::Limits::default());

    for path in [pipe.as_path(), folder.path(), std::path::Path::new("/dev/zero")] {
        let sniffed = telecine_media::sniff_file(path).await.unwrap_err();
        let format = telecine_media::Format::Mp4;
        let probed = telecine_media::probe_as(&toolbox, path, format, &limits, &cancel).await.unwrap_err();
        let made = telecine_media::make_images(
            &toolbox,
            path,
            telecine_media::Format::Jpeg,
            &telecine_media::ImageSpec::default(),
            &limits,
            folder.path(),
            &cancel,
        )
        .await
        .unwrap_err();

        assert_eq!([sniffed.code(), probed.code(), made.code()], ["input_unsupported"; 3], "{path:?}");
    }
}
