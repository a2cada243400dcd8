//! FLV: tags, each followed by its size.

use std::io;

use super::source::Source;
use super::{PARTS_MAX, beyond};

const TAG_HEADER_BYTES: u64 = 11;
const BACK_POINTER_BYTES: u64 = 4;
/// The metadata are in the first tag.
const METADATA_BYTES: usize = 8 << 10;

pub(super) fn missing(source: &mut Source) -> io::Result<Option<String>> {
    let file_bytes = source.bytes();
    if let Some(end) = stated_bytes(source)?.filter(|stated| *stated > file_bytes) {
        return Ok(beyond("the film", end, file_bytes));
    }
    if ends_with_tag(source)? {
        return Ok(None);
    }
    let Some(head) = source.array::<9>(0)? else { return Ok(Some("its header is cut".into())) };
    let first_at = u64::from(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
    let mut at = first_at + BACK_POINTER_BYTES;
    for _ in 0..PARTS_MAX {
        let Some([kind, a, b, c, ..]) = source.array::<11>(at)? else {
            return Ok((at != file_bytes).then(|| "it ends in the header of a tag".into()));
        };
        if !matches!(kind & 0x1f, 8 | 9 | 18) {
            break;
        }
        let end = at + TAG_HEADER_BYTES + u64::from(u32::from_be_bytes([0, a, b, c])) + BACK_POINTER_BYTES;
        if end > file_bytes {
            return Ok(beyond("a tag", end, file_bytes));
        }
        at = end;
    }
    Ok(None)
}

/// Whether the last four bytes lead back to the tag before them.
fn ends_with_tag(source: &mut Source) -> io::Result<bool> {
    let file_bytes = source.bytes();
    let Some(size) = source.array::<4>(file_bytes.saturating_sub(BACK_POINTER_BYTES))? else {
        return Ok(false);
    };
    let size = u64::from(u32::from_be_bytes(size));
    let Some(at) = file_bytes.checked_sub(BACK_POINTER_BYTES + size).filter(|_| size >= TAG_HEADER_BYTES)
    else {
        return Ok(false);
    };
    let Some([kind, a, b, c]) = source.array::<4>(at)? else { return Ok(false) };
    let content = u64::from(u32::from_be_bytes([0, a, b, c]));
    Ok(matches!(kind & 0x1f, 8 | 9 | 18) && content + TAG_HEADER_BYTES == size)
}

/// `filesize` of the metadata: a name with its length before it, and a number of eight bytes behind it.
fn stated_bytes(source: &mut Source) -> io::Result<Option<u64>> {
    const NAME: &[u8] = b"\0\x08filesize\0";
    let head = source.piece(0, METADATA_BYTES)?;
    let Some(found) = head.windows(NAME.len()).position(|window| window == NAME) else { return Ok(None) };
    let number = head.get(found + NAME.len()..found + NAME.len() + 8);
    let number = number.and_then(|bytes| bytes.try_into().ok()).map(f64::from_be_bytes);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    Ok(number.filter(|bytes| (1.0..1e15).contains(bytes)).map(|bytes| bytes as u64))
}
