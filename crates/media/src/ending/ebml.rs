//! Matroska and WebM: the size of the segment, or else of what is in it.

use std::io;

use super::source::Source;
use super::{PARTS_MAX, beyond};

const SEGMENT: u32 = 0x1853_8067;
const CLUSTER: u32 = 0x1f43_b675;

pub(super) fn missing(source: &mut Source) -> io::Result<Option<String>> {
    let file_bytes = source.bytes();
    let mut at = 0;
    let mut has_segment = false;
    for _ in 0..PARTS_MAX {
        let element = match Element::at(source, at)? {
            Look::Is(element) => element,
            Look::Ended if at == file_bytes && has_segment => return Ok(None),
            Look::Ended => return Ok(Some("it ends in the header of an element".into())),
            Look::Malformed => return Ok(None),
        };
        let Some(size) = element.size else {
            // Only these may be of unknown size: their content follows, up to whatever cannot be in them.
            if !matches!(element.id, SEGMENT | CLUSTER) {
                return Ok(None);
            }
            has_segment = true;
            at = element.body_at;
            continue;
        };
        let Some(end) = element.body_at.checked_add(size) else { return Ok(None) };
        if end > file_bytes {
            return Ok(beyond(element.name(), end, file_bytes));
        }
        if element.id == SEGMENT {
            return Ok(None);
        }
        at = end;
    }
    Ok(None)
}

struct Element {
    id: u32,
    body_at: u64,
    /// `None` is unknown, as in a live recording.
    size: Option<u64>,
}

enum Look {
    Is(Element),
    /// The file ends in its header.
    Ended,
    Malformed,
}

impl Element {
    fn at(source: &mut Source, at: u64) -> io::Result<Look> {
        let head = source.piece(at, 12)?;
        let Some(first) = head.first() else { return Ok(Look::Ended) };
        let id_bytes = first.leading_zeros() as usize + 1;
        if id_bytes > 4 {
            return Ok(Look::Malformed);
        }
        let (Some(id), Some(size_first)) = (head.get(..id_bytes), head.get(id_bytes)) else {
            return Ok(Look::Ended);
        };
        let size_bytes = size_first.leading_zeros() as usize + 1;
        if size_bytes > 8 {
            return Ok(Look::Malformed);
        }
        let Some(size) = head.get(id_bytes..id_bytes + size_bytes) else { return Ok(Look::Ended) };
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        // The length of the number is marked by its first set bit; a number of nothing but ones is none.
        let all_ones = (1_u64 << (7 * size_bytes)) - 1;
        let size = number(size) & all_ones;
        Ok(Look::Is(Self {
            id: u32::try_from(number(id)).unwrap_or(0),
            body_at: at + (id_bytes + size_bytes) as u64,
            size: (size != all_ones).then_some(size),
        }))
    }

    fn name(&self) -> String {
        match self.id {
            SEGMENT => "the segment".into(),
            CLUSTER => "a cluster".into(),
            id => format!("element {id:x}"),
        }
    }
}
