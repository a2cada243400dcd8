//! AVIF and HEIC: whole boxes, and the bytes of every item.

use std::io;
use std::ops::Range;
use std::path::Path;

use super::source::Source;
use super::{PARTS_MAX, beyond};
use crate::isobmff::AtomSpan;
use crate::probe::Size;

/// Far above what the tiles of any picture need.
const LOCATIONS_MAX_BYTES: usize = 4 << 20;
const PROPERTIES_MAX: usize = 1 << 16;

pub(super) fn missing(source: &mut Source) -> io::Result<Option<String>> {
    let file_bytes = source.bytes();
    let mut index = None;
    let mut at = 0;
    for _ in 0..PARTS_MAX {
        if at >= file_bytes {
            break;
        }
        let Some(span) = box_at(source, at)? else { break };
        let (body, whole) = span.body(file_bytes);
        if !whole {
            return Ok(beyond(span.name(), span.end.unwrap_or(file_bytes), file_bytes));
        }
        at = body.end;
        if matches!(&span.kind, b"meta" | b"moov") {
            index = index.or((&span.kind == b"meta").then_some(body.clone())).or(Some(0..0));
        }
    }
    let Some(index) = index else { return Ok(Some("there is no index (meta)".into())) };
    // Four bytes of version and flags stand before what is in it.
    let Some(locations) = child(source, index.start + 4..index.end, b"iloc")? else { return Ok(None) };
    let count = usize::try_from(locations.end - locations.start).unwrap_or(usize::MAX);
    let table = source.piece(locations.start, count.min(LOCATIONS_MAX_BYTES))?;
    Ok(last_byte(table).filter(|end| *end > file_bytes).and_then(|end| beyond("an item", end, file_bytes)))
}

/// The size of the largest picture that the index describes, as it is stored, and by how many quarter turns against the
/// clock it is to be turned. A picture of tiles has its own size beside that of its tiles.
pub(crate) fn picture(path: &Path) -> io::Result<Option<(Size, u8)>> {
    let mut source = Source::open(path)?;
    let source = &mut source;
    let whole = 0..source.bytes();
    let Some(meta) = child(source, whole, b"meta")? else { return Ok(None) };
    let Some(properties) = child(source, meta.start + 4..meta.end, b"iprp")? else { return Ok(None) };
    let Some(properties) = child(source, properties, b"ipco")? else { return Ok(None) };
    let pixels = |size: &Size| u64::from(size.width) * u64::from(size.height);
    let (mut largest, mut turns, mut at) = (None, 0, properties.start);
    for _ in 0..PROPERTIES_MAX {
        if at >= properties.end {
            break;
        }
        let Some(span) = box_at(source, at)? else { break };
        let (body, _) = span.body(properties.end);
        match &span.kind {
            b"ispe" => {
                if let Some([_, _, _, _, w @ .., a, b, c, d]) = source.array::<12>(body.start)? {
                    let size =
                        Size { width: u32::from_be_bytes(w), height: u32::from_be_bytes([a, b, c, d]) };
                    largest = largest.into_iter().chain([size]).max_by_key(pixels);
                }
            }
            b"irot" => turns = source.array::<1>(body.start)?.map_or(0, |[angle]| angle & 3),
            _ => {}
        }
        at = body.end;
    }
    Ok(largest.map(|size| (size, turns)))
}

fn box_at(source: &mut Source, at: u64) -> io::Result<Option<AtomSpan>> {
    Ok(AtomSpan::parse(source.piece(at, 16)?, at).filter(AtomSpan::looks_real))
}

fn child(source: &mut Source, within: Range<u64>, kind: &[u8; 4]) -> io::Result<Option<Range<u64>>> {
    let mut at = within.start;
    for _ in 0..PARTS_MAX {
        if at >= within.end {
            break;
        }
        let Some(span) = box_at(source, at)? else { break };
        let (body, _) = span.body(within.end);
        if &span.kind == kind {
            return Ok(Some(body));
        }
        at = body.end;
    }
    Ok(None)
}

/// Behind the last byte of any item that lies in the file itself. `None` of a table that is not as known.
fn last_byte(table: &[u8]) -> Option<u64> {
    let mut table = Numbers(table);
    let version = table.next(1)?;
    table.next(3)?;
    let sizes = table.next(2)?;
    let bytes_of = |shift: u32| usize::try_from(sizes >> shift & 0xf).unwrap_or(0);
    let (offset_bytes, length_bytes, base_bytes) = (bytes_of(12), bytes_of(8), bytes_of(4));
    let index_bytes = if version == 0 { 0 } else { bytes_of(0) };
    let items = table.next(if version < 2 { 2 } else { 4 })?;
    let mut last = 0;
    for _ in 0..items {
        table.next(if version < 2 { 2 } else { 4 })?;
        let construction = if version == 0 { 0 } else { table.next(2)? & 0xf };
        let reference = table.next(2)?;
        let base = table.next(base_bytes)?;
        let extents = table.next(2)?;
        for _ in 0..extents {
            table.next(index_bytes)?;
            let (offset, length) = (table.next(offset_bytes)?, table.next(length_bytes)?);
            // In the file, at an offset from its beginning.
            if construction == 0 && reference == 0 {
                last = last.max(base.checked_add(offset)?.checked_add(length)?);
            }
        }
    }
    Some(last)
}

struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    /// Of so many bytes; one of none is 0.
    fn next(&mut self, bytes: usize) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
}
