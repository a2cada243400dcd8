//! Why a store did not do it, by what its owner can do.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use object_store::client::{HttpError, HttpErrorKind};
use object_store::{Error, path};

use super::wire::{OtherBytes, Refusal};

/// Why the store did not do it, by what its owner can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such blob.
    #[error("{key} is not in the store")]
    NotFound { key: String },
    /// Correct the credentials or the rights.
    #[error("the store refuses {key}: {reason}")]
    Denied { key: String, reason: String },
    /// Free some space.
    #[error("the store is full: {reason}")]
    Full { reason: String },
    /// Try again later.
    #[error("the store cannot be reached: {reason}")]
    Unavailable { reason: String },
    /// The blob has other bytes than were put.
    #[error("{key} is damaged: {reason}")]
    Corrupt { key: String, reason: String },
    /// Correct the configuration.
    #[error("{reason}")]
    Invalid { reason: String },
}

impl StoreError {
    pub(crate) const NOT_FOUND: &str = "blob_not_found";

    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => Self::NOT_FOUND,
            Self::Denied { .. } => "storage_denied",
            Self::Full { .. } => "storage_full",
            Self::Unavailable { .. } => "storage_unavailable",
            Self::Corrupt { .. } => "storage_corrupt",
            Self::Invalid { .. } => "storage_invalid",
        }
    }

    pub fn is_retryable(&self) -> bool {
        match self {
            // A damaged copy may be one of the way here, and credentials are renewed.
            Self::Full { .. } | Self::Unavailable { .. } | Self::Denied { .. } | Self::Corrupt { .. } => true,
            Self::NotFound { .. } | Self::Invalid { .. } => false,
        }
    }

    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "it was deleted; retry the step that made it, or submit the input again",
            Self::Denied { .. } => "check the store's credentials and rights, then retry the run",
            Self::Full { .. } => "free some space in the store; the job tries again by itself",
            Self::Unavailable { .. } => {
                "check the store's address and that it runs; the job tries again by itself"
            }
            Self::Corrupt { .. } => "check the store's disks; what made the blob has to make it again",
            Self::Invalid { .. } => "correct the store's setting",
        }
    }

    pub(super) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into() }
    }

    /// What a store's client says, by the types in its chain of causes. The text of it is only for people.
    pub(super) fn of(key: &str, error: &Error) -> Self {
        if let Some(refusal) = cause::<Refusal>(error) {
            return Self::of_refusal(key, refusal);
        }
        if let Some(other) = cause::<OtherBytes>(error) {
            return Self::Corrupt { key: key.to_owned(), reason: other.to_string() };
        }
        if cause::<path::Error>(error).is_some() {
            return Self::invalid(format!("{key} cannot be a key"));
        }
        match error {
            Error::NotFound { .. } => Self::NotFound { key: key.to_owned() },
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                Self::Denied { key: key.to_owned(), reason: last_cause(error) }
            }
            other => match (cause::<HttpError>(other), cause::<io::Error>(other)) {
                (Some(http), _) => Self::of_transport(http),
                (None, Some(io)) => Self::of_io(key, io),
                (None, None) => Self::Unavailable { reason: last_cause(other) },
            },
        }
    }

    fn of_refusal(key: &str, refusal: &Refusal) -> Self {
        let reason = refusal.to_string();
        match (refusal.status, refusal.code.as_str()) {
            (_, "NoSuchBucket" | "InvalidBucketName" | "PermanentRedirect") => Self::Invalid { reason },
            (507, _) | (_, "QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage") => {
                Self::Full { reason }
            }
            (401 | 403, _) | (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
                Self::Denied { key: key.to_owned(), reason }
            }
            (404, _) => Self::NotFound { key: key.to_owned() },
            // The bytes that arrived were not those that were sent.
            (_, "BadDigest" | "XAmzContentSHA256Mismatch" | "InvalidDigest") => {
                Self::Corrupt { key: key.to_owned(), reason }
            }
            (408 | 429, _) | (_, "RequestTimeout" | "SlowDown") => Self::Unavailable { reason },
            (400..=499 | 501, _) => Self::Invalid { reason },
            _ => Self::Unavailable { reason },
        }
    }

    fn of_transport(http: &HttpError) -> Self {
        let what = match http.kind() {
            HttpErrorKind::Connect => "no connection",
            HttpErrorKind::Timeout => "no answer in time",
            HttpErrorKind::Interrupted | HttpErrorKind::Request => "the connection broke",
            HttpErrorKind::Decode => "the answer cannot be read",
            _ => "the request failed",
        };
        Self::Unavailable { reason: format!("{what}: {}", last_cause(http)) }
    }

    pub(super) fn of_io(key: &str, error: &io::Error) -> Self {
        let reason = error.to_string();
        match error.kind() {
            ErrorKind::NotFound => Self::NotFound { key: key.to_owned() },
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Self::Denied { key: key.to_owned(), reason }
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full { reason },
            ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::InvalidFilename => {
                Self::invalid(format!("{key}: {reason}"))
            }
            _ => Self::Unavailable { reason },
        }
    }
}

/// The first of that type in the chain of causes.
fn cause<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    causes(error).find_map(|cause| cause.downcast_ref::<E>())
}

/// The end of the chain: the fact itself, without the request (and whatever its address may carry) around it.
fn last_cause(error: &(dyn StdError + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (*error).source())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: u16, code: &str) -> &'static str {
        let refusal = Refusal { status, code: code.into(), message: "so it is".into() };
        let source = Box::new(HttpError::new(HttpErrorKind::Unknown, refusal));
        StoreError::of("a/b", &Error::Generic { store: "S3", source }).code()
    }

    #[test]
    fn a_refusal_is_told_by_what_its_owner_can_do() {
        let answers = [
            (403, "InvalidAccessKeyId", "storage_denied"),
            (403, "SignatureDoesNotMatch", "storage_denied"),
            (403, "", "storage_denied"),
            (401, "", "storage_denied"),
            (400, "ExpiredToken", "storage_denied"),
            (507, "", "storage_full"),
            (403, "QuotaExceeded", "storage_full"),
            (503, "SlowDown", "storage_unavailable"),
            (500, "InternalError", "storage_unavailable"),
            (429, "", "storage_unavailable"),
            (404, "NoSuchBucket", "storage_invalid"),
            (400, "BadDigest", "storage_corrupt"),
            (400, "InvalidArgument", "storage_invalid"),
            (501, "NotImplemented", "storage_invalid"),
        ];

        for (status, code, expected) in answers {
            assert_eq!(told(status, code), expected, "{status} {code}");
        }
    }

    #[test]
    fn a_full_disk_is_a_full_store() {
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            let source = Box::new(io::Error::from(kind));
            let error = StoreError::of("a/b", &Error::Generic { store: "LocalFileSystem", source });

            assert_eq!((error.code(), error.is_retryable()), ("storage_full", true));
        }
    }
}
