//! HTTP to addresses that others name: inputs that are pulled, webhooks that are told.
//!
//! Whoever can name an address could make this process ask its own neighbours. So a connection is made to public
//! addresses alone, and whether one is public is decided before it is made:
//!
//! ```text
//!   URL ── http or https? ── an address in it? ── looked at as it is (the parser knows all its spellings)
//!                                 │ a name
//!                                 └── looked up once: all its addresses are looked at, and the connection is made to
//!                                     those very addresses, so a name that means something else a moment later
//!                                     changes nothing
//! ```
//! Redirects are not followed, since they would lead past all this, and no proxy is used, since it would look names up
//! itself. Ports are not restricted: public servers listen on any.

mod address;
mod resolver;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, redirect};
use url::{Host, Url};

use self::address::is_public;
use self::resolver::{CheckedResolver, Lookup, SystemLookup};

/// Longer addresses are no addresses that anybody means.
const MAX_URL_BYTES: usize = 2_048;

/// Where requests on behalf of others may go.
#[derive(Clone, Debug)]
pub struct Outside {
    is_allowed: fn(IpAddr) -> bool,
    lookup: Arc<dyn Lookup>,
}

/// How long a request waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    pub connect: Duration,
    /// Between two parts of an answer.
    pub idle: Duration,
}

/// An address that no request is sent to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it is no address: {reason}")]
    Malformed { reason: String },
    #[error("it is neither http nor https")]
    Scheme,
    #[error(transparent)]
    NotPublic(#[from] NotPublic),
}

/// A host that is not, or not only, at public addresses. Which they are is for the log alone: to whoever named the host it
/// would tell how the network inside is laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} is not at a public address")]
pub struct NotPublic {
    pub host: String,
    pub address: IpAddr,
}

impl NotPublic {
    /// Why a request failed, if it was for this.
    pub fn behind(error: &reqwest::Error) -> Option<&Self> {
        causes(error).find_map(|cause| cause.downcast_ref())
    }
}

/// Why a request failed: the fact itself, without the address and whatever that may carry.
pub fn root_cause(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |cause| cause.source())
}

impl Outside {
    /// Public addresses; with `allow_private` all others too, for a deployment that trusts whoever names them.
    pub fn reaching(allow_private: bool) -> Self {
        let is_allowed = if allow_private { |_| true } else { is_public };
        Self { is_allowed, lookup: Arc::new(SystemLookup) }
    }

    /// The address as a URL, unless it can be seen to be one that no request may go to. A name is not looked up yet.
    pub fn check(&self, address: &str) -> Result<Url, Refused> {
        if address.len() > MAX_URL_BYTES {
            return Err(Refused::Malformed { reason: format!("it has more than {MAX_URL_BYTES} bytes") });
        }
        let url = Url::parse(address).map_err(|error| Refused::Malformed { reason: error.to_string() })?;
        self.check_parsed(&url)?;
        Ok(url)
    }

    fn check_parsed(&self, url: &Url) -> Result<(), Refused> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refused::Scheme);
        }
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) => return Ok(()),
            None => return Err(Refused::Malformed { reason: "it names no host".into() }),
        };
        match (self.is_allowed)(address) {
            true => Ok(()),
            false => Err(NotPublic { host: address.to_string(), address }.into()),
        }
    }

    /// Connections are not kept: each request looks its name up anew.
    pub fn client(&self, patience: Patience) -> Result<OutsideClient, reqwest::Error> {
        // Whoever was first has installed the same one, or another that does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let resolver = CheckedResolver { is_allowed: self.is_allowed, lookup: Arc::clone(&self.lookup) };
        let client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .referer(false)
            .pool_max_idle_per_host(0)
            .connect_timeout(patience.connect)
            .read_timeout(patience.idle)
            .user_agent(concat!("telecine/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(resolver)
            .build()?;
        Ok(OutsideClient { outside: self.clone(), client })
    }
}

/// Sends requests to where they may go. The client inside does not look at addresses that are written into a URL, so
/// there is no way to it but through the check.
#[derive(Clone, Debug)]
pub struct OutsideClient {
    outside: Outside,
    client: Client,
}

impl OutsideClient {
    pub fn request(&self, method: Method, url: Url) -> Result<RequestBuilder, Refused> {
        self.outside.check_parsed(&url)?;
        Ok(self.client.request(method, url))
    }
}

#[cfg(test)]
mod tests;
