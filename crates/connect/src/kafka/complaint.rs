//! What librdkafka says of connections that fail.
//!
//! Whoever waits for an answer is only told that none came in time. Why, it says once, to whoever listens, and then not
//! again for half a minute: so it is remembered until something succeeds.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::error::{KafkaError as RdError, RDKafkaErrorCode};

/// The last of them.
#[derive(Debug, Default)]
pub(super) struct Complaints(Mutex<Option<Complaint>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) code: RDKafkaErrorCode,
    /// Names broker and state, and never what a property was set to.
    pub(super) reason: String,
}

impl Complaints {
    pub(super) fn hear(&self, error: &RdError, reason: &str) {
        tracing::debug!(%error, reason, "librdkafka");
        match error.rdkafka_error_code() {
            // It follows another, which says why.
            None | Some(RDKafkaErrorCode::AllBrokersDown) => {}
            Some(code) => *self.lock() = Some(Complaint { code, reason: reason.to_owned() }),
        }
    }

    /// A line of the log. A peer that hangs up, as one does that expects TLS, is told of nowhere else.
    pub(super) fn overhear(&self, facility: &str, message: &str) {
        if facility == "FAIL" {
            let code = RDKafkaErrorCode::BrokerTransportFailure;
            self.lock().get_or_insert_with(|| Complaint { code, reason: message.to_owned() });
        }
    }

    pub(super) fn last(&self) -> Option<Complaint> {
        self.lock().clone()
    }

    /// An error, and what was said of it: `Message timed out (Local: …); sasl_ssl://broker:9093: …`.
    pub(super) fn explain(&self, error: &RdError) -> String {
        match self.last() {
            Some(Complaint { reason, .. }) => format!("{error}; {reason}"),
            None => error.to_string(),
        }
    }

    /// It went well: what was said before does not hold any more.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Complaint>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_broker_failed_is_not_covered_by_what_follows_from_it() {
        let complaints = Complaints::default();

        complaints.overhear("FAIL", "connection closed by peer");
        complaints.hear(&RdError::Global(RDKafkaErrorCode::Authentication), "no such user");
        complaints.overhear("FAIL", "no such user");
        complaints.hear(&RdError::Global(RDKafkaErrorCode::AllBrokersDown), "1/1 brokers are down");

        let last = complaints.last().expect("there was one");
        assert_eq!((last.code, last.reason.as_str()), (RDKafkaErrorCode::Authentication, "no such user"));
        complaints.forget();
        assert_eq!(complaints.last(), None);
    }
}
