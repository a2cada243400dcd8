//! Names, looked up once and checked.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::NotPublic;

/// Who knows the addresses of a name.
#[async_trait]
pub(super) trait Lookup: std::fmt::Debug + Send + Sync {
    async fn addresses(&self, host: &str) -> io::Result<Vec<SocketAddr>>;
}

/// The system: its hosts file, its servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn addresses(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.collect())
    }
}

/// Refuses a name with any address that is not allowed. What it gives is what is connected to.
#[derive(Clone, Debug)]
pub(super) struct CheckedResolver {
    pub(super) is_allowed: fn(IpAddr) -> bool,
    pub(super) lookup: Arc<dyn Lookup>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.clone();
        Box::pin(async move {
            let found = resolver.lookup.addresses(name.as_str()).await?;
            resolver.require_allowed(name.as_str(), &found)?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

impl CheckedResolver {
    fn require_allowed(&self, host: &str, found: &[SocketAddr]) -> Result<(), NotPublic> {
        match found.iter().map(SocketAddr::ip).find(|address| !(self.is_allowed)(*address)) {
            Some(address) => {
                tracing::info!(host, %address, "no request is sent there: the address is not public");
                Err(NotPublic { host: host.to_owned(), address })
            }
            None => Ok(()),
        }
    }
}
