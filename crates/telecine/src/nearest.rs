//! Finding what was probably meant.

/// `; did you mean `x`?`, or the list of what is known when nothing is near.
pub(crate) fn did_you_mean(typed: &str, known: &[&str]) -> String {
    match nearest(typed, known) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => format!("; known are {}", known.join(", ")),
    }
}

fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(typed, known), *known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::did_you_mean;

    #[test]
    fn the_nearest_name_is_offered_and_otherwise_all_of_them() {
        assert_eq!(did_you_mean("puase", &["pause", "encode"]), "; did you mean `pause`?");
        assert_eq!(did_you_mean("zzz", &["pause", "encode"]), "; known are pause, encode");
    }
}
