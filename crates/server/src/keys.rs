//! API keys: made and revoked by the operator, shown once, stored as a hash, each of one tenant.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use telecine_queue::{Entry, NewEntry, Queue, QueueError, Timestamp};

use crate::caller::{Caller, Scope};
use crate::token::{self, Token};

const KIND: &str = "api_key";
pub(crate) const PREFIX: &str = "tk";
const MAX_NAME_BYTES: usize = 200;

/// What a new key is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// For the operator's lists.
    pub name: String,
    /// Whose runs it sees and makes.
    pub tenant: String,
    pub scopes: BTreeSet<Scope>,
}

/// A key as it is listed: without its secret, which nobody has but its user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The public part: `tk_ID_…`.
    pub id: String,
    pub name: String,
    pub tenant: String,
    pub scopes: BTreeSet<Scope>,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

/// As it is stored. A field that a later version adds needs a default.
#[derive(Deserialize, Serialize)]
struct Stored {
    sha256: String,
    name: String,
    tenant: String,
    scopes: BTreeSet<Scope>,
    created_at: Timestamp,
    revoked_at: Option<Timestamp>,
}

/// Makes a key. The text is the only copy there will ever be.
pub async fn make(queue: &dyn Queue, new: NewKey) -> Result<(Key, String), QueueError> {
    check(&new)?;
    let token = Token::make(PREFIX);
    let stored = Stored {
        sha256: token::hash(&token.text),
        name: new.name,
        tenant: new.tenant,
        scopes: new.scopes,
        created_at: Timestamp::now(),
        revoked_at: None,
    };
    queue.put_entry(entry(&token.id, &stored)?, Some(0)).await?;
    Ok((shown(token.id, stored), token.text))
}

/// By id.
pub async fn list(queue: &dyn Queue) -> Result<Vec<Key>, QueueError> {
    let mut keys: Vec<Key> = Vec::new();
    loop {
        let after = keys.last().map(|key| key.id.clone());
        let page = queue.entries(KIND, after.as_deref(), Entry::MAX_LIMIT).await?;
        let is_last = page.len() < Entry::MAX_LIMIT as usize;
        for Entry { key, body, .. } in page {
            keys.push(shown(key, read(body)?));
        }
        if is_last {
            return Ok(keys);
        }
    }
}

/// From now on nobody gets in by it (servers notice within seconds). `None`: there is no such key. Revoking twice keeps the first
/// time.
pub async fn revoke(queue: &dyn Queue, id: &str) -> Result<Option<Key>, QueueError> {
    loop {
        let Some(Entry { key, version, body, .. }) = queue.entry(KIND, id).await? else { return Ok(None) };
        let mut stored: Stored = read(body)?;
        if stored.revoked_at.is_some() {
            return Ok(Some(shown(key, stored)));
        }
        stored.revoked_at = Some(Timestamp::now());
        match queue.put_entry(entry(&key, &stored)?, Some(version)).await {
            Ok(_) => return Ok(Some(shown(key, stored))),
            Err(QueueError::Stale { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether there was ever a key, revoked or not: who took the last one back did not mean to let everybody in.
pub async fn was_any_made(queue: &dyn Queue) -> Result<bool, QueueError> {
    Ok(!queue.entries(KIND, None, 1).await?.is_empty())
}

/// Whether anybody could get in by a key.
pub(crate) async fn is_there_any(queue: &dyn Queue) -> Result<bool, QueueError> {
    Ok(list(queue).await?.iter().any(|key| key.revoked_at.is_none()))
}

/// Who shows this text; `None` when it is no valid key (any more).
pub(crate) async fn caller_by_text(queue: &dyn Queue, text: &str) -> Result<Option<Caller>, QueueError> {
    let Some(id) = Token::id_in(PREFIX, text) else { return Ok(None) };
    let stored = valid(queue, id).await?;
    Ok(stored.filter(|stored| token::has_hash(text, &stored.sha256)).map(|stored| caller(id, stored)))
}

/// Whose key it is; for a session, which was begun with it.
pub(crate) async fn caller_by_id(queue: &dyn Queue, id: &str) -> Result<Option<Caller>, QueueError> {
    Ok(valid(queue, id).await?.map(|stored| caller(id, stored)))
}

async fn valid(queue: &dyn Queue, id: &str) -> Result<Option<Stored>, QueueError> {
    let Some(entry) = queue.entry(KIND, id).await? else { return Ok(None) };
    let stored: Stored = read(entry.body)?;
    Ok(Some(stored).filter(|stored| stored.revoked_at.is_none()))
}

fn caller(id: &str, stored: Stored) -> Caller {
    Caller { tenant: stored.tenant, scopes: stored.scopes.into_iter().collect(), key: Some(id.to_owned()) }
}

fn check(new: &NewKey) -> Result<(), QueueError> {
    let invalid = |reason: &str| Err(QueueError::Invalid { reason: reason.into() });
    let is_proper = |text: &str| text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control);
    if !is_proper(&new.tenant) {
        return invalid("a tenant is at most 200 bytes without control characters");
    }
    if new.tenant == "*" {
        return invalid("`*` stands for all tenants where one is asked for, and is the name of none");
    }
    if !is_proper(&new.name) {
        return invalid("the name of a key is at most 200 bytes without control characters");
    }
    if new.scopes.is_empty() {
        return invalid("a key without a scope allows nothing; name one of read, write, work, admin");
    }
    Ok(())
}

fn entry(id: &str, stored: &Stored) -> Result<NewEntry, QueueError> {
    let body = serde_json::to_value(stored)
        .map_err(|error| QueueError::Unexpected { reason: format!("a key cannot be written: {error}") })?;
    Ok(NewEntry::new(KIND, id, body))
}

fn read(body: serde_json::Value) -> Result<Stored, QueueError> {
    serde_json::from_value(body)
        .map_err(|error| QueueError::Unexpected { reason: format!("a stored key cannot be read: {error}") })
}

fn shown(id: String, stored: Stored) -> Key {
    let Stored { name, tenant, scopes, created_at, revoked_at, .. } = stored;
    Key { id, name, tenant, scopes, created_at, revoked_at }
}
