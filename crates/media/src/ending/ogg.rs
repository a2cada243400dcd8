//! Ogg: every stream that has a first page has a last one.

use std::collections::HashMap;
use std::io;

use super::source::Source;
use super::{PARTS_MAX, beyond};

const HEADER_BYTES: usize = 27;
const IS_LAST: u8 = 4;
const STREAMS_MAX: usize = 1 << 10;

pub(super) fn missing(source: &mut Source) -> io::Result<Option<String>> {
    let file_bytes = source.bytes();
    // By serial number, whether the stream has ended.
    let mut streams: HashMap<[u8; 4], bool> = HashMap::new();
    let mut at = 0;
    for _ in 0..PARTS_MAX {
        if at == file_bytes {
            let open = streams.values().filter(|ended| !**ended).count();
            return Ok((open > 0).then(|| format!("{open} of {} streams have no last page", streams.len())));
        }
        let Some(head) = source.array::<HEADER_BYTES>(at)? else {
            let is_page = source.piece(at, 4)?.iter().zip(b"OggS").all(|(have, want)| have == want);
            return Ok(is_page.then(|| "it ends in the header of a page".into()));
        };
        if !head.starts_with(b"OggS") || streams.len() > STREAMS_MAX {
            break;
        }
        let sizes_at = at + HEADER_BYTES as u64;
        let sizes = source.piece(sizes_at, usize::from(head[26]))?;
        let body: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
        let end = sizes_at + u64::from(head[26]) + body;
        if end > file_bytes {
            return Ok(beyond("a page", end, file_bytes));
        }
        streams.insert([head[14], head[15], head[16], head[17]], head[5] & IS_LAST != 0);
        at = end;
    }
    Ok(None)
}
