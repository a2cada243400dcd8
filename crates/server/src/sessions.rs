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
/// Over https: a browser takes it from this host alone, and from no other of its domain.
const HOST_COOKIE: &str = "__Host-telecine_session";
const LASTS: Duration = Duration::from_hours(7 * 24);
/// With one more, the oldest of a key ends.
const MOST_OF_A_KEY: usize = 32;

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
    let name = cookie_name(is_https);
    let cookie = format!("{name}={text}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    HeaderValue::from_str(&cookie).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn cookie_name(is_https: bool) -> &'static str {
    if is_https { HOST_COOKIE } else { COOKIE }
}

/// Whether the browser speaks https, with us or with what is in front of us.
pub(crate) fn is_https(public_url: Option<&str>, headers: &HeaderMap) -> bool {
    public_url.is_some_and(|url| url.starts_with("https://"))
        || headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https")
}

/// What a browser sent back.
pub(crate) fn text_in(headers: &HeaderMap, is_https: bool) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';'));
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == cookie_name(is_https))
        .map(|(_, text)| text)
}

/// Begins a session for whoever showed this key, and forgets those that are over.
pub(crate) async fn begin(queue: &dyn Queue, key: &str) -> Result<Begun, QueueError> {
    make_room(queue, key).await?;
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

/// Ends what has expired, and the oldest of a key that has too many.
async fn make_room(queue: &dyn Queue, of: &str) -> Result<(), QueueError> {
    let now = Timestamp::now();
    let (mut live, mut after) = (Vec::new(), None);
    loop {
        let page = queue.entries(KIND, after.as_deref(), Entry::MAX_LIMIT).await?;
        let is_last = page.len() < Entry::MAX_LIMIT as usize;
        after = page.last().map(|entry| entry.key.clone());
        for Entry { key: id, body, .. } in page {
            match serde_json::from_value::<Stored>(body) {
                Ok(session) if session.expires_at > now => {
                    live.extend((session.key == of).then_some((session.expires_at, id)));
                }
                Ok(_) | Err(_) => drop(queue.delete_entry(KIND, &id).await?),
            }
        }
        if is_last {
            break;
        }
    }
    live.sort();
    let excess = (live.len() + 1).saturating_sub(MOST_OF_A_KEY);
    for (_, id) in live.into_iter().take(excess) {
        queue.delete_entry(KIND, &id).await?;
    }
    Ok(())
}
