//! Secrets that a caller shows: `PREFIX_ID_SECRET`. The id finds what is stored; of the secret only a hash is stored.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::distr::{Alphanumeric, SampleString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const ID_CHARS: usize = 12;
/// 62^43 is more than 2^256: nobody guesses it, so a fast hash is enough.
const SECRET_CHARS: usize = 43;

/// A secret that was just made. Not `Debug`: it must not end up in a log.
pub(crate) struct Token {
    pub(crate) id: String,
    pub(crate) text: String,
}

impl Token {
    pub(crate) fn make(prefix: &str) -> Self {
        // The operating system's randomness, stretched by ChaCha.
        let mut random = rand::rng();
        let id = Alphanumeric.sample_string(&mut random, ID_CHARS);
        let secret = Alphanumeric.sample_string(&mut random, SECRET_CHARS);
        Self { text: format!("{prefix}_{id}_{secret}"), id }
    }

    /// The id in a text that has the form of a token.
    pub(crate) fn id_in<'a>(prefix: &str, text: &'a str) -> Option<&'a str> {
        let (id, secret) = text.strip_prefix(prefix)?.strip_prefix('_')?.split_once('_')?;
        let is_proper = |part: &str, chars: usize| {
            part.len() == chars && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        (is_proper(id, ID_CHARS) && is_proper(secret, SECRET_CHARS)).then_some(id)
    }
}

/// What is stored of a token.
pub(crate) fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

/// Takes as long for a wrong text as for the right one.
pub(crate) fn has_hash(text: &str, stored: &str) -> bool {
    hash(text).as_bytes().ct_eq(stored.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_id_and_proved_by_its_hash() {
        let token = Token::make("tk");
        let other = Token::make("tk");

        assert_eq!(Token::id_in("tk", &token.text), Some(token.id.as_str()));
        assert!(has_hash(&token.text, &hash(&token.text)));
        assert!(!has_hash(&other.text, &hash(&token.text)));
        assert!(!hash(&token.text).contains(&token.text[16..]));
    }

    #[test]
    fn what_has_not_the_form_of_a_token_has_no_id() {
        let token = Token::make("tk").text;
        for text in [
            String::new(),
            "tk_".into(),
            "tk_a_b".into(),
            token.replace("tk_", "ts_"),
            format!("{token}x"),
            token[..token.len() - 1].into(),
            token.replacen('_', "-", 2),
            format!("tk_{}_{}", "é".repeat(6), "a".repeat(43)),
        ] {
            assert_eq!(Token::id_in("tk", &text), None, "{text}");
        }
    }
}
