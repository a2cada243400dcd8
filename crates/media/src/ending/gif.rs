//! GIF: blocks up to the trailer.

use std::io;

use super::PARTS_MAX;
use super::source::Source;

/// Every block has to be read. A larger one is not within any limits of pixels and frames.
const WALKED_MAX_BYTES: u64 = 1 << 30;
const TRAILER: u8 = b';';
const IMAGE: u8 = b',';
const EXTENSION: u8 = b'!';

pub(super) fn missing(source: &mut Source) -> io::Result<Option<String>> {
    if source.bytes() > WALKED_MAX_BYTES {
        return Ok(None);
    }
    let Some(screen) = source.array::<13>(0)? else { return Ok(cut()) };
    let mut at = 13 + palette_bytes(screen[10]);
    for _ in 0..PARTS_MAX {
        let Some([introducer]) = source.array::<1>(at)? else { return Ok(cut()) };
        let data_at = match introducer {
            TRAILER => return Ok(None),
            IMAGE => {
                let Some(descriptor) = source.array::<10>(at)? else { return Ok(cut()) };
                // The code size follows the palette.
                at + 10 + palette_bytes(descriptor[9]) + 1
            }
            EXTENSION => at + 2,
            // Some writers pad.
            0 => {
                at += 1;
                continue;
            }
            _ => return Ok(None),
        };
        match behind_data(source, data_at)? {
            Some(end) => at = end,
            None => return Ok(cut()),
        }
    }
    Ok(None)
}

fn cut() -> Option<String> {
    Some("it ends before its trailer".into())
}

fn palette_bytes(flags: u8) -> u64 {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

/// Where a chain of sub-blocks ends; `None` where the file ends before it.
fn behind_data(source: &mut Source, mut at: u64) -> io::Result<Option<u64>> {
    loop {
        let Some([size]) = source.array::<1>(at)? else { return Ok(None) };
        at += 1 + u64::from(size);
        if size == 0 {
            return Ok(Some(at));
        }
    }
}
