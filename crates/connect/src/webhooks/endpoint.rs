//! Endpoints: who is told what, and with which secret.

use std::fmt;

use serde::{Deserialize, Serialize};
use telecine_pipeline::outside::Outside;
use telecine_queue::Timestamp;
use ulid::Ulid;

use super::WebhookError;
use super::secret::{Secret, Secrets};

pub const MAX_EVENTS: usize = 50;
pub const MAX_DESCRIPTION_CHARS: usize = 500;
const MAX_WORDS: usize = 4;
const MAX_WORD_BYTES: usize = 40;
/// Told all the time, so to whoever listens to a stream, and to no webhook.
const PROGRESS: &str = "run.progress";

/// The name of an endpoint, such as `we_01J9Z…`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(value_type = String, pattern = "^we_[0-7][0-9A-HJKMNP-TV-Z]{25}$", examples("we_01J9ZC8E4QWX5T0N1V2B3M4K6P"))
)]
#[serde(try_from = "String", into = "String")]
pub struct EndpointId(String);

impl EndpointId {
    pub(super) fn of(ulid: Ulid) -> Self {
        Self(format!("we_{ulid}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What bounds the deliveries to this endpoint.
    pub(super) fn limit_key(&self) -> String {
        format!("webhook:{self}")
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl std::str::FromStr for EndpointId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("we_").and_then(|ulid| Ulid::from_string(ulid).ok()) {
            // As it is written, lower case and all, it is the key of an entry: there is one way to write it.
            Some(ulid) if format!("we_{ulid}") == text => Ok(Self(text.into())),
            _ => Err(format!("`{text}` is not the id of an endpoint such as we_{}", Ulid::nil())),
        }
    }
}

impl TryFrom<String> for EndpointId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<EndpointId> for String {
    fn from(id: EndpointId) -> Self {
        id.0
    }
}

/// Which events: a name such as `run.succeeded`, all of a group such as `run.*`, or `*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(
        value_type = String, pattern = "^(\\*|[a-z0-9_]{1,40}(\\.[a-z0-9_]{1,40}){0,3}(\\.\\*)?)$",
        examples("run.succeeded")
    )
)]
#[serde(try_from = "String", into = "String")]
pub struct EventPattern(String);

impl EventPattern {
    fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(group) => name.starts_with(group),
            None => name == self.0,
        }
    }
}

impl TryFrom<String> for EventPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_word = |word: &str| {
            (1..=MAX_WORD_BYTES).contains(&word.len())
                && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let group = text.strip_suffix(".*").unwrap_or(&text);
        let is_pattern =
            text == "*" || (group.split('.').count() <= MAX_WORDS && group.split('.').all(is_word));
        is_pattern.then_some(Self(text)).ok_or_else(|| {
            "an event is a name such as run.succeeded, all of a group such as run.*, or *".to_owned()
        })
    }
}

impl From<EventPattern> for String {
    fn from(pattern: EventPattern) -> Self {
        pattern.0
    }
}

/// Who is told of a tenant's runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub id: EndpointId,
    pub tenant: String,
    pub url: String,
    /// Empty: all.
    pub events: Vec<EventPattern>,
    pub description: String,
    /// Why nothing is sent to it, if nothing is.
    pub disabled: Option<Disabled>,
    pub managed_by: ManagedBy,
    pub secrets: Secrets,
    pub created_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disabled {
    pub reason: String,
    pub at: Timestamp,
}

impl Disabled {
    pub(super) fn now(reason: &str) -> Self {
        Self { reason: reason.to_owned(), at: Timestamp::now() }
    }
}

/// Where an endpoint is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ManagedBy {
    Api,
    /// Only its being enabled can be changed over the API.
    Configuration,
}

impl Endpoint {
    pub fn wants(&self, event: &str) -> bool {
        let is_asked_for = || self.events.is_empty() || self.events.iter().any(|it| it.matches(event));
        event != PROGRESS && is_asked_for()
    }
}

/// What the address that a run names is told of.
pub(super) fn run_wants(event: &str) -> bool {
    event != PROGRESS
}

/// An endpoint to be made.
#[derive(Clone, Debug)]
pub struct NewEndpoint {
    pub url: String,
    pub events: Vec<EventPattern>,
    pub description: String,
}

/// What is to be other than it is.
#[derive(Clone, Debug, Default)]
pub struct EndpointChange {
    pub url: Option<String>,
    pub events: Option<Vec<EventPattern>>,
    pub description: Option<String>,
    pub enabled: Option<bool>,
}

