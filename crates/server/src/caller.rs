//! Who asks: a tenant, and what its key allows.

use std::fmt;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::listen::Peer;
use crate::origin::is_of_this_machine;
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

/// Says who asks, or why that cannot be said. Whether somebody has to be known is for each handler to say.
pub(crate) async fn recognise(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let caller = caller_of(&app, &parts).await;
    if let Ok(caller) = &caller {
        tracing::Span::current().record("tenant", caller.tenant.as_str());
    }
    parts.extensions.insert(Recognised(caller));
    next.run(Request::from_parts(parts, body)).await
}

#[derive(Clone, Debug)]
struct Recognised(Result<Caller, Problem>);

async fn caller_of(app: &Arc<App>, request: &Parts) -> Result<Caller, Problem> {
    if app.options.trust_loopback && is_trusted(request) {
        return Ok(Caller { tenant: String::new(), scopes: vec![Scope::Admin], key: None });
    }
    Err(Problem::new(Code::Unauthorized, "send a key as `Authorization: Bearer tk_…`"))
}

fn is_trusted(request: &Parts) -> bool {
    let peer = request.extensions.get::<Peer>().copied();
    is_of_this_machine(peer, request.version, &request.uri, &request.headers)
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        let recognised = parts.extensions.get::<Recognised>();
        recognised.map_or_else(
            || Err(Problem::new(Code::Unauthorized, "nobody looked who asks")),
            |Recognised(who)| who.clone(),
        )
    }
}
