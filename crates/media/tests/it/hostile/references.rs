//! Files that name other files and addresses.

use std::path::{Path, PathBuf};
use std::process::Command;

use telecine_media::{Format, Probe, Program};
use tokio_util::sync::CancellationToken;

use super::boxes::{boxed, with_boxes};
use super::work::{assert_only, worked, worked_as};
use super::{code, probed, probed_as, toolbox, write};
use crate::canary::Canary;
use crate::clips;

const DEMUXED: [Format; 8] = [
    Format::Mp4,
    Format::Matroska,
    Format::Avi,
    Format::MpegTs,
    Format::Flv,
    Format::Ogg,
    Format::Wav,
    Format::Mp3,
];

/// Text files that FFmpeg, left to itself, follows to the canary.
fn texts(canary: &Canary) -> Vec<(&'static str, String, &'static str)> {
    let (file, url) = (canary.file().display().to_string(), canary.url());
    let hls = |target: &str| {
        format!("#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10.0,\n{target}\n#EXT-X-ENDLIST\n")
    };
    vec![
        ("hls_file.mp4", hls(&file), "input_hostile"),
        ("hls_url.mp4", hls(&url), "input_hostile"),
        ("hls_concat.mp4", hls(&format!("concat:{url}|file://{file}")), "input_hostile"),
        ("hls_bom.mp4", format!("\u{feff}  \n{}", hls(&file)), "input_hostile"),
        (
            "hls_key.mp4",
            hls(&file).replace("#EXTINF", &format!("#EXT-X-KEY:METHOD=AES-128,URI=\"{url}\"\n#EXTINF")),
            "input_hostile",
        ),
        ("concat.mp4", format!("ffconcat version 1.0\nfile '{file}'\n"), "input_hostile"),
        ("concat_url.mp4", format!("ffconcat version 1.0\nfile '{url}'\n"), "input_hostile"),
        ("bare_concat.mp4", format!("file '{file}'\n"), "input_hostile"),
        ("pls.mp3", format!("[playlist]\nFile1={url}\n"), "input_hostile"),
        ("reference.mov", format!("[Reference]\nRef1={url}\n"), "input_hostile"),
        ("shortcut.mp4", format!("[InternetShortcut]\nURL={url}\n"), "input_hostile"),
        ("address.mp4", url.clone(), "input_hostile"),
        (
            "session.mp4",
            "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\nc=IN IP4 127.0.0.1\r\nm=video 9 RTP/AVP 96\r\n".into(),
            "input_hostile",
        ),
        (
            "dash.mp4",
            format!("<?xml version=\"1.0\"?><MPD><BaseURL>{url}</BaseURL></MPD>"),
            "input_unsupported",
        ),
        (
            "svg.png",
            format!("<svg xmlns=\"http://www.w3.org/2000/svg\"><image href=\"{url}\"/></svg>"),
            "input_unsupported",
        ),
        (
            "svg_file.png",
            format!("<?xml version=\"1.0\"?>\n<svg><image href=\"file://{file}\"/></svg>"),
            "input_unsupported",
        ),
        (
            "entity.xml",
            format!("<!DOCTYPE x [<!ENTITY e SYSTEM \"file://{file}\">]><x>&e;</x>"),
            "input_unsupported",
        ),
        (
            "asx.wmv",
            format!("<asx version=\"3.0\"><entry><ref href=\"{url}\"/></entry></asx>"),
            "input_unsupported",
        ),
        ("smil.mp4", format!("<smil><body><video src=\"{url}\"/></body></smil>"), "input_unsupported"),
        ("lavfi.mp4", format!("movie={file}"), "input_unrecognised"),
    ]
}

#[tokio::test]
async fn a_text_that_names_others_is_refused_by_its_content() {
    let (canary, folder) = (Canary::new(), tempfile::tempdir().unwrap());
    for (name, text, expected) in texts(&canary) {
        let path = write(folder.path(), name, text);

        let error = probed(&path).await.unwrap_err();

        assert_eq!((error.code(), error.is_retryable()), (expected, false), "{name}");
    }
    canary.assert_untouched();
}

