//! The first bytes of files.

use super::Format;

pub(super) fn accepted(head: &[u8]) -> Option<Format> {
    of_signature(head)
        .or_else(|| of_riff(head))
        .or_else(|| of_iso_media(head))
        .or_else(|| of_matroska(head))
        .or_else(|| is_mpeg_ts(head).then_some(Format::MpegTs))
        .or_else(|| of_audio_frames(head))
}

/// Files whose whole point is to name other files or addresses.
pub(super) fn hostile(head: &[u8]) -> Option<&'static str> {
    let text = text_start(head);
    let begins =
        |word: &str| text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word.as_bytes());
    if begins("#EXT") {
        Some("a playlist (M3U), which names other files")
    } else if begins("ffconcat") || is_concat_list(text) {
        Some("a list for FFmpeg's concat, which names other files")
    } else if begins("[playlist]") || begins("[reference]") || begins("[InternetShortcut]") {
        Some("a playlist, which names other files")
    } else if begins("v=0\r\n") || begins("v=0\n") {
        Some("a session description (SDP), which names addresses")
    } else if begins("rtsp://") || begins("http://") || begins("https://") || begins("file:") {
        Some("an address instead of a file")
    } else {
        None
    }
}

/// Types we know and do not accept.
pub(super) fn refused(head: &[u8]) -> Option<&'static str> {
    let is_tar = head.get(257..262) == Some(b"ustar");
    let known: &[(&[u8], &str)] = &[
        (b"PK\x03\x04", "a ZIP archive, or a document made of one"),
        (b"PK\x05\x06", "an empty ZIP archive"),
        (b"Rar!\x1a\x07", "a RAR archive"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"\x1f\x8b", "a gzip file"),
        (b"BZh", "a bzip2 file"),
        (b"\xfd7zXZ\x00", "an xz file"),
        (b"\x28\xb5\x2f\xfd", "a zstd file"),
        (b"%PDF-", "a PDF document"),
        (b"%!PS", "a PostScript document"),
        (b"\x7fELF", "a program"),
        (b"MZ", "a program"),
        (b"#!", "a script"),
        (b"BM", "a BMP picture"),
        (b"II*\x00", "a TIFF picture"),
        (b"MM\x00*", "a TIFF picture"),
        (b"8BPS", "a Photoshop document"),
        (b"\xff\x0a", "a JPEG XL picture"),
        (b"\x00\x00\x00\x0cJXL ", "a JPEG XL picture"),
        (b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 picture"),
        (b"\x76\x2f\x31\x01", "an OpenEXR picture"),
        (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "a Windows Media file"),
        (b"\x00\x00\x01\xba", "an MPEG program stream"),
        (b"\x00\x00\x01\xb3", "a bare MPEG video stream"),
        (b"FORM", "an IFF or AIFF file"),
        (b"#!AMR", "an AMR recording"),
        (b".RMF", "a RealMedia file"),
        (b"gimp xcf", "a GIMP document"),
    ];
    if is_tar {
        return Some("a tar archive");
    }
    known.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, what)| *what).or_else(|| markup(head))
}

fn markup(head: &[u8]) -> Option<&'static str> {
    let text = text_start(head).to_ascii_lowercase();
    let has = |word: &[u8]| text[..text.len().min(4096)].windows(word.len()).any(|window| window == word);
    if !text.starts_with(b"<") {
        return None;
    }
    Some(if has(b"<svg") {
        "an SVG picture, which is a program in disguise"
    } else if has(b"<html") || text.starts_with(b"<!doctype html") {
        "an HTML page"
    } else if has(b"<mpd") {
        "a DASH manifest, which names other files"
    } else {
        "an XML document"
    })
}

/// Past a byte order mark and white space, which readers of text skip.
fn text_start(head: &[u8]) -> &[u8] {
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start()
}

/// `file 'other.mp4'` as a first line: the concat demuxer takes it without a header when it is forced to.
fn is_concat_list(text: &[u8]) -> bool {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.len() < 4096 && (line.starts_with(b"file '") || line.starts_with(b"file /"))
}

fn of_signature(head: &[u8]) -> Option<Format> {
    let known: &[(&[u8], Format)] = &[
        (b"\xff\xd8\xff", Format::Jpeg),
        (b"\x89PNG\r\n\x1a\n", Format::Png),
        (b"GIF87a", Format::Gif),
        (b"GIF89a", Format::Gif),
        (b"FLV\x01", Format::Flv),
        (b"OggS\x00", Format::Ogg),
        (b"fLaC", Format::Flac),
    ];
    known.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, format)| *format)
}

fn of_riff(head: &[u8]) -> Option<Format> {
    let (outer, inner) = (head.get(..4)?, head.get(8..12)?);
    match (outer, inner) {
        (b"RIFF", b"AVI ") => Some(Format::Avi),
        (b"RIFF" | b"RF64" | b"BW64", b"WAVE") => Some(Format::Wav),
        (b"RIFF", b"WEBP") => Some(Format::Webp),
        _ => None,
    }
}

/// A first box `ftyp` whose brands say which relative it is, or one of the boxes old QuickTime files begin with.
fn of_iso_media(head: &[u8]) -> Option<Format> {
    let size = u32::from_be_bytes(head.get(..4)?.try_into().ok()?) as usize;
    match head.get(4..8)? {
        b"ftyp" if size >= 16 => {
            let brands = head.get(8..size.min(head.len()).min(1024))?;
            Some(of_brands(brands))
        }
        b"moov" | b"mdat" | b"wide" | b"pnot" => Some(Format::Mp4),
        // A `free` or `skip` box may come first, but only a box of ours behind it tells it from other bytes.
        b"free" | b"skip" => {
            let next = head.get(size.checked_add(4)?..size.checked_add(8)?)?;
            matches!(next, b"ftyp" | b"moov" | b"mdat" | b"wide").then_some(Format::Mp4)
        }
        _ => None,
    }
}

