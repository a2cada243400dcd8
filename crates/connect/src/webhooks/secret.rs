//! What deliveries are signed with, as the Standard Webhooks scheme has it.
//!
//! A receiver keeps the secret and computes the same: HMAC-SHA256 over `id.timestamp.body`. While a secret is being
//! rotated there are two signatures or more, so that a receiver may change over at any moment of a day.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use telecine_queue::Timestamp;

const PREFIX: &str = "whsec_";
/// Of a secret that is made here; the scheme takes 24 to 64.
const MADE_BYTES: usize = 32;
/// How long a secret that was replaced is still signed with.
pub const ROTATES_WITHIN: Duration = Duration::from_hours(24);
/// Of secrets before the previous one. Whoever rotates more often than that in a day loses the oldest.
const MOST_OLDER: usize = 8;

/// A key that sender and receiver share, written `whsec_…`. Never printed by accident.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Secret(Vec<u8>);

/// What is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signing secret is `whsec_` and the base64 of 24 to 64 bytes")]
pub struct NoSecret;

impl Secret {
    /// Another one, that nobody can guess.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut key = vec![0; MADE_BYTES];
        getrandom::fill(&mut key)?;
        Ok(Self(key))
    }

    /// As its owner is shown it, once.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body.as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl std::str::FromStr for Secret {
    type Err = NoSecret;

    fn from_str(text: &str) -> Result<Self, NoSecret> {
        let key = text.strip_prefix(PREFIX).and_then(|encoded| STANDARD.decode(encoded).ok());
        key.filter(|key| (24..=64).contains(&key.len())).map(Self).ok_or(NoSecret)
    }
}

impl TryFrom<String> for Secret {
    type Error = NoSecret;

    fn try_from(text: String) -> Result<Self, NoSecret> {
        text.parse()
    }
}

impl From<Secret> for String {
    fn from(secret: Secret) -> Self {
        secret.reveal()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whsec_…")
    }
}

/// The secret of an endpoint, and those before it for as long as they count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secrets {
    pub current: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Retired>,
    /// Those before the previous one that still count, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub older: Vec<Retired>,
}

/// A secret that is being replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    pub secret: Secret,
    /// `None`: for as long as it stands in the configuration.
    pub valid_until: Option<Timestamp>,
}

impl Secrets {
    pub fn generate() -> Result<Self, getrandom::Error> {
        Ok(Self { current: Secret::generate()?, previous: None, older: Vec::new() })
    }

    /// A new current secret; the old one is still signed with for a day, and so is each before it to the end of its own.
    pub fn rotate(&mut self, now: Timestamp) -> Result<(), getrandom::Error> {
        let retired = std::mem::replace(&mut self.current, Secret::generate()?);
        let older = std::mem::take(&mut self.older);
        self.older = self.previous.take().into_iter().chain(older).filter(|it| it.counts(now)).collect();
        self.older.truncate(MOST_OLDER);
        self.previous = Some(Retired { secret: retired, valid_until: Some(now.plus(ROTATES_WITHIN)) });
        Ok(())
    }

    /// The secret before the current one, while it counts.
    pub fn previous(&self, now: Timestamp) -> Option<&Retired> {
        self.previous.as_ref().filter(|retired| retired.counts(now))
    }

    /// The value of `webhook-signature`.
    pub fn signatures(&self, id: &str, now: Timestamp, body: &str) -> String {
        let seconds = now.as_ms().div_euclid(1_000);
        let retired = self.previous.iter().chain(&self.older).filter(|retired| retired.counts(now));
        let secrets = std::iter::once(&self.current).chain(retired.map(|retired| &retired.secret));
        let signatures: Vec<String> = secrets.map(|secret| secret.sign(id, seconds, body)).collect();
        signatures.join(" ")
    }
}

impl Retired {
    fn counts(&self, now: Timestamp) -> bool {
        self.valid_until.is_none_or(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from the scheme's own documents.
    #[test]
    fn a_signature_is_the_one_of_the_scheme() {
        let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();

        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);

        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn both_secrets_sign_for_a_day_after_a_rotation() {
        let (mut secrets, now) = (Secrets::generate().unwrap(), Timestamp::from_ms(1_700_000_000_000));
        let old = secrets.signatures("evt_1", now, "{}");

        secrets.rotate(now).unwrap();
        let rotating = secrets.signatures("evt_1", now, "{}");
        let after = now.plus(ROTATES_WITHIN);
        let new = secrets.signatures("evt_1", after, "{}");

        assert_eq!(rotating.split(' ').nth(1), Some(old.as_str()));
        assert_ne!(rotating.split(' ').next(), Some(old.as_str()));
        assert_eq!(new.split(' ').count(), 1);
        assert_eq!(new, Secrets { previous: None, ..secrets }.signatures("evt_1", after, "{}"));
    }

    #[test]
    fn a_second_rotation_takes_nothing_from_the_first() {
        let (mut secrets, now) = (Secrets::generate().unwrap(), Timestamp::from_ms(1_700_000_000_000));
        let first = secrets.signatures("evt_1", now, "{}");
        secrets.rotate(now).unwrap();
        let later = now.plus(ROTATES_WITHIN / 2);
        secrets.rotate(later).unwrap();

        let signatures = secrets.signatures("evt_1", now, "{}");
        let stored: Secrets = serde_json::from_value(serde_json::to_value(&secrets).unwrap()).unwrap();

        assert_eq!(signatures.split(' ').count(), 3);
        assert_eq!(signatures.split(' ').next_back(), Some(first.as_str()));
        assert_eq!(stored, secrets);
        let after = now.plus(ROTATES_WITHIN);
        assert_eq!(secrets.signatures("evt_1", after, "{}").split(' ').count(), 2);
        for _ in 0..100 {
            secrets.rotate(after).unwrap();
        }
        assert_eq!(secrets.signatures("evt_1", after, "{}").split(' ').count(), MOST_OLDER + 2);
    }

    #[test]
    fn a_secret_is_shown_only_where_it_is_asked_for() {
        let secret = Secret::generate().unwrap();

        assert_eq!(format!("{secret:?}"), "whsec_…");
        assert_eq!(secret.reveal().parse(), Ok(secret));
        for wrong in ["", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!"] {
            assert_eq!(wrong.parse::<Secret>(), Err(NoSecret), "{wrong}");
        }
    }
}
