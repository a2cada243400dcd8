//! What tokens are signed with: the same for all processes on a database.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use telecine_queue::{NewEntry, Queue, QueueError};

use crate::problem::{Code, Problem};

pub(crate) struct Secret([u8; 32]);

impl Secret {
    const KIND: &str = "secret";

    /// The one of that name of this database; the first process that asks makes it.
    pub(crate) async fn shared(queue: &dyn Queue, name: &str) -> Result<Self, Problem> {
        loop {
            if let Some(entry) = queue.entry(Self::KIND, name).await? {
                return Self::read(&entry.body).ok_or_else(|| {
                    tracing::error!(name, "a secret in the database is not as it was written");
                    Problem::new(Code::Internal, "tokens cannot be signed")
                });
            }
            let mut fresh = [0; 32];
            getrandom::fill(&mut fresh).map_err(|error| {
                tracing::error!(%error, "the system gives no random bytes");
                Problem::new(Code::Unavailable, "tokens cannot be signed")
            })?;
            let entry = NewEntry::new(Self::KIND, name, json!({ "key": BASE64.encode(fresh) }));
            match queue.put_entry(entry, Some(0)).await {
                // Stale: another process was first, and its one is everybody's.
                Ok(_) | Err(QueueError::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn of(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    fn read(body: &Value) -> Option<Self> {
        BASE64.decode(body.get("key")?.as_str()?).ok()?.try_into().ok().map(Self)
    }

    /// Compares in constant time.
    pub(crate) fn mac(&self, said: &[u8]) -> Hmac<Sha256> {
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
