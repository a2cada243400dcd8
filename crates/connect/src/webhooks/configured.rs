//! Endpoints that stand in the configuration.

use serde::Deserialize;
use sha2::{Digest, Sha256};
use telecine_queue::{QueueError, Timestamp};
use ulid::Ulid;

use super::endpoint::{Endpoint, EndpointId, EventPattern, ManagedBy, check_events, check_url};
use super::secret::{Retired, Secret, Secrets};
use super::{WebhookError, Webhooks};

/// One of `[[webhooks]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfiguredEndpoint {
    pub url: String,
    /// What deliveries are signed with.
    pub secret: Secret,
    /// The one before, while receivers change over.
    #[serde(default)]
    pub previous_secret: Option<Secret>,
    #[serde(default)]
    pub events: Vec<EventPattern>,
    #[serde(default)]
    pub tenant: String,
    #[serde(default)]
    pub description: String,
}

impl ConfiguredEndpoint {
    /// The same tenant and address have the same id, whoever reads the configuration.
    fn id(&self) -> EndpointId {
        let mut hash = Sha256::new();
        hash.update((self.tenant.len() as u64).to_be_bytes());
        hash.update(self.tenant.as_bytes());
        hash.update(self.url.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        EndpointId::of(Ulid::from_bytes(bytes))
    }

    fn endpoint(&self, known: Option<&Endpoint>) -> Endpoint {
        let previous = self.previous_secret.clone();
        Endpoint {
            id: self.id(),
            tenant: self.tenant.clone(),
            url: self.url.clone(),
            events: self.events.clone(),
            description: self.description.clone(),
            disabled: known.and_then(|known| known.disabled.clone()),
            managed_by: ManagedBy::Configuration,
            secrets: Secrets {
                current: self.secret.clone(),
                previous: previous.map(|secret| Retired { secret, valid_until: None }),
                older: Vec::new(),
            },
            created_at: known.map_or_else(Timestamp::now, |known| known.created_at),
        }
    }
}

impl Webhooks {
    /// Makes the endpoints of the configuration those that are stored. For a process whose configuration names them,
    /// be it none: one that does not mention webhooks at all leaves what others have stored.
    pub async fn adopt(&self, configured: &[ConfiguredEndpoint]) -> Result<(), WebhookError> {
        for endpoint in configured {
            check_url(&self.outside, &endpoint.url)?;
            check_events(&endpoint.events)?;
        }
        let stored = self.configured_endpoints().await?;
        for wanted in configured {
            let known = stored.iter().find(|known| known.id == wanted.id());
            let endpoint = wanted.endpoint(known);
            if known == Some(&endpoint) {
                continue;
            }
            let expected = if known.is_none() { Some(0) } else { None };
            match self.store_endpoint(&endpoint, expected).await {
                // Another process has just done the same.
                Ok(()) | Err(QueueError::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for gone in stored.iter().filter(|known| configured.iter().all(|wanted| wanted.id() != known.id)) {
            match self.forget_endpoint(gone).await {
                Ok(()) | Err(WebhookError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