/// `brands` is the major brand, a version, then the compatible ones.
fn of_brands(brands: &[u8]) -> Format {
    let major = brands.get(..4).unwrap_or_default();
    let any =
        |wanted: &[&[u8; 4]]| brands.chunks_exact(4).any(|brand| wanted.iter().any(|name| brand == *name));
    let is_still = matches!(
        major,
        b"avif" | b"avis" | b"mif1" | b"msf1" | b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx"
    );
    if is_still {
        return if any(&[b"avif", b"avis"]) { Format::Avif } else { Format::Heic };
    }
    if matches!(major, b"M4A " | b"M4B " | b"F4A ") { Format::M4a } else { Format::Mp4 }
}

/// EBML whose document type says whose it is.
fn of_matroska(head: &[u8]) -> Option<Format> {
    if !head.starts_with(&[0x1a, 0x45, 0xdf, 0xa3]) {
        return None;
    }
    let header = &head[..head.len().min(256)];
    let has = |word: &[u8]| header.windows(word.len()).any(|window| window == word);
    if has(b"\x42\x82\x84webm") {
        Some(Format::Webm)
    } else if has(b"\x42\x82\x88matroska") {
        Some(Format::Matroska)
    } else {
        None
    }
}

/// Sync bytes at the distance of packets: 188, or 192 with a time code before each.
fn is_mpeg_ts(head: &[u8]) -> bool {
    let packets_at = |first: usize, distance: usize| {
        let count = head.len().saturating_sub(first).div_ceil(distance).min(5);
        count >= 3 && (0..count).all(|n| head.get(first + n * distance) == Some(&0x47))
    };
    packets_at(0, 188) || packets_at(4, 192)
}

/// MP3 or ADTS, behind an ID3 tag or not. Eleven set bits are little proof: the frame after the first must follow.
fn of_audio_frames(head: &[u8]) -> Option<Format> {
    let Some(tag_bytes) = id3_bytes(head) else {
        return of_frame(head, true);
    };
    match head.get(tag_bytes..) {
        // A tag with a large cover reaches past what was read; such tags are MP3's.
        None | Some([]) => Some(Format::Mp3),
        Some(rest) if rest.starts_with(b"fLaC") => Some(Format::Flac),
        Some(rest) => {
            let padding = rest.iter().take_while(|byte| **byte == 0).count();
            of_frame(&rest[padding..], false)
        }
    }
}

pub(crate) fn id3_bytes(head: &[u8]) -> Option<usize> {
    let [b'I', b'D', b'3', _, _, flags, a, b, c, d, ..] = *head else { return None };
    let size = [a, b, c, d]
        .into_iter()
        .try_fold(0usize, |sum, byte| (byte < 0x80).then(|| sum << 7 | usize::from(byte)))?;
    let footer = if flags & 0x10 != 0 { 10 } else { 0 };
    Some(10 + size + footer)
}

fn of_frame(bytes: &[u8], second_required: bool) -> Option<Format> {
    let confirmed = |frame_bytes: usize, frame_of: fn(&[u8]) -> Option<usize>| match bytes.get(frame_bytes..)
    {
        Some(next) if next.len() >= 7 => frame_of(next).is_some(),
        _ => !second_required,
    };
    if let Some(frame_bytes) = mp3_frame_bytes(bytes) {
        return confirmed(frame_bytes, mp3_frame_bytes).then_some(Format::Mp3);
    }
    let frame_bytes = adts_frame_bytes(bytes)?;
    confirmed(frame_bytes, adts_frame_bytes).then_some(Format::Adts)
}

/// The length of the layer III frame that begins here.
pub(crate) fn mp3_frame_bytes(bytes: &[u8]) -> Option<usize> {
    const KBITS_V1: [usize; 15] = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
    const KBITS_V2: [usize; 15] = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
    let [0xff, second, third, ..] = *bytes else { return None };
    let (version, layer) = (second >> 3 & 3, second >> 1 & 3);
    if second & 0xe0 != 0xe0 || version == 1 || layer != 1 {
        return None;
    }
    let is_v1 = version == 3;
    let kbits = *if is_v1 { &KBITS_V1 } else { &KBITS_V2 }.get(usize::from(third >> 4))?;
    // Version 2 halves the rates, and its unofficial extension 2.5 halves them again.
    let divisor = match version {
        3 => 1,
        2 => 2,
        _ => 4,
    };
    let rate = [44_100, 48_000, 32_000].get(usize::from(third >> 2 & 3))? / divisor;
    if kbits == 0 {
        return None;
    }
    let samples_8th = if is_v1 { 144 } else { 72 };
    Some(samples_8th * kbits * 1000 / rate + usize::from(third >> 1 & 1))
}

pub(crate) fn adts_frame_bytes(bytes: &[u8]) -> Option<usize> {
    let [0xff, second, third, fourth, fifth, sixth, _, ..] = *bytes else { return None };
    let is_adts = second & 0xf6 == 0xf0 && third >> 2 & 0xf < 13;
    let length = usize::from(fourth & 3) << 11 | usize::from(fifth) << 3 | usize::from(sixth >> 5);
    (is_adts && length >= 7).then_some(length)
}
