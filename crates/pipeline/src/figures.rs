//! Every figure of the pipeline, in one place, for whatever recorder the process has installed.

use metrics::{Counter, counter, histogram};

use crate::blobs::StoreError;

/// Something was to be stored.
pub(crate) fn put<T>(bytes: u64, put: &Result<T, StoreError>) {
    match put {
        Ok(_) => counter!("telecine_store_bytes_total", "direction" => "out").increment(bytes),
        Err(_) => counter!("telecine_store_failures_total", "verb" => "put").increment(1),
    }
}

/// What is read from the store counts as it arrives.
pub(crate) fn bytes_in() -> Counter {
    counter!("telecine_store_bytes_total", "direction" => "in")
}

/// Something could not be read. That it is not there is an answer.
pub(crate) fn get_failed(error: &StoreError) {
    if !matches!(error, StoreError::NotFound { .. }) {
        counter!("telecine_store_failures_total", "verb" => "get").increment(1);
    }
}

/// How a scan ended: `clean`, `infected`, `unscanned`, or `unavailable` where nobody said.
pub(crate) fn scanned(outcome: &'static str, took: std::time::Duration) {
    counter!("telecine_scans_total", "outcome" => outcome).increment(1);
    histogram!("telecine_scan_duration_seconds").record(took.as_secs_f64());
}

/// So many seconds of media were encoded in so many seconds.
pub(crate) fn encoded(kind: &'static str, media_seconds: f64, took_seconds: f64) {
    counter!("telecine_media_encoded_seconds_total", "kind" => kind).increment(media_seconds.round() as u64);
    if media_seconds > 0.0 && took_seconds > 0.0 {
        histogram!("telecine_media_encode_speed_ratio", "kind" => kind).record(media_seconds / took_seconds);
    }
}
