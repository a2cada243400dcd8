//! Where a request really comes from: this machine, a page of ours, or a page of somebody else.
//!
//! A browser on this machine calls from a loopback address whatever page it shows. What tells a page of ours from others is
//! what the browser adds and no page can change: `Origin`, `Sec-Fetch-Site`, and the `Host` that the page was loaded by.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Uri, Version, header};

use crate::listen::Peer;

const FORWARDED_BY: [HeaderName; 7] = [
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("cf-connecting-ip"),
];
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a program or a page of ours on this machine sent it, and nobody passed it on.
pub(crate) fn is_of_this_machine(
    peer: Option<Peer>,
    version: Version,
    uri: &Uri,
    headers: &HeaderMap,
) -> bool {
    let is_near = peer.is_some_and(|Peer(address)| address.ip().to_canonical().is_loopback());
    // Old proxies that say nothing of themselves speak HTTP/1.0, programs of today do not. A proxy that says nothing in
    // HTTP/1.1 and passes on a loopback `Host` is not seen here: see `trust.rs`.
    let is_direct =
        version == Version::HTTP_11 && !FORWARDED_BY.iter().any(|name| headers.contains_key(name));
    // A name of somebody else's that leads here was made to lead here: that page would be of the same origin.
    let names_this_machine = host(uri, headers).is_some_and(is_loopback_host);
    is_near && is_direct && names_this_machine && !is_of_another_site(None, uri, headers)
}

/// Whether a browser says that a page of another origin sent it. What is no browser says nothing. `public` is the address
/// that browsers know this server by, where a proxy gives it another.
pub(crate) fn is_of_another_site(public: Option<&str>, uri: &Uri, headers: &HeaderMap) -> bool {
    let site = headers.get(SEC_FETCH_SITE).map(|site| site.as_bytes());
    // `none`: the user typed the address.
    let by_site = site.is_some_and(|site| site != b"same-origin" && site != b"none");
    let by_origin = headers.contains_key(header::ORIGIN) && !has_own_origin(public, uri, headers);
    by_site || by_origin
}

/// Whether a browser says that a page of this origin sent it: silence is none.
pub(crate) fn is_of_own_page(public: Option<&str>, uri: &Uri, headers: &HeaderMap) -> bool {
    let by_site = headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "same-origin");
    (by_site || has_own_origin(public, uri, headers)) && !is_of_another_site(public, uri, headers)
}

fn has_own_origin(public: Option<&str>, uri: &Uri, headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else { return false };
    let Some(origin) = origin.to_str().ok() else { return false };
    if public.is_some_and(|public| is_origin_of(origin, public)) {
        return true;
    }
    let Some(authority) = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) else {
        return false;
    };
    host(uri, headers).is_some_and(|host| host.eq_ignore_ascii_case(authority))
}

/// A page's origin is its address up to the path.
fn is_origin_of(origin: &str, address: &str) -> bool {
    let path =
        address.find("://").and_then(|scheme| address[scheme + 3..].find('/').map(|path| scheme + 3 + path));
    address[..path.unwrap_or(address.len())].eq_ignore_ascii_case(origin)
}

/// With its port. `None`: none, or more than one answer.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, None) = (hosts.next()?.to_str().ok()?, hosts.next()) else { return None };
    let agrees = uri.authority().is_none_or(|authority| authority.as_str().eq_ignore_ascii_case(host));
    agrees.then_some(host)
}

