//! Who asks: a tenant, and what its key allows.

use std::fmt;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::problem::{Code, Problem};

/// What a key allows. `admin` allows everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Look at runs, files, recipes.
    Read,
    /// Upload, submit, cancel, retry, delete.
    Write,
    /// Claim jobs as a worker in another language.
    Work,
    /// See and steer what is not of one tenant: workers, lanes, limits, metrics.
    Admin,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Work => "work",
            Self::Admin => "admin",
        })
    }
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub tenant: String,
    pub scopes: Vec<Scope>,
    /// Of the key; none when a caller from this machine is trusted without one.
    pub key: Option<String>,
}

impl Caller {
    /// Nothing, or the problem to answer with.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin) {
            return Ok(());
        }
        Err(Problem::new(Code::Forbidden, format!("the key has no scope `{scope}`; make one that has")))
    }
}

/// The layer of authentication has put it into the request.
impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| Problem::new(Code::Unauthorized, "send a key as `Authorization: Bearer tk_…`"))
    }
}
