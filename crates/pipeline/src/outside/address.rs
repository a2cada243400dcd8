//! Which addresses are public: what a stranger may make this process connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    fn what_iana_lists_as_special_is_not_public() {
        let special = [
            // This network, loopback, private, shared by a provider's customers, link-local.
            "0.0.0.0",
            "127.0.0.1",
            "127.255.255.254",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.169.254",
            // Protocols, documentation, benchmarks, multicast, reserved, broadcast.
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            // The same of IPv6, and every way to carry an address of IPv4 in one of IPv6.
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12:3456::1",
            "ff02::1",
            "100::1",
            "2001:db8::1",
            "3fff::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:0:7f00:1::",
        ];

        for address in special {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn what_lies_beside_the_special_ones_is_public() {
        let public = [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.32.0.1",
            "169.253.0.1",
            "2606:4700::1",
            "2a00::1",
        ];

        for address in public {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
