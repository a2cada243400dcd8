//! Who asks: a tenant, and what its key allows.
//!
//! ```text
//!   Authorization: Bearer tk_…  ──► the key ─┐
//!   Cookie (a page of ours)     ──► session ─┼─► Caller, or the problem that a handler which needs one answers with
//!   this machine, if trusted    ─────────────┘
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, OptionalFromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, header};
use moka::future::Cache;
use serde::{Deserialize, Serialize};
use telecine_queue::{Queue, QueueError};
use utoipa::ToSchema;

use crate::app::App;
use crate::listen::{Peer, Spare, full};
use crate::origin::{is_of_own_page, is_of_this_machine};
use crate::pace::Asker;
use crate::problem::{Code, Problem};
use crate::{keys, sessions};

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

impl Scope {
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Work, Self::Admin];
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

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scope = Self::ALL.into_iter().find(|scope| scope.to_string() == text);
        scope.ok_or_else(|| format!("`{text}` is none of read, write, work, admin"))
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

    /// The operator on this machine.
    fn trusted() -> Self {
        Self { tenant: String::new(), scopes: Scope::ALL.to_vec(), key: None }
    }
}

/// What a caller is known by, for who serves it for longer than a moment.
#[derive(Clone)]
pub(crate) enum Standing {
    /// It is on this machine, which is trusted.
    Machine,
    Key(String),
    Session(String),
}

impl Standing {
    /// Whether it would be let in as the same caller now.
    pub(crate) async fn holds(&self, app: &App, caller: &Caller) -> bool {
        let shown = match self {
            Self::Machine => return true,
            Self::Key(text) => Shown::Key(text),
            Self::Session(text) => Shown::Session(text),
        };
        match app.known.look_up(app.queue(), shown).await {
            Ok(now) => now.as_ref() == Some(caller),
            // That the database does not answer is no reason to take a key for revoked.
            Err(_) => true,
        }
    }

    /// Returns when it does not hold any more.
    pub(crate) async fn lost(self, app: Arc<App>, caller: Caller) {
        while self.holds(&app, &caller).await {
            tokio::time::sleep(BELIEVED).await;
        }
    }
}

/// Of a caller that was recognised.
impl FromRequestParts<Arc<App>> for Standing {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let caller = <Caller as FromRequestParts<Arc<App>>>::from_request_parts(parts, app).await?;
        Ok(match shown(app, &parts.headers)? {
            // A session that is over is as none.
            _ if caller.key.is_none() => Self::Machine,
            Some(Shown::Key(text)) => Self::Key(text.to_owned()),
            Some(Shown::Session(text)) => Self::Session(text.to_owned()),
            None => Self::Machine,
        })
    }
}

/// How long a key or session is believed without another look: what is revoked works no longer than this.
const BELIEVED: Duration = Duration::from_secs(3);
const MOST_BELIEVED: u64 = 10_000;

/// Keys and sessions that were looked up a moment ago, by their hash; also those that were none.
#[derive(Debug)]
pub(crate) struct Known(Cache<String, Option<Caller>>);

impl Known {
    pub(crate) fn new() -> Self {
        Self(Cache::builder().max_capacity(MOST_BELIEVED).time_to_live(BELIEVED).build())
    }

    async fn look_up(&self, queue: &dyn Queue, shown: Shown<'_>) -> Result<Option<Caller>, Problem> {
        let look = async {
            match shown {
                Shown::Key(text) => keys::caller_by_text(queue, text).await,
                Shown::Session(text) => sessions::caller_by_text(queue, text).await,
            }
        };
        let found = self.0.try_get_with(crate::token::hash(shown.text()), look).await;
        found.map_err(|error: Arc<QueueError>| not_looked_up(&error))
    }

    async fn has(&self, shown: Shown<'_>) -> bool {
        self.0.contains_key(&crate::token::hash(shown.text()))
    }

    /// The session was ended by its user: at once, here.
    pub(crate) async fn forget(&self, text: &str) {
        self.0.invalidate(&crate::token::hash(text)).await;
    }
}

fn not_looked_up(error: &QueueError) -> Problem {
    tracing::error!(%error, "who asks could not be looked up");
    Problem::new(Code::Unavailable, "the database does not answer; try again")
        .retry_after(Duration::from_secs(1))
}

/// What a request shows of its sender.
#[derive(Clone, Copy)]
enum Shown<'a> {
    Key(&'a str),
    Session(&'a str),
}

impl<'a> Shown<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Key(text) | Self::Session(text) => text,
        }
    }
}

/// Says who asks, or why that cannot be said, how often they may, and how much at once. Whether somebody has to be known is for each
/// handler to say.
pub(crate) async fn recognise(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let recognised = match recognised(&app, &parts).await {
        Ok(recognised) => recognised,
        Err(too_much) => return too_much.into_response(),
    };
    let share = match sharer(&recognised, &parts).map(|asker| app.shares.take(asker)).transpose() {
        Ok(share) => share.map(Arc::new),
        Err(too_much) => return too_much.into_response(),
    };
    if let Recognised::As(caller) = &recognised {
        tracing::Span::current().record("tenant", caller.tenant.as_str());
    }
    parts.extensions.insert(recognised);
    let mut response = next.run(Request::from_parts(parts, body)).await;
    // The listener keeps it until the answer was sent.
    if let Some(share) = share {
        response.extensions_mut().insert(share);
    }
    response
}

