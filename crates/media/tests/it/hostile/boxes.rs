//! Boxes of MP4 files, taken apart and put together.

/// Containers on the way to whatever a test wants to change.
const CONTAINERS: [&[u8; 4]; 7] = [b"moov", b"trak", b"mdia", b"minf", b"dinf", b"stbl", b"edts"];

pub(super) fn boxed(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len() + 8).unwrap();
    [&size.to_be_bytes()[..], name, content].concat()
}

/// The file with the content of every box of that name changed, and the sizes around it made to fit. What is behind the
/// changed box moves, so the samples must come before it.
pub(super) fn with_boxes(file: &[u8], name: &[u8; 4], change: &impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut made = Vec::new();
    let mut rest = file;
    while rest.len() >= 8 {
        let size = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let kind: [u8; 4] = rest[4..8].try_into().unwrap();
        let (this, behind) = rest.split_at(size.clamp(8, rest.len()));
        let content = &this[8..];
        let content = if kind == *name {
            change(content)
        } else if CONTAINERS.contains(&&kind) {
            with_boxes(content, name, change)
        } else {
            content.to_vec()
        };
        made.extend(boxed(&kind, &content));
        rest = behind;
    }
    made
}

/// The file with four bytes of every box of that name overwritten.
pub(super) fn with_number(file: &[u8], name: &[u8; 4], at: usize, value: u32) -> Vec<u8> {
    with_boxes(file, name, &|content| {
        let mut content = content.to_vec();
        content[at..at + 4].copy_from_slice(&value.to_be_bytes());
        content
    })
}
