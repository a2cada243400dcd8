//! Whether decoding can begin at a sample: a container's word for it is not enough.

/// An H.264 sample of length-prefixed NAL units is an IDR picture. Open groups of pictures begin with a key frame too,
/// but the frames around it still need those before.
pub(super) fn is_idr(sample: &[u8], length_bytes: u8) -> bool {
    let length_bytes = usize::from(length_bytes);
    if !(1..=4).contains(&length_bytes) {
        return false;
    }
    let mut rest = sample;
    while rest.len() > length_bytes {
        let (length, after) = rest.split_at(length_bytes);
        let length = length.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
        let Some(unit) = after.get(..length).filter(|unit| !unit.is_empty()) else { return false };
        match unit[0] & 0x1f {
            5 => return true,
            1..=4 => return false,
            _ => rest = &after[length..],
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::is_idr;

    #[test]
    fn only_an_idr_picture_is_independent() {
        let parameter_sets_then = |kind: u8| [&[0, 0, 0, 2, 0x67, 1][..], &[0, 0, 0, 3, kind, 1, 1]].concat();

        assert!(is_idr(&parameter_sets_then(0x65), 4));
        assert!(!is_idr(&parameter_sets_then(0x41), 4));
        assert!(!is_idr(&[0, 0, 0, 9, 0x65], 4), "a unit that is cut");
        assert!(!is_idr(&[], 4));
        assert!(!is_idr(&parameter_sets_then(0x65), 0));
    }
}
