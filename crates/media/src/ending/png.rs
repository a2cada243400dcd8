//! PNG: chunks up to IEND.

use std::io;

use super::source::Source;
use super::{PARTS_MAX, beyond};

const SIGNATURE_BYTES: u64 = 8;

pub(super) fn missing(source: &mut Source) -> io::Result<Option<String>> {
    let mut at = SIGNATURE_BYTES;
    for _ in 0..PARTS_MAX {
        let Some([a, b, c, d, kind @ ..]) = source.array::<8>(at)? else {
            return Ok(Some("there is no last chunk (IEND)".into()));
        };
        let kind: [u8; 4] = kind;
        if !kind.iter().all(u8::is_ascii_alphabetic) {
            break;
        }
        // Length, kind and checksum surround the content.
        let end = at + 12 + u64::from(u32::from_be_bytes([a, b, c, d]));
        if end > source.bytes() {
            return Ok(beyond(String::from_utf8_lossy(&kind), end, source.bytes()));
        }
        if &kind == b"IEND" {
            break;
        }
        at = end;
    }
    Ok(None)
}
