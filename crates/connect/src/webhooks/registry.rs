//! Endpoints and secrets as they are stored: entries of the queue, each tenant's apart.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use telecine_queue::{Entry, Limit, NewEntry, Queue, QueueError, Timestamp};
use ulid::Ulid;

use super::endpoint::{
    Disabled, Endpoint, EndpointChange, EndpointId, ManagedBy, NewEndpoint, check_description, check_events,
    check_url, no_endpoint, require_own,
};
use super::secret::Secrets;
use super::{WebhookError, Webhooks, tenant_key};

/// The kinds of entries.
const ENDPOINT: &str = "webhook";
const TENANT_SECRET: &str = "webhook_secret";

/// Every event of a tenant is told to every endpoint of it.
pub const MAX_ENDPOINTS: usize = 100;
/// Endpoints that one look at the database brings.
const PAGE: u32 = 32;

/// What signs the webhooks that a tenant's runs name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TenantSecret {
    tenant: String,
    secrets: Secrets,
}

impl Webhooks {
    /// The endpoints of a tenant, oldest first.
    pub async fn endpoints(&self, tenant: &str) -> Result<Vec<Endpoint>, QueueError> {
        let prefix = format!("{}/", tenant_key(tenant));
        let (mut found, mut after) = (Vec::new(), prefix.clone());
        loop {
            let page = self.queue().entries(ENDPOINT, Some(&after), PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            for entry in page {
                if !entry.key.starts_with(&prefix) {
                    return Ok(found);
                }
                after.clone_from(&entry.key);
                found.push(read(entry)?);
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    pub async fn endpoint(&self, tenant: &str, id: &EndpointId) -> Result<Option<Endpoint>, QueueError> {
        self.queue().entry(ENDPOINT, &endpoint_key(tenant, id)).await?.map(read).transpose()
    }

    /// Makes an endpoint with a secret of its own.
    pub async fn add_endpoint(&self, tenant: &str, new: NewEndpoint) -> Result<Endpoint, WebhookError> {
        check_url(&self.outside, &new.url)?;
        check_events(&new.events)?;
        check_description(&new.description)?;
        if self.endpoints(tenant).await?.len() >= MAX_ENDPOINTS {
            let reason = format!("there are {MAX_ENDPOINTS} endpoints already; delete one that is not used");
            return Err(WebhookError::conflict(reason));
        }
        let endpoint = Endpoint {
            id: EndpointId::of(Ulid::generate()),
            tenant: tenant.to_owned(),
            url: new.url,
            events: new.events,
            description: new.description,
            disabled: None,
            managed_by: ManagedBy::Api,
            secrets: Secrets::generate()?,
            created_at: Timestamp::now(),
        };
        self.store_endpoint(&endpoint, Some(0)).await?;
        Ok(endpoint)
    }

    /// The limit first: no delivery is made before it is there.
    pub(super) async fn store_endpoint(
        &self,
        endpoint: &Endpoint,
        expected: Option<u64>,
    ) -> Result<(), QueueError> {
        if expected == Some(0) {
            let limit = Limit::new(endpoint.id.limit_key()).max_running(self.options.in_flight);
            self.queue().limit(limit).await?;
        }
        put(self.queue(), ENDPOINT, endpoint_key(&endpoint.tenant, &endpoint.id), endpoint, expected).await
    }

    pub async fn change_endpoint(
        &self,
        tenant: &str,
        id: &EndpointId,
        change: &EndpointChange,
    ) -> Result<Endpoint, WebhookError> {
        if let Some(url) = &change.url {
            check_url(&self.outside, url)?;
        }
        check_events(change.events.as_deref().unwrap_or_default())?;
        check_description(change.description.as_deref().unwrap_or_default())?;
        self.edit_endpoint(tenant, id, |endpoint| {
            if change.is_of_configuration() {
                require_own(endpoint)?;
            }
            let (url, events, description) =
                (change.url.clone(), change.events.clone(), change.description.clone());
            endpoint.url = url.unwrap_or_else(|| endpoint.url.clone());
            endpoint.events = events.unwrap_or_else(|| endpoint.events.clone());
            endpoint.description = description.unwrap_or_else(|| endpoint.description.clone());
            endpoint.disabled = match change.enabled {
                Some(true) => None,
                Some(false) => {
                    endpoint.disabled.take().or_else(|| Some(Disabled::now("somebody disabled it")))
                }
                None => endpoint.disabled.take(),
            };
            Ok(())
        })
        .await
    }

    /// Gives an endpoint another secret; the one it had is still signed with for a day.
    pub async fn rotate_endpoint(&self, tenant: &str, id: &EndpointId) -> Result<Endpoint, WebhookError> {
        self.edit_endpoint(tenant, id, |endpoint| {
            require_own(endpoint)?;
            Ok(endpoint.secrets.rotate(Timestamp::now())?)
        })
        .await
    }

    /// Nothing more is sent to it, for a reason that its owner finds.
    pub(super) async fn disable_endpoint(
        &self,
        tenant: &str,
        id: &EndpointId,
        reason: &str,
    ) -> Result<(), WebhookError> {
        let edited = self.edit_endpoint(tenant, id, |endpoint| {
            endpoint.disabled.get_or_insert_with(|| Disabled::now(reason));
            Ok(())
        });
        match edited.await {
            Ok(_) | Err(WebhookError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub async fn delete_endpoint(&self, tenant: &str, id: &EndpointId) -> Result<(), WebhookError> {
        let endpoint = self.endpoint(tenant, id).await?.ok_or_else(no_endpoint)?;
        require_own(&endpoint)?;
        self.forget_endpoint(&endpoint).await
    }

    pub(super) async fn forget_endpoint(&self, endpoint: &Endpoint) -> Result<(), WebhookError> {
        let key = endpoint_key(&endpoint.tenant, &endpoint.id);
        if !self.queue().delete_entry(ENDPOINT, &key).await? {
            return Err(no_endpoint());
        }
        // Without it, what is left for the endpoint comes to its turn at once, and is skipped.
        self.queue().limit(Limit::new(endpoint.id.limit_key())).await?;
        Ok(())
    }

    /// Every endpoint that the configuration has made, of all tenants.
    pub(super) async fn configured_endpoints(&self) -> Result<Vec<Endpoint>, QueueError> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = self.queue().entries(ENDPOINT, after.as_deref(), Entry::MAX_LIMIT).await?;
            let is_last = page.len() < Entry::MAX_LIMIT as usize;
            after = page.last().map(|entry| entry.key.clone());
            for entry in page {
                found.push(read::<Endpoint>(entry)?);
            }
            if is_last {
                found.retain(|endpoint| endpoint.managed_by == ManagedBy::Configuration);
                return Ok(found);
            }
        }
    }

    /// Reads, changes and writes an endpoint, again if somebody else wrote it in between.
    async fn edit_endpoint(
        &self,
        tenant: &str,
        id: &EndpointId,
        mut edit: impl FnMut(&mut Endpoint) -> Result<(), WebhookError>,
    ) -> Result<Endpoint, WebhookError> {
        loop {
            let entry = self.queue().entry(ENDPOINT, &endpoint_key(tenant, id)).await?;
            let entry = entry.ok_or_else(no_endpoint)?;
            let version = entry.version;
            let mut endpoint: Endpoint = read(entry)?;
            edit(&mut endpoint)?;
            match self.store_endpoint(&endpoint, Some(version)).await {
                Ok(()) => return Ok(endpoint),
                Err(QueueError::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What signs the webhooks that runs of a tenant name; made at the first need.
    pub(super) async fn tenant_secrets(&self, tenant: &str) -> Result<Secrets, WebhookError> {
        self.edit_tenant_secret(tenant, |known| match known {
            Some(secrets) => Ok((secrets, false)),
            None => Ok((Secrets::generate()?, true)),
        })
        .await
    }

    /// Makes a new secret for a tenant and shows it; the one before is still signed with for a day.
    pub async fn rotate_tenant_secret(&self, tenant: &str) -> Result<Secrets, WebhookError> {
        self.edit_tenant_secret(tenant, |known| match known {
            Some(mut secrets) => {
                secrets.rotate(Timestamp::now())?;
                Ok((secrets, true))
            }
            None => Ok((Secrets::generate()?, true)),
        })
        .await
    }

    async fn edit_tenant_secret(
        &self,
        tenant: &str,
        edit: impl Fn(Option<Secrets>) -> Result<(Secrets, bool), WebhookError>,
    ) -> Result<Secrets, WebhookError> {
        let key = tenant_key(tenant);
        loop {
            let entry = self.queue().entry(TENANT_SECRET, &key).await?;
            let version = entry.as_ref().map_or(0, |entry| entry.version);
            let known = entry.map(read::<TenantSecret>).transpose()?;
            let (secrets, is_new) = edit(known.map(|known| known.secrets))?;
            if !is_new {
                return Ok(secrets);
            }
            let kept = TenantSecret { tenant: tenant.to_owned(), secrets };
            match put(self.queue(), TENANT_SECRET, key.clone(), &kept, Some(version)).await {
                Ok(()) => return Ok(kept.secrets),
                Err(QueueError::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn endpoint_key(tenant: &str, id: &EndpointId) -> String {
    format!("{}/{id}", tenant_key(tenant))
}

fn read<T: DeserializeOwned>(entry: Entry) -> Result<T, QueueError> {
    let (kind, key) = (entry.kind, entry.key);
    serde_json::from_value(entry.body).map_err(|error| QueueError::Unexpected {
        reason: format!("the entry {kind} {key} cannot be read: {error}"),
    })
}

async fn put(
    queue: &dyn Queue,
    kind: &str,
    key: String,
    body: &impl Serialize,
    expected: Option<u64>,
) -> Result<(), QueueError> {
    let body: Value =
        serde_json::to_value(body).map_err(|error| QueueError::Unexpected { reason: error.to_string() })?;
    queue.put_entry(NewEntry::new(kind, key, body), expected).await?;
    Ok(())
}
