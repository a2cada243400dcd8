//! RIFF: the forms of a file and the chunks of each.

use std::io;

use super::source::Source;
use super::{PARTS_MAX, beyond};

/// Writers that count the form's own header among its content exist.
const HEADER_BYTES: u64 = 8;

pub(super) fn missing(source: &mut Source) -> io::Result<Option<String>> {
    let mut at = 0;
    // Only AVI has more than one form.
    for _ in 0..PARTS_MAX {
        let Some(form) = Form::at(source, at)? else { break };
        if let Some(what) = form.missing(source)? {
            return Ok(Some(what));
        }
        match form.end {
            Some(end) => at = end + end % 2,
            None => break,
        }
    }
    Ok(None)
}

struct Form {
    first_chunk_at: u64,
    /// As its header says. What was written to a pipe does not know.
    end: Option<u64>,
    /// Of sound, where it does not fit into the chunk's own 32 bits.
    data_bytes: Option<u64>,
}

impl Form {
    fn at(source: &mut Source, at: u64) -> io::Result<Option<Self>> {
        let Some(head) = source.array::<12>(at)? else { return Ok(None) };
        let size = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let end = |size: u64| at.checked_add(size)?.checked_add(HEADER_BYTES);
        let first_chunk_at = at + 12;
        match &head[..4] {
            b"RIFF" => {
                let end = if matches!(size, 0 | u32::MAX) { None } else { end(size.into()) };
                Ok(Some(Self { first_chunk_at, end, data_bytes: None }))
            }
            b"RF64" | b"BW64" => {
                let sizes = source.array::<24>(first_chunk_at)?.filter(|chunk| chunk.starts_with(b"ds64"));
                let size =
                    |from: usize| sizes.and_then(|sizes| u64_at(&sizes, from)).filter(|size| *size > 0);
                Ok(Some(Self { first_chunk_at, end: size(8).and_then(end), data_bytes: size(16) }))
            }
            _ => Ok(None),
        }
    }

    fn missing(&self, source: &mut Source) -> io::Result<Option<String>> {
        let file_bytes = source.bytes();
        if let Some(end) = self.end.filter(|end| *end > file_bytes + HEADER_BYTES) {
            return Ok(beyond("the form", end, file_bytes));
        }
        let mut at = self.first_chunk_at;
        for _ in 0..PARTS_MAX {
            if self.end.is_some_and(|end| at + HEADER_BYTES > end) {
                break;
            }
            let Some([a, b, c, d, size @ ..]) = source.array::<8>(at)? else {
                let is_missing = self.end.is_some_and(|end| at + 2 * HEADER_BYTES <= end);
                return Ok(is_missing.then(|| "a chunk is missing".into()));
            };
            let kind = [a, b, c, d];
            if !kind.iter().all(|byte| (0x20..0x7f).contains(byte)) {
                break;
            }
            let size = match (&kind, u32::from_le_bytes(size)) {
                (b"data", u32::MAX) => match self.data_bytes {
                    Some(bytes) => bytes,
                    None => break,
                },
                // A writer that did not come to its end: how much there was to be nobody knows.
                (b"data", 0) if self.end.is_none() => break,
                (_, size) => size.into(),
            };
            let Some(end) = (at + HEADER_BYTES).checked_add(size) else { break };
            if end > file_bytes {
                return Ok(beyond(String::from_utf8_lossy(&kind), end, file_bytes));
            }
            at = end + end % 2;
        }
        Ok(None)
    }
}

fn u64_at(bytes: &[u8], from: usize) -> Option<u64> {
    bytes.get(from..from + 8)?.try_into().ok().map(u64::from_le_bytes)
}
