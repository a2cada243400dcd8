//! Entries: small documents that belong to no run, so that whoever stands above the queue needs no table of its own.

use serde::Serialize;
use serde_json::Value;

use crate::error::Result;
use crate::job::{check_json, check_name};
use crate::timestamp::Timestamp;

/// A document to be kept under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEntry {
    /// What it is about: entries are listed by kind.
    pub kind: String,
    pub key: String,
    pub body: Value,
}

impl NewEntry {
    pub fn new(kind: impl Into<String>, key: impl Into<String>, body: Value) -> Self {
        Self { kind: kind.into(), key: key.into(), body }
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_name("kind of an entry", &self.kind)?;
        check_name("key of an entry", &self.key)?;
        check_json("the body of an entry", &self.body)
    }
}

/// An entry as it is stored. Its versions count its writes, 1, 2, 3, …; once deleted, it begins anew.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Entry {
    pub kind: String,
    pub key: String,
    pub version: u64,
    pub body: Value,
    pub updated_at: Timestamp,
}

impl Entry {
    /// The most that one look lists.
    pub const MAX_LIMIT: u32 = 1_000;
}
