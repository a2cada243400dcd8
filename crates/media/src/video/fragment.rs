//! An encoder's file, taken apart into the init segment and the media segment, and checked to the tick.

use std::fmt;

/// What a file must hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) frames: u32,
    /// Of the first frame shown.
    pub(super) start_ticks: u64,
    pub(super) ticks_per_frame: u32,
}

/// The two parts of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// `ftyp` and `moov`.
    pub(super) init: &'a [u8],
    /// `moof` and `mdat`.
    pub(super) media: &'a [u8],
}

/// Why a file is not what an encoder should have written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

type Checked<T> = Result<T, Wrong>;

/// Takes a file apart that has one fragment of one track, and checks its frames and their times.
pub(super) fn take_apart<'a>(file: &'a [u8], expected: &Expected) -> Checked<Parts<'a>> {
    let boxes = children(file)?;
    let names: Vec<&[u8; 4]> = boxes.iter().map(|found| &found.name).collect();
    let is_as_known = matches!(names.as_slice(), [b"ftyp", b"moov", b"moof", b"mdat", rest @ ..]
        if rest.iter().all(|name| *name == b"mfra"));
    if !is_as_known {
        return wrong(format!(
            "boxes are {}",
            names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(" ")
        ));
    }
    check_times(boxes[2].body, expected)?;
    let (media_start, media_end) = (boxes[2].start, boxes[3].end);
    Ok(Parts { init: &file[..media_start], media: &file[media_start..media_end] })
}

struct Found<'a> {
    name: [u8; 4],
    body: &'a [u8],
    start: usize,
    end: usize,
}

fn children(bytes: &[u8]) -> Checked<Vec<Found<'_>>> {
    let mut found = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let rest = &bytes[start..];
        let short = || Wrong("a box is cut off".into());
        let size = u64::from(u32_at(rest, 0).ok_or_else(short)?);
        let name: [u8; 4] = rest.get(4..8).and_then(|name| name.try_into().ok()).ok_or_else(short)?;
        let (header, size) = match size {
            1 => (16, u64_at(rest, 8).ok_or_else(short)?),
            size => (8, size),
        };
        let size = usize::try_from(size).map_err(|_| short())?;
        let body = rest.get(header..size).ok_or_else(short)?;
        found.push(Found { name, body, start, end: start + size });
        start += size;
    }
    Ok(found)
}

fn child<'a>(bytes: &'a [u8], name: &[u8; 4]) -> Checked<&'a [u8]> {
    let mut named = children(bytes)?.into_iter().filter(|found| &found.name == name);
    match (named.next(), named.next()) {
        (Some(found), None) => Ok(found.body),
        (None, _) => wrong(format!("no {}", shown(name))),
        (Some(_), Some(_)) => wrong(format!("more than one {}", shown(name))),
    }
}

/// Each frame is shown at its place on the grid, whatever order they are coded in.
fn check_times(moof: &[u8], expected: &Expected) -> Checked<()> {
    let traf = child(moof, b"traf")?;
    let decode_start = decode_time(child(traf, b"tfdt")?)?;
    let default_duration = default_duration(child(traf, b"tfhd")?)?;
    let mut shown_at = presentation_times(child(traf, b"trun")?, decode_start, default_duration)?;
    if shown_at.len() != expected.frames as usize {
        return wrong(format!("{} frames instead of {}", shown_at.len(), expected.frames));
    }
    shown_at.sort_unstable();
    let on_grid = |(n, ticks): (usize, &i128)| {
        *ticks == i128::from(expected.start_ticks) + n as i128 * i128::from(expected.ticks_per_frame)
    };
    match shown_at.iter().enumerate().position(|frame| !on_grid(frame)) {
        None => Ok(()),
        Some(n) => wrong(format!("frame {n} is at tick {}", shown_at[n])),
    }
}

fn decode_time(tfdt: &[u8]) -> Checked<i128> {
    let time = if tfdt.first() == Some(&1) { u64_at(tfdt, 4) } else { u32_at(tfdt, 4).map(u64::from) };
    time.map(i128::from).ok_or_else(|| Wrong("tfdt is cut off".into()))
}

