//! A trace context as the W3C writes it; anything else is not passed on.

pub(crate) fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &str, length: usize| {
        part.len() == length && part.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
    };
    matches!(parts[..], ["00", trace, span, flags] if is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2))
}

#[cfg(test)]
mod tests {
    use super::is_traceparent;

    #[test]
    fn a_trace_context_is_passed_on_if_it_is_one() {
        assert!(is_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
        for wrong in ["", "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1-2-3", "a\r\nb"] {
            assert!(!is_traceparent(wrong), "{wrong:?}");
        }
    }
}
