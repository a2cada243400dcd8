//! A run as a caller asks for it: the same document whichever way it comes.
//!
//! What is wrong with one is told with its place. A *malformed* request is not as documented and never will be; an
//! *impossible* one is, but names what is not here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use telecine_queue::Timestamp;

use crate::failure::Failed;
use crate::input::Input;
use crate::media_type::MediaType;
use crate::outside::Outside;
use crate::published::prefix_fault;
use crate::recipe::{NoRecipe, Recipe, Recipes};
use crate::source::check_input;
use crate::submission::{RunWebhook, Submission};
use crate::workshop::Workshop;

/// What a caller may have given back to it.
pub const METADATA_BYTES: usize = 4 * 1024;
/// The queue's own bound on names.
const NAME_BYTES: usize = 200;
const ADDRESS_BYTES: usize = 2_048;
const HIGHEST_PRIORITY: u8 = 100;
const DEEPEST: usize = 32;
const TOO_DEEP_OR_NUL: &str = "nested at most 32 deep, and without NUL characters";

/// One input, to be processed by one recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// The name of a recipe; `GET /v1/recipes` lists them.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 200, examples("web-video")))]
    pub recipe: String,
    pub input: Input,
    /// Values of the recipe's steps, by step: `{"hls": {"ladder": {"heights": [720]}}, "mp4": {"enabled": true}}`.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Object>))]
    pub params: BTreeMap<String, Map<String, Value>>,
    /// The caller's own id for the run, in at most 200 bytes. Runs can be listed by it.
    #[serde(default)]
    #[cfg_attr(
        feature = "openapi",
        schema(min_length = 1, max_length = 200, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*$")
    )]
    pub external_id: Option<String>,
    /// 0 to 100, higher first. Over HTTP more than 50 needs the scope `admin`.
    #[serde(default = "usual_priority", deserialize_with = "priority")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 100, default = 50))]
    pub priority: u8,
    /// Not before this instant.
    #[serde(default)]
    pub run_at: Option<Timestamp>,
    /// Where its outputs are published: a prefix of keys such as `u42/{media}/m7`, in at most 512 bytes, in which `{media}`
    /// becomes `images`, `videos` or `audio`. What an earlier run published there is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(
            min_length = 1,
            max_length = 512,
            examples("u42/{media}/m7"),
            pattern = "^([A-Za-z0-9_=@-][A-Za-z0-9._=@-]{0,199}|\\{media\\})(/([A-Za-z0-9_=@-][A-Za-z0-9._=@-]{0,199}|\\{media\\}))*$"
        )
    )]
    pub publish_to: Option<String>,
    /// Who is to be told how the run goes on.
    #[serde(default)]
    pub webhook: Option<RunWebhook>,
    /// Given back as it is, at most 4 KiB as JSON.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub metadata: Map<String, Value>,
}

/// One fault of a request and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFault {
    /// As in `input.url` or `params.hls.ladder.heights`.
    pub path: String,
    /// Stable: `invalid`, `unknown_recipe`, or as an attempt of the run would fail.
    pub code: String,
    pub message: String,
}

/// Why a request does not become a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSubmission {
    /// Correct the request: it is not as documented.
    Malformed(Vec<RequestFault>),
    /// Correct the request: it asks for what is not here, or may not be.
    Impossible(Vec<RequestFault>),
    /// Try again: whether it can be done could not be found out.
    Unavailable(Failed),
}

impl RequestFault {
    fn new(path: impl Into<String>, code: &str, message: impl Into<String>) -> Self {
        Self { path: path.into(), code: code.to_owned(), message: message.into() }
    }

    fn invalid(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(path, "invalid", message)
    }
}

impl RunRequest {
    /// With nothing asked for but that.
    pub fn new(recipe: impl Into<String>, input: Input) -> Self {
        Self {
            recipe: recipe.into(),
            input,
            params: BTreeMap::new(),
            external_id: None,
            priority: usual_priority(),
            run_at: None,
            publish_to: None,
            webhook: None,
            metadata: Map::new(),
        }
    }

    /// What an idempotency key stands for. Two requests that mean the same have the same.
    pub fn canonical(&self) -> Value {
        serde_json::to_value(self).expect("a request is plain data")
    }

    /// Refuses what is not as documented, whatever is installed or configured.
    pub fn require_well_formed(&self) -> Result<(), NoSubmission> {
        let mut faults = Vec::new();
        if self.recipe.is_empty() || self.recipe.chars().count() > NAME_BYTES {
            faults.push(RequestFault::invalid("recipe", "a recipe's name has 1 to 200 characters"));
        }
        let is_id =
            |id: &String| (1..=NAME_BYTES).contains(&id.chars().count()) && !id.chars().any(char::is_control);
        if self.external_id.as_ref().is_some_and(|id| !is_id(id)) {
            let message = "an id has 1 to 200 characters, none of which is a control character";
            faults.push(RequestFault::invalid("external_id", message));
        }
        if let Some((field, message)) = self.input.fault() {
            faults.push(RequestFault::invalid(format!("input.{field}"), message));
        }
        if let Some(message) = self.publish_to.as_deref().and_then(prefix_fault) {
            faults.push(RequestFault::invalid("publish_to", message));
        }
        if self.webhook.as_ref().is_some_and(|webhook| !is_web_address(&webhook.url)) {
            let message = "an http or https address of at most 2048 characters";
            faults.push(RequestFault::invalid("webhook.url", message));
        }
        if faults.is_empty() { Ok(()) } else { Err(NoSubmission::Malformed(faults)) }
    }