/// The second line: were sniffing fooled, FFmpeg and ffprobe would still have only the demuxer they were told to use.
#[tokio::test]
async fn a_text_that_names_others_is_not_followed_whatever_it_is_taken_for() {
    let (canary, folder) = (Canary::new(), tempfile::tempdir().unwrap());
    let film = probed(&clips::plain()).await.unwrap();
    for (n, (name, text, _)) in texts(&canary).into_iter().enumerate() {
        let path = write(folder.path(), name, text);
        // Each text as one of the formats: all pairs would be 160 ways through the whole product.
        for format in [DEMUXED[n % DEMUXED.len()]] {
            let refused = ["input_truncated", "input_corrupt", "input_unsupported", "unfit"];
            let asked = code(&probed_as(&path, format).await);
            assert!(refused.contains(&asked.as_str()), "{name} as {format:?}: {asked}");
            let fooled = Probe { format, ..film.clone() };
            // FFmpeg 7 opens a text as an FLV file or a transport stream, and finds nothing in it.
            let refused = [&refused[..], &["input_no_such_stream"]].concat();
            assert_only(&path, &worked_as(&path, &fooled).await, &refused);
        }
    }
    canary.assert_untouched();
}

/// Without our arguments FFmpeg does follow these files: the tests above are about something.
#[test]
fn ffmpeg_left_to_itself_follows_them() {
    let (canary, folder) = (Canary::new(), tempfile::tempdir().unwrap());
    let free = |options: &[&str], path: &Path| {
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "quiet", "-nostdin"]).args(options).arg("-i").arg(path);
        let _ = command.args(["-f", "null", "-"]).status().unwrap();
        canary.hits()
    };
    let text = |wanted: &str| texts(&canary).into_iter().find(|(name, ..)| *name == wanted).unwrap().1;

    let hls = write(folder.path(), "hls.mp4", text("hls_file.mp4"));
    assert!(!free(&["-protocol_whitelist", "file"], &hls).is_empty(), "HLS");
    let concat = write(folder.path(), "concat.mp4", text("concat.mp4"));
    assert!(!free(&["-safe", "0"], &concat).is_empty(), "concat");
    let dref = with_reference(folder.path(), &canary);
    assert!(!free(&["-enable_drefs", "1", "-use_absolute_path", "1"], &dref).is_empty(), "dref");
}

/// The last line: were every argument of ours forgotten, the sandbox would still hold.
#[tokio::test]
async fn ffmpeg_left_to_itself_in_the_sandbox_reaches_nothing() {
    let (canary, folder) = (Canary::new(), tempfile::tempdir().unwrap());
    let free = async |options: &[&str], path: &Path| {
        let tool = toolbox().tool(Program::Ffmpeg, "free").unwrap().args(options).arg("-i").arg(path);
        let tool = tool.args(["-f", "null", "-"]).readable(path);
        let _ = tool.start(&CancellationToken::new()).unwrap().finish().await;
    };
    let everything = ["-protocol_whitelist", "file,http,tcp,concat,crypto,data"];
    for (name, text, _) in texts(&canary).into_iter().take(8) {
        let path = write(folder.path(), name, text);
        free(&everything, &path).await;
        free(&["-safe", "0"], &path).await;
    }
    let dref = with_reference(folder.path(), &canary);
    free(&["-enable_drefs", "1", "-use_absolute_path", "1"], &dref).await;

    canary.assert_untouched();
}

/// A QuickTime file whose samples are said to be in another file: an alias record with an absolute path.
fn with_reference(folder: &Path, canary: &Canary) -> PathBuf {
    let target = canary.file().display().to_string();
    let mut alias = vec![0; 4 + 10];
    alias.extend([&[1_u8][..], b"x", &[0; 26]].concat());
    alias.extend([0; 12]);
    alias.extend([&[9_u8][..], b"secret.ts", &[0; 54]].concat());
    alias.extend([0; 16]);
    alias.extend([&[0; 4][..], &[0; 16]].concat());
    let mut path = format!("x{target}").into_bytes();
    path.resize(path.len().next_multiple_of(2), 0);
    alias.extend(
        [&2_u16.to_be_bytes()[..], &u16::try_from(path.len()).unwrap().to_be_bytes(), &path].concat(),
    );
    alias.extend([&u16::MAX.to_be_bytes()[..], &[0; 2]].concat());
    let entries = [&[0, 0, 0, 0, 0, 0, 0, 1][..], &boxed(b"alis", &alias)].concat();
    let plain = std::fs::read(clips::plain()).unwrap();
    write(folder, "reference.mov", with_boxes(&plain, b"dref", &|_| entries.clone()))
}

