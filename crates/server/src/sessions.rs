//! Sessions of the dashboard: a key is exchanged for a cookie, which no script can read and no other site can send.
//!
//! A session is stored beside the keys and ends with its key, by its age, or when its user ends it.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use serde::{Deserialize, Serialize};
use telecine_queue::{Entry, NewEntry, Queue, QueueError, Timestamp};

use crate::caller::Caller;
use crate::keys;
use crate::token::{self, Token};

const KIND: &str = "session";
pub(crate) const PREFIX: &str = "ts";
pub(crate) const COOKIE: &str = "telecine_session";
const LASTS: Duration = Duration::from_hours(7 * 24);

#[derive(Deserialize, Serialize)]
struct Stored {
    sha256: String,
    /// The id of the key that it was begun with.
    key: String,
    expires_at: Timestamp,
}

/// A session that has begun.
pub(crate) struct Begun {
    text: String,
    pub(crate) expires_at: Timestamp,
}

impl Begun {
    pub(crate) fn cookie(&self, is_https: bool) -> HeaderValue {
        cookie(&self.text, LASTS.as_secs(), is_https)
    }
}

/// Takes the cookie away from the browser.
pub(crate) fn no_cookie(is_https: bool) -> HeaderValue {
    cookie("", 0, is_https)
}

fn cookie(text: &str, seconds: u64, is_https: bool) -> HeaderValue {
    let secure = if is_https { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={text}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    HeaderValue::from_str(&cookie).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// What a browser sent back.
pub(crate) fn text_in(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';'));
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, text)| text)
}

/// Begins a session for whoever showed this key, and forgets those that have expired.
pub(crate) async fn begin(queue: &dyn Queue, key: &str) -> Result<Begun, QueueError> {
    forget_expired(queue).await?;
    let token = Token::make(PREFIX);
    let expires_at = Timestamp::now().plus(LASTS);
    let stored = Stored { sha256: token::hash(&token.text), key: key.to_owned(), expires_at };
    let body = serde_json::to_value(stored).map_err(|error| QueueError::Unexpected {
        reason: format!("a session cannot be written: {error}"),
    })?;
    queue.put_entry(NewEntry::new(KIND, token.id, body), Some(0)).await?;
    Ok(Begun { text: token.text, expires_at })
}

/// Ends the session that a browser shows.
pub(crate) async fn end(queue: &dyn Queue, text: &str) -> Result<(), QueueError> {
    if stored_by(queue, text).await?.is_some()
        && let Some(id) = Token::id_in(PREFIX, text)
    {
        queue.delete_entry(KIND, id).await?;
    }
    Ok(())
}

/// Who shows this text; `None` when the session is over.
pub(crate) async fn caller_by_text(queue: &dyn Queue, text: &str) -> Result<Option<Caller>, QueueError> {
    match stored_by(queue, text).await? {
        Some(session) => keys::caller_by_id(queue, &session.key).await,
        None => Ok(None),
    }
}

async fn stored_by(queue: &dyn Queue, text: &str) -> Result<Option<Stored>, QueueError> {
    let Some(id) = Token::id_in(PREFIX, text) else { return Ok(None) };
    let stored =
        queue.entry(KIND, id).await?.and_then(|entry| serde_json::from_value::<Stored>(entry.body).ok());
    let now = Timestamp::now();
    Ok(stored.filter(|stored| stored.expires_at > now && token::has_hash(text, &stored.sha256)))
}

async fn forget_expired(queue: &dyn Queue) -> Result<(), QueueError> {
    let now = Timestamp::now();
    for Entry { key, body, .. } in queue.entries(KIND, None, Entry::MAX_LIMIT).await? {
        let is_over =
            serde_json::from_value::<Stored>(body).map_or(true, |session| session.expires_at <= now);
        if is_over {
            queue.delete_entry(KIND, &key).await?;
        }
    }
    Ok(())
}
