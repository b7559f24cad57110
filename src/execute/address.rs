//! Which addresses a target may have.
//!
//! Owns: the list of networks that are nobody's business, and the resolver that leaves them out.
//! Does not know: who calls.
//!
//! Names are judged by the addresses that are connected to, not by a look-up before: between two look-ups a name may
//! change its address ("DNS rebinding").
//!
//! Source: the IANA special-purpose address registries, RFC 6890 and its updates.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The host has no address that may be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the address belongs to this machine or to a private network")]
pub(super) struct Private;

/// Whether `address` is one of the public internet.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match (a, b) {
        // This network, private, loopback, link-local.
        (0 | 10 | 127, _) | (169, 254) | (172, 16..=31) | (192, 168) => true,
        // Carrier-grade NAT, benchmarks.
        (100, 64..=127) | (198, 18 | 19) => true,
        // Protocol assignments, documentation, the old 6to4 relay.
        (192, 0) => c == 0 || c == 2,
        (192, 88) => c == 99,
        (198, 51) => c == 100,
        (203, 0) => c == 113,
        // Multicast, reserved, broadcast.
        (224.., _) => true,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // An IPv4 address in the clothes of an IPv6 one is what it carries.
    let carried = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // Mapped, and NAT64.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => carried(high, low),
        // 6to4.
        [0x2002, high, low, ..] => carried(high, low),
        // Teredo, benchmarks, ORCHID and other assignments; documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] => false,
        [0x3fff, 0..=0xfff, ..] => false,
        // Everything else that is public today lies in 2000::/3: no loopback, unique local, link-local or multicast.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// The system's resolver without the addresses that are not public.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // Port 0 stands for the port of the URL.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(Private.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass_in_whatever_form() {
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.254",
            "127.0.0.1",
            "127.255.0.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.5",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:a9fe:a9fe",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.3.1",
            "198.20.0.1",
            "223.255.255.254",
            "2606:4700:4700::1111",
            "2400:3200::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::1",
            "2001:4860:4860::8888",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[tokio::test]
    async fn a_name_of_this_machine_has_no_address() {
        let Err(error) = PublicOnly.resolve("localhost".parse().unwrap()).await else { panic!("localhost resolves") };
        assert!(error.is::<Private>(), "{error}");
    }
}