#[tokio::test]
async fn a_film_whose_samples_are_elsewhere_is_not_followed() {
    let (canary, folder) = (Canary::new(), tempfile::tempdir().unwrap());
    let path = with_reference(folder.path(), &canary);

    // Its headers are those of a film; whoever wants samples meets a reference, or none of them.
    let verdicts = worked(&path).await;
    let allowed = ["ok", "unfit", "input_hostile", "input_corrupt", "input_truncated"];
    assert_only(&path, &verdicts, &allowed);
    for entry in ["encode_range", "poster", "frames", "audio", "soundtrack"] {
        assert_ne!(verdicts[entry], "ok", "{entry}");
    }

    canary.assert_untouched();
}

/// The addresses of a playlist behind the first bytes of something else.
#[tokio::test]
async fn a_playlist_in_the_clothes_of_a_film_is_not_followed() {
    let (canary, folder) = (Canary::new(), tempfile::tempdir().unwrap());
    let (_, playlist, _) = texts(&canary).swap_remove(1);
    let in_box = |name: &[u8; 4]| boxed(name, playlist.as_bytes());
    let ftyp = boxed(b"ftyp", b"isom\0\0\x02\0isomiso2avc1mp41");
    let ts: Vec<u8> = (0..8).flat_map(|_| [&b"G\x1f\xff\x10"[..], &[b'\n'; 184]].concat()).collect();
    for (name, bytes, expected) in [
        ("mdat.mp4", [&ftyp[..], &in_box(b"mdat")].concat(), "input_truncated"),
        ("tail.mp4", [&ftyp[..], playlist.as_bytes()].concat(), "input_truncated"),
        ("moov.mp4", [&ftyp[..], &in_box(b"moov")].concat(), "input_truncated"),
        // Its first letters are a size: 17,699 by 21,592 pixels.
        ("gif.gif", [b"GIF89a", playlist.as_bytes()].concat(), "input_too_large"),
        ("flv.flv", [b"FLV\x01\x05\0\0\0\x09\0\0\0\0", playlist.as_bytes()].concat(), "input_truncated"),
        ("ts.ts", [&ts[..], playlist.as_bytes()].concat(), "input_truncated"),
        ("id3.mp3", [b"ID3\x04\0\0\0\0\0\x02\0\0", playlist.as_bytes()].concat(), "input_unrecognised"),
    ] {
        let path = write(folder.path(), name, bytes);

        // libvips looks at the first frame before it looks at its size.
        let allowed = if name == "gif.gif" { [expected, "input_corrupt"] } else { [expected; 2] };
        assert_only(&path, &worked(&path).await, &allowed);
    }
    canary.assert_untouched();
}

/// Subtitles inside an AVI file are a file of their own, whose type FFmpeg once guessed: they may be a playlist.
#[tokio::test]
async fn a_playlist_in_the_subtitles_of_a_film_is_not_followed() {
    let (canary, folder) = (Canary::new(), tempfile::tempdir().unwrap());
    let (_, playlist, _) = texts(&canary).swap_remove(0);
    let path = write(folder.path(), "subtitles.avi", avi_with_subtitles(playlist.as_bytes()));

    assert_only(&path, &worked(&path).await, &["input_corrupt"]);

    canary.assert_untouched();
}

fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len()).unwrap().to_le_bytes();
    let padding: &[u8] = if content.len() % 2 == 1 { &[0] } else { &[] };
    [name, &size[..], content, padding].concat()
}

fn avi_with_subtitles(text: &[u8]) -> Vec<u8> {
    let numbers = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let main = numbers(&[40_000, 100_000, 0, 0x10, 1, 0, 1, 4096, 16, 16, 0, 0, 0, 0]);
    let header = [b"txts", &[0; 4][..], &numbers(&[0, 0, 0, 1, 25, 0, 1, 4096, 0, 0, 0, 0])].concat();
    let stream = chunk(b"LIST", &[b"strl", &chunk(b"strh", &header)[..], &chunk(b"strf", &[])].concat());
    let head = chunk(b"LIST", &[b"hdrl", &chunk(b"avih", &main)[..], &stream].concat());
    let size = u32::try_from(text.len()).unwrap();
    let gab2 = [
        b"GAB2\0",
        &2_u16.to_le_bytes()[..],
        &numbers(&[2]),
        b"x\0",
        &4_u16.to_le_bytes(),
        &numbers(&[size]),
        text,
    ];
    let body = chunk(b"LIST", &[b"movi", &chunk(b"00tx", &gab2.concat())[..]].concat());
    chunk(b"RIFF", &[b"AVI ", &head[..], &body].concat())
}
