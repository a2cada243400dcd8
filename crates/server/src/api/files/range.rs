//! Which bytes a request wants (RFC 9110, 13 and 14): one range at most.

use http::{HeaderMap, header};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    /// Both in the file.
    Part {
        first: u64,
        last: u64,
    },
    Unsatisfiable,
}

/// What is not understood is as if it were not there: the whole file is always a right answer.
pub(super) fn wanted(headers: &HeaderMap, etag: &str, bytes: u64) -> Wanted {
    let Some(range) = headers.get(header::RANGE).and_then(|range| range.to_str().ok()) else {
        return Wanted::All;
    };
    if headers.get(header::IF_RANGE).is_some_and(|of| of.as_bytes() != etag.as_bytes()) {
        return Wanted::All;
    }
    let Some(range) = range.strip_prefix("bytes=") else { return Wanted::All };
    part(range.trim(), bytes).unwrap_or(Wanted::All)
}

fn part(range: &str, bytes: u64) -> Option<Wanted> {
    let (first, last) = range.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // Larger than any file is as large as one can be.
    let number = |text: &str| is_number(text).then(|| text.parse::<u64>().unwrap_or(u64::MAX));
    if first.is_empty() {
        let suffix = number(last)?;
        return Some(match suffix == 0 || bytes == 0 {
            true => Wanted::Unsatisfiable,
            false => Wanted::Part { first: bytes.saturating_sub(suffix), last: bytes - 1 },
        });
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    Some(match first >= bytes {
        true => Wanted::Unsatisfiable,
        false => Wanted::Part { first, last: last.min(bytes - 1) },
    })
}

/// Whether the caller says that it has this file.
pub(super) fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let tags = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    let mut tags = tags.flat_map(|tags| tags.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_understood_and_all_else_is_the_whole_file() {
        let of = |range: &str, bytes| {
            let headers = HeaderMap::from_iter([(header::RANGE, range.parse().unwrap())]);
            wanted(&headers, "\"e\"", bytes)
        };
        let part = |first, last| Wanted::Part { first, last };

        assert_eq!(of("bytes=0-0", 10), part(0, 0));
        assert_eq!(of("bytes=2-5", 10), part(2, 5));
        assert_eq!(of("bytes=2-", 10), part(2, 9));
        assert_eq!(of("bytes=2-99999999999999999999999", 10), part(2, 9));
        assert_eq!(of("bytes=-3", 10), part(7, 9));
        assert_eq!(of("bytes=-30", 10), part(0, 9));
        for unsatisfiable in ["bytes=10-", "bytes=10-11", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(of(unsatisfiable, 10), Wanted::Unsatisfiable, "{unsatisfiable}");
        }
        assert_eq!(of("bytes=0-", 0), Wanted::Unsatisfiable);
        for other in [
            "bytes=5-2",
            "bytes=0-1,3-4",
            "bytes=a-b",
            "bytes=-",
            "bytes=",
            "items=0-1",
            "bytes=+1-2",
            "bytes=1 -2",
        ] {
            assert_eq!(of(other, 10), Wanted::All, "{other}");
        }
    }

    #[test]
    fn a_range_of_another_version_is_the_whole_file() {
        let headers = |of: &str| {
            HeaderMap::from_iter([
                (header::RANGE, "bytes=0-1".parse().unwrap()),
                (header::IF_RANGE, of.parse().unwrap()),
            ])
        };

        assert_eq!(wanted(&headers("\"e\""), "\"e\"", 10), Wanted::Part { first: 0, last: 1 });
        for other in ["\"f\"", "W/\"e\"", "Tue, 01 Jan 2030 00:00:00 GMT"] {
            assert_eq!(wanted(&headers(other), "\"e\"", 10), Wanted::All, "{other}");
        }
    }
}