#[derive(Clone, Debug)]
enum Recognised {
    As(Caller),
    /// Showed nothing.
    Nobody,
    /// Showed something that does not count.
    Refused(Problem),
}

/// Who counts how many requests it has under way. The operator on this machine does not, nor does whoever looks after it.
fn sharer(recognised: &Recognised, request: &Parts) -> Option<Asker> {
    match recognised {
        _ if is_exempt(request.uri.path()) => None,
        Recognised::As(caller) => caller.key.clone().map(Asker::Key),
        Recognised::Nobody | Recognised::Refused(_) => address_of(request),
    }
}

fn address_of(request: &Parts) -> Option<Asker> {
    request.extensions.get::<Peer>().map(|Peer(address)| Asker::at(address.ip()))
}

/// The error is for those who ask too often, or when there is no room.
async fn recognised(app: &App, request: &Parts) -> Result<Recognised, Problem> {
    let peer = request.extensions.get::<Peer>().copied();
    let asker = address_of(request);
    let slow_down = |asker: Option<Asker>| asker.map_or(Ok(()), |asker| app.pace.ask(asker));
    if is_exempt(request.uri.path()) {
        return Ok(Recognised::Nobody);
    }
    if request.extensions.get::<Spare>().is_some() {
        return Err(full());
    }
    match shown(app, &request.headers) {
        Ok(Some(shown)) => {
            // What was not looked up lately costs a look, whoever pays for it.
            let is_new = !app.known.has(shown).await;
            if is_new {
                slow_down(asker.clone())?;
            }
            match app.known.look_up(app.queue(), shown).await {
                Ok(Some(caller)) => {
                    slow_down(caller.key.clone().map(Asker::Key))?;
                    return Ok(checked(app, shown, caller, request));
                }
                Ok(None) if matches!(shown, Shown::Key(_)) => {
                    // Of what is known to be no key nobody else can be charged.
                    if !is_new {
                        slow_down(asker)?;
                    }
                    let refusal = "the key is not valid, or not any more; see `telecine key ls`";
                    return Ok(Recognised::Refused(Problem::new(Code::Unauthorized, refusal)));
                }
                // A session that is over is as none.
                Ok(None) => {}
                Err(problem) => return Ok(Recognised::Refused(problem)),
            }
        }
        Ok(None) => {}
        Err(problem) => {
            slow_down(asker)?;
            return Ok(Recognised::Refused(problem));
        }
    }
    if is_of_this_machine(peer, request.version, &request.uri, &request.headers) {
        match app.trusts_this_machine().await {
            Ok(true) => return Ok(Recognised::As(Caller::trusted())),
            Ok(false) => {}
            Err(error) => return Ok(Recognised::Refused(not_looked_up(&error))),
        }
    }
    slow_down(asker)?;
    Ok(Recognised::Nobody)
}

/// Whether this process lives must be told however many ask.
fn is_exempt(path: &str) -> bool {
    path.starts_with("/health/")
}

fn shown<'a>(app: &App, headers: &'a HeaderMap) -> Result<Option<Shown<'a>>, Problem> {
    let Some(authorization) = headers.get(header::AUTHORIZATION) else {
        let is_https = sessions::is_https(app.options.public_url.as_deref(), headers);
        return Ok(sessions::text_in(headers, is_https).map(Shown::Session));
    };
    let bearer = authorization.to_str().ok().and_then(|text| text.split_once(' '));
    match bearer {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(Shown::Key(key.trim()))),
        _ => Err(Problem::new(Code::Unauthorized, "send a key as `Authorization: Bearer tk_…`")),
    }
}

/// A browser adds its cookie whoever wrote the page; so whatever changes something has to come from a page of ours.
fn checked(app: &App, shown: Shown<'_>, caller: Caller, request: &Parts) -> Recognised {
    let public = app.options.public_url.as_deref();
    match shown {
        Shown::Session(_)
            if !request.method.is_safe() && !is_of_own_page(public, &request.uri, &request.headers) =>
        {
            let refusal = "a session changes things only from a page of this server; send a key instead";
            Recognised::Refused(Problem::new(Code::Forbidden, refusal))
        }
        Shown::Session(_) | Shown::Key(_) => Recognised::As(caller),
    }
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        match parts.extensions.get::<Recognised>() {
            Some(Recognised::As(caller)) => Ok(caller.clone()),
            Some(Recognised::Refused(problem)) => Err(problem.clone()),
            Some(Recognised::Nobody) | None => {
                Err(Problem::new(Code::Unauthorized, "send a key as `Authorization: Bearer tk_…`"))
            }
        }
    }
}

/// For handlers that have another way in, such as a signed address: `None` is a request that shows nothing.
impl OptionalFromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Option<Self>, Problem> {
        match parts.extensions.get::<Recognised>() {
            Some(Recognised::As(caller)) => Ok(Some(caller.clone())),
            Some(Recognised::Refused(problem)) => Err(problem.clone()),
            Some(Recognised::Nobody) | None => Ok(None),
        }
    }
}
