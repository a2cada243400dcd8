//! The token of a remote claim: what it is a claim of, signed, so that no process has to remember it.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::Mac;
use serde::{Deserialize, Serialize};
use telecine_queue::{Fence, JobId};

use crate::secret::Secret;

const PREFIX: &str = "ct_";

/// One claim of one job, as it was when it was claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClaimToken {
    #[serde(rename = "j")]
    pub(crate) job: JobId,
    #[serde(rename = "f")]
    pub(crate) fence: Fence,
    #[serde(rename = "a")]
    pub(crate) attempt: u32,
    #[serde(rename = "l")]
    pub(crate) lost: u32,
    /// Who claimed it.
    #[serde(rename = "t")]
    pub(crate) tenant: String,
    #[serde(rename = "ms")]
    pub(crate) lease_ms: u64,
}

impl ClaimToken {
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    pub(crate) fn signed(&self, secret: &Secret) -> String {
        let said = serde_json::to_vec(self).expect("numbers and a string are JSON");
        let signature = secret.mac(&said).finalize().into_bytes();
        format!("{PREFIX}{}.{}", BASE64.encode(said), BASE64.encode(signature))
    }

    /// `None`: we did not sign this.
    pub(crate) fn verified(text: &str, secret: &Secret) -> Option<Self> {
        let (said, signature) = text.strip_prefix(PREFIX)?.split_once('.')?;
        let (said, signature) = (BASE64.decode(said).ok()?, BASE64.decode(signature).ok()?);
        secret.mac(&said).verify_slice(&signature).ok()?;
        serde_json::from_slice(&said).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> ClaimToken {
        ClaimToken {
            job: JobId(7),
            fence: Fence(3),
            attempt: 2,
            lost: 1,
            tenant: "a.b".into(),
            lease_ms: 500,
        }
    }

    #[test]
    fn a_token_is_read_back_only_with_the_secret_it_was_signed_with() {
        let text = token().signed(&Secret::of([1; 32]));

        assert_eq!(ClaimToken::verified(&text, &Secret::of([1; 32])), Some(token()));
        assert_eq!(ClaimToken::verified(&text, &Secret::of([2; 32])), None);
    }

    #[test]
    fn a_token_that_was_changed_anywhere_is_none() {
        let text = token().signed(&Secret::of([1; 32]));

        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            // The last character of a base64 text has bits that say nothing; refusing those is the decoder's part.
            assert_eq!(ClaimToken::verified(&changed, &Secret::of([1; 32])), None, "{at}");
        }
    }
}
