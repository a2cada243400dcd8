//! JPEG: segments and scans up to the end marker.

use std::io;

use super::source::Source;
use super::{PARTS_MAX, beyond};

const END_OF_IMAGE: u8 = 0xd9;
const START_OF_SCAN: u8 = 0xda;
/// Scans are read through only where something follows the picture; none within the limits is longer.
const SCANNED_MAX_BYTES: u64 = 1 << 30;

pub(super) fn missing(source: &mut Source) -> io::Result<Option<String>> {
    let bytes = source.bytes();
    if source.array::<2>(bytes.saturating_sub(2))? == Some([0xff, END_OF_IMAGE]) {
        return Ok(None);
    }
    // Phones put films, depth maps and further pictures behind the first one.
    let cut = || Some("there is no end marker (EOI)".to_owned());
    let mut at = 2;
    for _ in 0..PARTS_MAX {
        let marker = match source.array::<2>(at)? {
            None => return Ok(cut()),
            // Fill bytes may stand before a marker.
            Some([0xff, 0xff]) => {
                at += 1;
                continue;
            }
            Some([0xff, marker]) => marker,
            Some(_) => return Ok(None),
        };
        match marker {
            END_OF_IMAGE => return Ok(None),
            0x01 | 0xd0..=0xd8 => at += 2,
            _ => {
                let Some(size) = source.array::<2>(at + 2)? else { return Ok(cut()) };
                let end = at + 2 + u64::from(u16::from_be_bytes(size));
                if end > bytes {
                    return Ok(beyond(format_args!("a segment (marker {marker:02x})"), end, bytes));
                }
                at = if marker == START_OF_SCAN { behind_scan(source, end)? } else { end };
            }
        }
        if at > SCANNED_MAX_BYTES {
            break;
        }
    }
    Ok(None)
}

/// Where the compressed data ends: at a marker that does not belong to it, or with the file.
fn behind_scan(source: &mut Source, mut at: u64) -> io::Result<u64> {
    while at < source.bytes().min(SCANNED_MAX_BYTES) {
        let piece = source.piece(at, 8 << 10)?;
        let is_marker = |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0 | 0xd0..=0xd7 | 0xff);
        if let Some(found) = piece.windows(2).position(is_marker) {
            return Ok(at + found as u64);
        }
        // The last byte may be the first of a marker.
        at += (piece.len() as u64).saturating_sub(1).max(1);
    }
    Ok(at)
}
