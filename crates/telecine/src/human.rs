//! Durations and instants as people say them.

use std::time::Duration;

use telecine_queue::Timestamp;

/// `840 ms`, `1.2 s`, `12 s`, `3 min`, `5 h`, `4 d`.
pub(crate) fn duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{ms} ms"),
        1..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", rounded(seconds, 60)),
        7_200..172_800 => format!("{} h", rounded(seconds, 3_600)),
        172_800.. => format!("{} d", rounded(seconds, 86_400)),
    }
}

fn rounded(seconds: u64, unit: u64) -> u64 {
    seconds.saturating_add(unit / 2) / unit
}

/// `0:07`, `12:30`, `1:02:03`.
pub(crate) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// `812 B`, `4.2 kB`, `131 MB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        None => format!("{bytes} B"),
        Some((unit, name)) => {
            let count = bytes as f64 / unit as f64;
            if count < 10.0 { format!("{count:.1} {name}") } else { format!("{count:.0} {name}") }
        }
    }
}

/// `12 s ago`, `in 3 min`, `now`.
pub(crate) fn instant(at: Timestamp, now: Timestamp) -> String {
    let (ago, ahead) = (now.since(at), at.since(now));
    if ago.is_zero() && ahead.is_zero() {
        "now".into()
    } else if ahead.is_zero() {
        format!("{} ago", duration(ago))
    } else {
        format!("in {}", duration(ahead))
    }
}

/// `1 job`, `2 jobs`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `500ms`, `90s`, `10m`, `1h30m`, `2d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let refusal = || format!("`{text}` is not a duration such as 500ms, 90s, 10m, 1h30m or 2d");
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(refusal());
    }
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(refusal)?;
        let (number, tail) = rest.split_at(unit_at);
        let number_at = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(number_at);
        let ms_per_unit: u64 = match unit.trim() {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(refusal()),
        };
        let ms = number.parse::<u64>().ok().and_then(|n| n.checked_mul(ms_per_unit)).ok_or_else(refusal)?;
        total = total.checked_add(Duration::from_millis(ms)).ok_or_else(refusal)?;
        rest = tail;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        for (text, ms) in
            [("500ms", 500), ("90s", 90_000), ("10m", 600_000), ("1h30m", 5_400_000), ("2d", 172_800_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "10", "m", "10 parsecs", "-5s", "99999999999999999999s", "1.5h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_and_sizes_are_told_shortly() {
        let clocks = [7, 750, 3_723].map(|seconds| clock(Duration::from_secs(seconds)));
        assert_eq!(clocks, ["0:07", "12:30", "1:02:03"]);
        assert_eq!([812, 4_200, 131_200_000].map(bytes), ["812 B", "4.2 kB", "131 MB"]);
    }

    #[test]
    fn instants_are_told_from_now() {
        let now = Timestamp::from_ms(1_000_000);

        assert_eq!(instant(Timestamp::from_ms(988_000), now), "12 s ago");
        assert_eq!(instant(Timestamp::from_ms(999_160), now), "840 ms ago");
        assert_eq!(instant(Timestamp::from_ms(1_180_000), now), "in 3 min");
        assert_eq!(instant(Timestamp::from_ms(1_599_900), now), "in 10 min");
        assert_eq!(instant(now, now), "now");
    }
}
