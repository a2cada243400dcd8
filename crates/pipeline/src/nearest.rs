//! Finding what was probably meant.

/// `; did you mean `x`?`, or the list of what is known when nothing is near.
pub fn did_you_mean(typed: &str, known: &[&str]) -> String {
    match nearest(typed, known) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if known.is_empty() => String::new(),
        None => format!("; known are {}", known.join(", ")),
    }
}

fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|known| (likeness(typed, known), *known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

/// Of short words one slip of the finger changes too much for the usual measure: `hsl` is meant to be `hls`.
fn likeness(typed: &str, known: &str) -> f64 {
    let is_one_slip = typed.len() > 2 && strsim::osa_distance(typed, known) == 1;
    strsim::jaro_winkler(typed, known).max(if is_one_slip { 0.9 } else { 0.0 })
}

/// What serde says about a document, in the words of whoever writes one: keys and lists, with the nearest known name.
pub(crate) fn in_plain_words(message: &str) -> String {
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    for (prefix, what) in [("unknown field `", "unknown key"), ("unknown variant `", "unknown value")] {
        if let (true, [typed, known @ ..]) = (message.starts_with(prefix), names.as_slice()) {
            return format!("{what} `{typed}`{}", did_you_mean(typed, known));
        }
    }
    if let (true, [missing, ..]) = (message.starts_with("missing field"), names.as_slice()) {
        return format!("`{missing}` is missing");
    }
    match message.rsplit_once(", expected ") {
        Some((found, expected)) => {
            let found = found.replace("invalid type: ", "this is the wrong type: ");
            let found =
                found.replace("invalid value: ", "this is out of range: ").replace("sequence", "list");
            format!("{}, expected {}", found.replace(" map", " table"), expected_in_plain_words(expected))
        }
        None => message.to_owned(),
    }
}

fn expected_in_plain_words(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number of 0 to 255",
        "u16" => "a whole number of 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number of 0 or more",
        "a sequence" => "a list",
        "a map" => "a table",
        "a boolean" => "true or false",
        "path string" | "a string" => "a text",
        "string or table" => "a text or a table",
        // The names of our types say nothing to whoever writes a recipe.
        _ if expected.starts_with("struct ") => "a table",
        _ if expected.starts_with("enum ") => "a text",
        _ => expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_and_otherwise_all_of_them() {
        assert_eq!(did_you_mean("puase", &["pause", "encode"]), "; did you mean `pause`?");
        assert_eq!(did_you_mean("hsl", &["mp4", "hls"]), "; did you mean `hls`?");
        assert_eq!(did_you_mean("zzz", &["pause", "encode"]), "; known are pause, encode");
    }

    #[test]
    fn what_serde_says_is_told_in_plain_words() {
        for (message, told) in [
            (
                "unknown field `crff`, expected one of `crf`, `codec`",
                "unknown key `crff`; did you mean `crf`?",
            ),
            ("unknown variant `vp9`, expected `h264` or `h265`", "unknown value `vp9`; known are h264, h265"),
            ("missing field `command`", "`command` is missing"),
            (
                "invalid type: string \"4\", expected u32",
                "this is the wrong type: string \"4\", expected a whole number of 0 or more",
            ),
            ("invalid type: map, expected a sequence", "this is the wrong type: table, expected a list"),
        ] {
            assert_eq!(in_plain_words(message), told);
        }
    }
}