impl EndpointChange {
    pub(super) fn is_of_configuration(&self) -> bool {
        self.url.is_some() || self.events.is_some() || self.description.is_some()
    }
}

pub(super) fn no_endpoint() -> WebhookError {
    WebhookError::NotFound { what: "webhook" }
}

pub(super) fn require_own(endpoint: &Endpoint) -> Result<(), WebhookError> {
    match endpoint.managed_by {
        ManagedBy::Api => Ok(()),
        ManagedBy::Configuration => {
            Err(WebhookError::conflict("this webhook is set in the configuration; change it there"))
        }
    }
}

/// An address that deliveries may go to. What stands before an `@` would be shown in every list.
pub(super) fn check_url(outside: &Outside, url: &str) -> Result<(), WebhookError> {
    let parsed = outside.check(url).map_err(|refused| WebhookError::invalid("url", refused.to_string()))?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(WebhookError::invalid(
            "url",
            "it has a user or a password in it; deliveries are signed instead",
        ));
    }
    Ok(())
}

pub(super) fn check_events(events: &[EventPattern]) -> Result<(), WebhookError> {
    if events.len() > MAX_EVENTS {
        return Err(WebhookError::invalid("events", format!("there are more than {MAX_EVENTS}")));
    }
    if events.iter().any(|pattern| pattern.0 == PROGRESS) {
        return Err(WebhookError::invalid(
            "events",
            "`run.progress` is not sent to webhooks; listen to GET /v1/runs/{id}/events for it",
        ));
    }
    Ok(())
}

pub(super) fn check_description(text: &str) -> Result<(), WebhookError> {
    let fits = text.chars().count() <= MAX_DESCRIPTION_CHARS && !text.contains('\0');
    fits.then_some(()).ok_or_else(|| {
        WebhookError::invalid(
            "description",
            format!("it is at most {MAX_DESCRIPTION_CHARS} characters without NUL"),
        )
    })
}

impl Endpoint {
    /// Shown once, to whoever made it.
    pub fn secret(&self) -> &Secret {
        &self.secrets.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<EventPattern> {
        texts.iter().map(|text| (*text).to_owned().try_into().unwrap()).collect()
    }

    fn endpoint(events: &[&str]) -> Endpoint {
        Endpoint {
            id: EndpointId::of(Ulid::nil()),
            tenant: String::new(),
            url: "https://a.example/hook".into(),
            events: patterns(events),
            description: String::new(),
            disabled: None,
            managed_by: ManagedBy::Api,
            secrets: Secrets::generate().unwrap(),
            created_at: Timestamp::from_ms(0),
        }
    }

    #[test]
    fn an_endpoint_is_told_what_it_asked_for() {
        let (all, some) = (endpoint(&[]), endpoint(&["run.succeeded", "asset.*"]));

        assert!(all.wants("run.created") && all.wants("asset.approved") && !all.wants("run.progress"));
        assert!(some.wants("run.succeeded") && some.wants("asset.approved"));
        assert!(!some.wants("run.failed") && !some.wants("assets.other") && !some.wants("run.progress"));
        assert!(!endpoint(&["run.*"]).wants("run.progress") && !endpoint(&["*"]).wants("run.progress"));
        assert!(check_events(&patterns(&["run.*", "*"])).is_ok());
        assert!(check_events(&patterns(&["run.failed", "run.progress"])).is_err(), "it is never sent");
    }

    #[test]
    fn what_is_no_event_is_no_pattern() {
        for wrong in [
            "",
            ".",
            "run.",
            "Run.created",
            "run.**",
            "a.b.c.d.e",
            "*.created",
            "run*",
            "run created",
            "ru\nn",
        ] {
            assert!(EventPattern::try_from(wrong.to_owned()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_id_is_written_in_one_way() {
        let id = EndpointId::of(Ulid::generate()).to_string();

        assert!(id.parse::<EndpointId>().is_ok());
        for wrong in [id.to_lowercase(), id[3..].to_owned(), format!("{id}/x"), "we_".into(), String::new()] {
            assert!(wrong.parse::<EndpointId>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_url_has_no_password_and_leads_outside() {
        let outside = Outside::reaching(false);

        assert!(check_url(&outside, "https://a.example:8443/hook?x=1").is_ok());
        for wrong in
            ["https://u:p@a.example/", "https://u@a.example/", "http://127.0.0.1/", "ftp://a.example/"]
        {
            assert!(check_url(&outside, wrong).is_err(), "{wrong}");
        }
    }
}