/// Of `tfhd`: the fields before it are there when their flags are set.
fn default_duration(tfhd: &[u8]) -> Checked<Option<u32>> {
    let short = || Wrong("tfhd is cut off".into());
    let flags = u32_at(tfhd, 0).ok_or_else(short)? & 0x00ff_ffff;
    let before = [(0x1, 8), (0x2, 4)].iter().filter(|(flag, _)| flags & flag != 0).map(|(_, size)| size);
    let at = 8 + before.sum::<usize>();
    if flags & 0x8 == 0 { Ok(None) } else { Ok(Some(u32_at(tfhd, at).ok_or_else(short)?)) }
}

fn presentation_times(trun: &[u8], decode_start: i128, default_duration: Option<u32>) -> Checked<Vec<i128>> {
    let short = || Wrong("trun is cut off".into());
    let head = u32_at(trun, 0).ok_or_else(short)?;
    let (version, flags) = (head >> 24, head & 0x00ff_ffff);
    let count = u32_at(trun, 4).ok_or_else(short)?;
    let has = |flag: u32| flags & flag != 0;
    let mut at = 8 + 4 * (usize::from(has(0x1)) + usize::from(has(0x4)));
    let mut field = |present: bool| -> Checked<Option<u32>> {
        if !present {
            return Ok(None);
        }
        let value = u32_at(trun, at).ok_or_else(short)?;
        at += 4;
        Ok(Some(value))
    };
    let mut times = Vec::new();
    let mut decoded_at = decode_start;
    for _ in 0..count {
        let duration = field(has(0x100))?.or(default_duration);
        field(has(0x200))?;
        field(has(0x400))?;
        let offset = field(has(0x800))?.unwrap_or(0);
        let offset = if version == 0 { i128::from(offset) } else { i128::from(offset.cast_signed()) };
        times.push(decoded_at + offset);
        decoded_at += i128::from(duration.ok_or_else(|| Wrong("a frame has no duration".into()))?);
    }
    Ok(times)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes)
}

fn shown(name: &[u8; 4]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn wrong<T>(what: String) -> Checked<T> {
    Err(Wrong(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(body.len() + 8).unwrap();
        [&size.to_be_bytes()[..], name, body].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// Three frames, the second shown last.
    fn file(offsets: [u32; 3]) -> Vec<u8> {
        let trun = boxed(b"trun", &words(&[0x800, 3, offsets[0], offsets[1], offsets[2]]));
        let tfhd = boxed(b"tfhd", &words(&[0x02_0008, 1, 10]));
        let tfdt = boxed(b"tfdt", &words(&[0x0100_0000, 0, 980]));
        let moof = boxed(b"moof", &boxed(b"traf", &[tfhd, tfdt, trun].concat()));
        [boxed(b"ftyp", b"iso5"), boxed(b"moov", b""), moof, boxed(b"mdat", b"abc"), boxed(b"mfra", b"")]
            .concat()
    }

    const EXPECTED: Expected = Expected { frames: 3, start_ticks: 1000, ticks_per_frame: 10 };

    #[test]
    fn a_fragment_on_the_grid_is_taken_apart() {
        let file = file([20, 30, 10]);

        let parts = take_apart(&file, &EXPECTED).unwrap();

        assert!(parts.init.ends_with(b"moov") && parts.media.ends_with(b"abc"));
        assert_eq!(&parts.media[4..8], b"moof");
    }

    #[test]
    fn a_frame_off_the_grid_or_missing_is_noticed() {
        assert!(take_apart(&file([20, 31, 10]), &EXPECTED).is_err());
        assert!(take_apart(&file([20, 30, 20]), &EXPECTED).is_err());
        let more = Expected { frames: 4, ..EXPECTED };
        assert_eq!(take_apart(&file([20, 30, 10]), &more).unwrap_err().to_string(), "3 frames instead of 4");
    }

    #[test]
    fn a_file_that_is_cut_off_anywhere_is_noticed() {
        let file = file([20, 30, 10]);
        let whole_without_index = file.len() - 8;
        for length in (0..whole_without_index).chain(whole_without_index + 1..file.len()) {
            assert!(take_apart(&file[..length], &EXPECTED).is_err(), "{length}");
        }
    }
}
