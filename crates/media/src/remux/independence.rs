//! Whether decoding can begin at a sample: a container's word for it is not enough.

/// How a sample's length-prefixed NAL units are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Units {
    H264,
    H265,
}

/// What a sample begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// An IDR picture: neither it nor any after it needs one from before.
    Alone,
    /// A picture that needs others. Open groups of pictures begin with a key frame too, but the frames around it still
    /// need those before.
    Dependent,
    /// Parameter sets of H.265, which in an `hvc1` track are in the index and nowhere else.
    OwnParameters,
}

impl Units {
    pub(super) fn start_of(self, sample: &[u8], length_bytes: u8) -> Start {
        let length_bytes = usize::from(length_bytes);
        if !(1..=4).contains(&length_bytes) {
            return Start::Dependent;
        }
        let mut rest = sample;
        while rest.len() > length_bytes {
            let (length, after) = rest.split_at(length_bytes);
            let length = length.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
            let Some(unit) = after.get(..length).filter(|unit| !unit.is_empty()) else { break };
            match self.start_with(unit[0]) {
                Some(start) => return start,
                None => rest = &after[length..],
            }
        }
        Start::Dependent
    }

    /// `None` for a unit that is neither a picture nor of interest.
    fn start_with(self, head: u8) -> Option<Start> {
        match self {
            Self::H264 => match head & 0x1f {
                5 => Some(Start::Alone),
                1..=4 => Some(Start::Dependent),
                _ => None,
            },
            Self::H265 => match head >> 1 & 0x3f {
                19 | 20 => Some(Start::Alone),
                0..=31 => Some(Start::Dependent),
                32..=34 => Some(Start::OwnParameters),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Start, Units};

    fn sample(first: u8, second: u8) -> Vec<u8> {
        [&[0, 0, 0, 2, first, 1][..], &[0, 0, 0, 3, second, 1, 1]].concat()
    }

    #[test]
    fn only_an_idr_picture_of_h264_is_independent() {
        let after_parameter_sets = |kind: u8| sample(0x67, kind);

        assert_eq!(Units::H264.start_of(&after_parameter_sets(0x65), 4), Start::Alone);
        assert_eq!(Units::H264.start_of(&after_parameter_sets(0x41), 4), Start::Dependent);
        assert_eq!(Units::H264.start_of(&[0, 0, 0, 9, 0x65], 4), Start::Dependent, "a unit that is cut");
        assert_eq!(Units::H264.start_of(&[], 4), Start::Dependent);
        assert_eq!(Units::H264.start_of(&after_parameter_sets(0x65), 0), Start::Dependent);
    }

    #[test]
    fn pictures_of_h265_that_may_have_leading_ones_are_not_independent() {
        let after_a_message = |kind: u8| sample(39 << 1, kind << 1);

        for (kind, expected) in [
            (19, Start::Alone),
            (20, Start::Alone),
            (21, Start::Dependent),
            (16, Start::Dependent),
            (1, Start::Dependent),
            (33, Start::OwnParameters),
        ] {
            assert_eq!(Units::H265.start_of(&after_a_message(kind), 4), expected, "{kind}");
        }
    }
}
