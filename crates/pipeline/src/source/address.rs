//! Which addresses a pull may connect to: public ones alone.
//!
//! A name is looked up here, every address it has is looked at, and the connection is made to those very addresses, so
//! a name that means something else a moment later changes nothing. An address written into the URL is never looked up;
//! the URL's parser has brought all its spellings (decimal, hexadecimal, octal, short) to one, and it is looked at apart.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// A host that is not, or not only, at public addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} is at {address}, which is no public address")]
pub(super) struct NotPublic {
    pub(super) host: String,
    pub(super) address: IpAddr,
}

/// Refuses an address in the URL itself.
pub(super) fn check_literal(url: &Url) -> Result<(), NotPublic> {
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        Some(Host::Domain(_)) | None => return Ok(()),
    };
    if is_public(address) {
        return Ok(());
    }
    Err(NotPublic { host: url.host_str().unwrap_or_default().to_owned(), address })
}

/// Looks names up and refuses those with any address that is not public.
#[derive(Clone, Copy, Debug)]
pub(super) struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let checked = require_public(name.as_str(), found)?;
            Ok(Box::new(checked.into_iter()) as Addrs)
        })
    }
}

fn require_public(host: &str, found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, NotPublic> {
    let refuse = |at: SocketAddr| match is_public(at.ip()) {
        true => Ok(at),
        false => Err(NotPublic { host: host.to_owned(), address: at.ip() }),
    };
    found.map(refuse).collect()
}

/// Whether anybody on the internet could be meant: what IANA lists as special is not.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        // This network, private, loopback.
        (0 | 10 | 127, _, _) => true,
        // Shared by a provider's customers (CGNAT).
        (100, 64..=127, _) => true,
        (169, 254, _) => true,
        (172, 16..=31, _) => true,
        (192, 168, _) => true,
        // Protocol assignments, documentation, relays of 6to4.
        (192, 0, 0 | 2) | (192, 88, 99) => true,
        // Benchmarks, documentation.
        (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) => true,
        // Multicast, reserved, broadcast.
        (224..=255, _, _) => true,
        _ => false,
    };
    !is_special
}

/// Global unicast is 2000::/3. Outside of it lie loopback, link-local, unique local and multicast addresses, and those that
/// carry one of IPv4 (mapped, compatible, NAT64).
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let is_global = (0x2000..0x4000).contains(&a);
    let is_special = match (a, b) {
        // Protocol assignments, among them Teredo, which carries IPv4 addresses; documentation.
        (0x2001, 0..=0x01ff | 0x0db8) => true,
        // 6to4 carries IPv4 addresses.
        (0x2002, _) => true,
        (0x3fff, 0..=0x0fff) => true,
        _ => false,
    };
    is_global && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_of_an_inner_address_gets_through() {
        let inner = [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://%31%32%37.0.0.1/",
            "http://①②⑦.0.0.1/",
            "http://0/",
            "http://10.0.0.1/",
            "http://100.64.0.1/",
            "http://169.254.169.254/latest/meta-data",
            "http://172.31.255.255/",
            "http://192.168.1.1/",
            "http://198.18.0.1/",
            "http://224.0.0.1/",
            "http://255.255.255.255/",
            "http://[::]/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:8.8.8.8]/",
            "http://[::127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[64:ff9b:1::1]/",
            "http://[2002:7f00:1::]/",
            "http://[2001:0:7f00:1::]/",
            "http://[fc00::1]/",
            "http://[fd12:3456::1]/",
            "http://[fe80::1]/",
            "http://[ff02::1]/",
            "http://[100::1]/",
        ];

        for url in inner {
            let parsed = Url::parse(url).unwrap();
            assert!(check_literal(&parsed).is_err(), "{url} is {:?}", parsed.host());
        }
    }

    #[test]
    fn public_addresses_are_let_through() {
        for url in ["http://1.1.1.1/", "http://172.32.0.1/", "http://[2606:4700::1]/", "http://[2a00::1]/"] {
            assert_eq!(check_literal(&Url::parse(url).unwrap()), Ok(()), "{url}");
        }
    }

    #[test]
    fn a_name_with_one_inner_address_is_refused_as_a_whole() {
        let found = ["1.1.1.1:80", "10.0.0.7:80"].map(|at| at.parse().unwrap());

        let refused = require_public("twofold.example", found.into_iter()).unwrap_err();

        assert_eq!(refused.address, "10.0.0.7".parse::<IpAddr>().unwrap());
        let public = require_public("plain.example", found.into_iter().take(1)).unwrap();
        assert_eq!(public, found[..1]);
    }
}
