//! The token of a remote claim: what it is a claim of, signed, so that no process has to remember it.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha256;
use telecine_queue::{Fence, JobId, NewEntry, Queue, QueueError};

use crate::problem::{Code, Problem};

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

/// What tokens are signed with: the same for all processes on a database.
pub(crate) struct Secret([u8; 32]);

impl Secret {
    const KIND: &str = "secret";
    const KEY: &str = "claims";

    /// The one of this database; the first process that asks makes it.
    pub(crate) async fn shared(queue: &dyn Queue) -> Result<Self, Problem> {
        loop {
            if let Some(entry) = queue.entry(Self::KIND, Self::KEY).await? {
                return Self::read(&entry.body).ok_or_else(|| {
                    tracing::error!("the secret of claim tokens in the database is not as it was written");
                    Problem::new(Code::Internal, "tokens cannot be signed")
                });
            }
            let mut fresh = [0; 32];
            getrandom::fill(&mut fresh).map_err(|error| {
                tracing::error!(%error, "the system gives no random bytes");
                Problem::new(Code::Unavailable, "tokens cannot be signed")
            })?;
            let entry = NewEntry::new(Self::KIND, Self::KEY, json!({ "key": BASE64.encode(fresh) }));
            match queue.put_entry(entry, Some(0)).await {
                // Stale: another process was first, and its one is everybody's.
                Ok(_) | Err(QueueError::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn read(body: &Value) -> Option<Self> {
        BASE64.decode(body.get("key")?.as_str()?).ok()?.try_into().ok().map(Self)
    }

    fn mac(&self, said: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is a key");
        mac.update(said);
        mac
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
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
        let text = token().signed(&Secret([1; 32]));

        assert_eq!(ClaimToken::verified(&text, &Secret([1; 32])), Some(token()));
        assert_eq!(ClaimToken::verified(&text, &Secret([2; 32])), None);
    }

    #[test]
    fn a_token_that_was_changed_anywhere_is_none() {
        let text = token().signed(&Secret([1; 32]));

        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            // The last character of a base64 text has bits that say nothing; refusing those is the decoder's part.
            assert_eq!(ClaimToken::verified(&changed, &Secret([1; 32])), None, "{at}");
        }
    }
}