    /// What to submit for a tenant, if it can be done with what there is here.
    pub async fn into_submission(
        self,
        tenant: &str,
        recipes: &Recipes,
        shop: &Workshop,
    ) -> Result<Submission, NoSubmission> {
        self.require_well_formed()?;
        let chosen = self.chosen_recipe(recipes).and_then(|recipe| {
            let impossible = |failed: Failed| {
                RequestFault::new("recipe", &failed.code, format!("{}; {}", failed.message, failed.hint))
            };
            shop.scanning.settled(recipe).map_err(|failed| vec![impossible(failed)])
        });
        let (recipe, mut faults) = match chosen {
            Ok(recipe) => (Some(recipe), Vec::new()),
            Err(faults) => (None, faults),
        };
        faults.extend(self.impossible_values());
        faults.extend(self.refused_webhook(shop));
        faults.extend(self.refused_prefix(tenant, shop));
        if let Err(failed) = check_input(shop, tenant, &self.input).await {
            if failed.retryable {
                return Err(NoSubmission::Unavailable(failed));
            }
            let message = format!("{}; {}", failed.message, failed.hint);
            faults.push(RequestFault::new(format!("input.{}", self.input.kind()), &failed.code, message));
        }
        let Some(recipe) = recipe.filter(|_| faults.is_empty()) else {
            return Err(NoSubmission::Impossible(faults));
        };
        let keyed_by = Some(self.canonical());
        Ok(Submission {
            tenant: tenant.to_owned(),
            external_id: self.external_id,
            priority: self.priority,
            run_at: self.run_at,
            publish_to: self.publish_to,
            webhook: self.webhook,
            metadata: Value::Object(self.metadata),
            keyed_by,
            ..Submission::new(recipe, self.input)
        })
    }

    /// The recipe as this run wants it.
    pub fn chosen_recipe(&self, recipes: &Recipes) -> Result<Recipe, Vec<RequestFault>> {
        let recipe = recipes.get(&self.recipe).map_err(|error| {
            let code = match &error {
                NoRecipe::Unknown { .. } => "unknown_recipe",
                NoRecipe::Invalid(_) => "invalid_recipe",
            };
            vec![RequestFault::new("recipe", code, error.told_to_callers())]
        })?;
        let params = self.params.iter().map(|(step, values)| (step.clone(), Value::Object(values.clone())));
        recipe.with_params(&params.collect()).map_err(|errors| {
            let fault = |error: crate::ParamError| {
                RequestFault::invalid(format!("params.{}", error.path), error.message)
            };
            errors.0.into_iter().map(fault).collect()
        })
    }

    /// Whatever the input turns out to be.
    fn refused_prefix(&self, tenant: &str, shop: &Workshop) -> Option<RequestFault> {
        let prefix = self.publish_to.as_ref()?;
        let place = |media| shop.published.place(prefix, tenant, Some(media));
        let refused = MediaType::ALL.into_iter().find_map(|media| place(media).err())?;
        Some(RequestFault::invalid("publish_to", refused.message))
    }

    /// Deliveries look at the address again, with all that its name then means.
    fn refused_webhook(&self, shop: &Workshop) -> Option<RequestFault> {
        let outside = Outside::reaching(shop.allow_private_urls);
        let refused = outside.check(&self.webhook.as_ref()?.url).err()?;
        Some(RequestFault::invalid("webhook.url", refused.to_string()))
    }

    /// What has the right shape and still cannot be kept.
    fn impossible_values(&self) -> Vec<RequestFault> {
        let mut faults = Vec::new();
        if self.external_id.as_ref().is_some_and(|id| id.len() > NAME_BYTES) {
            faults.push(RequestFault::invalid("external_id", "an id has at most 200 bytes"));
        }
        let metadata = Value::Object(self.metadata.clone());
        let bytes = metadata.to_string().len();
        if bytes > METADATA_BYTES {
            let message = format!("it has {bytes} bytes as JSON; at most {METADATA_BYTES} are kept");
            faults.push(RequestFault::new("metadata", "too_large", message));
        }
        if depth(&metadata) > DEEPEST || has_nul(&metadata) {
            faults.push(RequestFault::invalid("metadata", TOO_DEEP_OR_NUL));
        }
        for (step, values) in &self.params {
            let values = Value::Object(values.clone());
            if step.contains('\0') || depth(&values) > DEEPEST || has_nul(&values) {
                faults.push(RequestFault::invalid(format!("params.{step}"), TOO_DEEP_OR_NUL));
            }
        }
        faults
    }
}

/// A whole number, also one that is written as `5.0`: JSON makes no difference, and neither does JSON Schema.
pub fn whole<'de, D: serde::Deserializer<'de>, T: serde::de::DeserializeOwned>(
    deserializer: D,
) -> Result<T, D::Error> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let written = Value::deserialize(deserializer)?;
    let whole = written.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT);
    let value = match whole {
        Some(number) if written.is_f64() => Value::from(number as i64),
        _ => written,
    };
    T::deserialize(value).map_err(serde::de::Error::custom)
}

fn usual_priority() -> u8 {
    50
}

/// 0 to 100.
pub fn priority<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    let priority: u8 = whole(deserializer)?;
    if priority > HIGHEST_PRIORITY {
        return Err(serde::de::Error::custom(format!("{priority} is no priority; 0 to 100")));
    }
    Ok(priority)
}

/// As the schema of addresses says it: what is behind the scheme is looked at elsewhere.
pub(crate) fn is_web_address(address: &str) -> bool {
    let rest = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"));
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(is_plain))
        && address.chars().count() <= ADDRESS_BYTES
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Postgres stores none.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.iter().any(|(name, field)| name.contains('\0') || has_nul(field)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
