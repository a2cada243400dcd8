//! WebP files without EXIF. libvips 8.14 writes a block of its own, even when told to strip.

const HEADER_BYTES: usize = 12;
/// In the first byte of `VP8X`: what the file says it has.
const HAS_EXIF: u8 = 0x08;
const HAS_XMP: u8 = 0x04;

/// The same file without its chunks of metadata; as it was, when it is not as known.
pub(crate) fn without_metadata(file: Vec<u8>) -> Vec<u8> {
    stripped(&file).unwrap_or(file)
}

fn stripped(file: &[u8]) -> Option<Vec<u8>> {
    let mut out = file.get(..HEADER_BYTES)?.to_vec();
    let mut rest = &file[HEADER_BYTES..];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?) as usize;
        // Chunks are padded to even lengths.
        let (chunk, behind) = rest.split_at_checked(8 + length + length % 2)?;
        let start = out.len();
        match &chunk[..4] {
            b"EXIF" | b"XMP " => {}
            b"VP8X" => {
                out.extend_from_slice(chunk);
                *out.get_mut(start + 8)? &= !(HAS_EXIF | HAS_XMP);
            }
            _ => out.extend_from_slice(chunk),
        }
        rest = behind;
    }
    let length = u32::try_from(out.len() - 8).ok()?;
    out[4..8].copy_from_slice(&length.to_le_bytes());
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_goes_and_the_rest_stays() {
        let with =
            b"RIFF\x2a\0\0\0WEBPVP8X\x02\0\0\0\x1c\0VP8 \x03\0\0\0abc\0EXIF\x01\0\0\0e\0XMP \x02\0\0\0xm";

        let without = without_metadata(with.to_vec());

        assert_eq!(without, b"RIFF\x1a\0\0\0WEBPVP8X\x02\0\0\0\x10\0VP8 \x03\0\0\0abc\0");
    }

    #[test]
    fn what_is_not_as_known_is_left_alone() {
        for file in [&b"RIFF"[..], b"RIFF\0\0\0\0WEBPVP8 \xff\0\0\0a"] {
            assert_eq!(without_metadata(file.to_vec()), file);
        }
    }
}