fn is_loopback_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    literal.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn near() -> Option<Peer> {
        Some(Peer("127.0.0.1:40000".parse().unwrap()))
    }

    fn with(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn is_trusted(peer: Option<Peer>, headers: &[(&'static str, &'static str)]) -> bool {
        is_of_this_machine(peer, Version::HTTP_11, &Uri::from_static("/v1/runs"), &with(headers))
    }

    #[test]
    fn a_program_and_a_page_of_ours_on_this_machine_are_of_this_machine() {
        for host in ["127.0.0.1:8700", "localhost:8700", "LocalHost", "[::1]:8700", "[::1]", "127.9.9.9"] {
            assert!(is_trusted(near(), &[("host", host)]), "{host}");
        }
        assert!(is_trusted(Some(Peer("[::1]:1".parse().unwrap())), &[("host", "localhost:8700")]));
        assert!(is_trusted(Some(Peer("[::ffff:127.0.0.1]:1".parse().unwrap())), &[("host", "localhost")]));
        assert!(is_trusted(
            near(),
            &[
                ("host", "localhost:8700"),
                ("origin", "http://localhost:8700"),
                ("sec-fetch-site", "same-origin")
            ]
        ));
        assert!(is_trusted(near(), &[("host", "localhost:8700"), ("sec-fetch-site", "none")]));
    }

    #[test]
    fn whoever_is_elsewhere_or_came_through_somebody_is_not() {
        let host = ("host", "127.0.0.1:8700");
        assert!(!is_trusted(Some(Peer("192.0.2.7:40000".parse().unwrap())), &[host]));
        assert!(!is_trusted(None, &[host]));
        for by in ["forwarded", "x-forwarded-for", "x-real-ip", "via", "x-forwarded-host"] {
            assert!(!is_trusted(near(), &[host, (by, "192.0.2.7")]), "{by}");
        }
        let by_an_old_proxy =
            is_of_this_machine(near(), Version::HTTP_10, &Uri::from_static("/"), &with(&[host]));
        assert!(!by_an_old_proxy);
    }

    #[test]
    fn a_name_that_was_made_to_lead_here_is_not_of_this_machine() {
        for host in [
            "evil.example",
            "evil.example:8700",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8700",
            "evil.localhost.example",
            "192.0.2.7:8700",
            "0.0.0.0:8700",
            "2130706433",
            "",
        ] {
            assert!(!is_trusted(near(), &[("host", host)]), "{host}");
        }
        assert!(!is_trusted(near(), &[]));
        assert!(!is_trusted(near(), &[("host", "localhost"), ("host", "evil.example")]));
        let absolute = Uri::from_static("http://evil.example/v1/runs");
        assert!(!is_of_this_machine(near(), Version::HTTP_11, &absolute, &with(&[("host", "localhost")])));
    }

    #[test]
    fn pages_of_other_origins_in_a_browser_here_are_not() {
        let host = ("host", "localhost:8700");
        for origin in ["https://evil.example", "http://localhost:3000", "null", "http://127.0.0.1:8700", ""] {
            assert!(!is_trusted(near(), &[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "something-new"] {
            assert!(!is_trusted(near(), &[host, ("sec-fetch-site", site)]), "{site}");
        }
    }

    #[test]
    fn a_page_of_ours_is_told_by_the_browser_alone() {
        let uri = Uri::from_static("/v1/runs");
        let host = ("host", "media.example");
        let is_own = |headers: &[_]| is_of_own_page(None, &uri, &with(headers));
        assert!(is_own(&[host, ("origin", "https://media.example")]));
        assert!(is_own(&[host, ("sec-fetch-site", "same-origin")]));
        assert!(!is_own(&[host]), "silence is no proof");
        assert!(!is_own(&[host, ("origin", "https://evil.example")]));
        assert!(!is_own(&[host, ("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")]));
        assert!(!is_own(&[host, ("sec-fetch-site", "none")]));

        let behind_a_proxy = with(&[("host", "10.0.0.5:8700"), ("origin", "https://media.example")]);
        assert!(!is_of_own_page(None, &uri, &behind_a_proxy));
        assert!(is_of_own_page(Some("https://media.example"), &uri, &behind_a_proxy));
        assert!(is_of_own_page(Some("https://media.example/telecine"), &uri, &behind_a_proxy));
        assert!(!is_of_own_page(Some("https://media.example.org"), &uri, &behind_a_proxy));
    }
}
