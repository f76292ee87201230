//! Which addresses may be dialled for a tenant.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one that only the operator may allow: this machine, its networks, a cloud's metadata, and
/// everything that is no unicast address of the public internet.
#[must_use]
pub fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, d] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19))
        // Azure answers its machines' questions here.
        || (a, b, c, d) == (168, 63, 129, 16)
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = embedded_v4(address) {
        return is_private_v4(inner);
    }
    let [first, second, ..] = address.segments();
    // Unicast of the public internet is 2000::/3; of that, Teredo and documentation are not.
    !(0x2000..0x4000).contains(&first)
        || (first == 0x2001 && (second < 0x200 || second == 0x0db8))
        || first == 0x3fff
}

/// The IPv4 address behind a mapped, translated (NAT64) or 6to4 one.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let joined = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) => Some(joined(g, h)),
        (0x2002, ..) => Some(joined(b, c)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_known() {
        let rows = [
            ("127.0.0.1", true),
            ("127.8.0.1", true),
            ("10.0.0.1", true),
            ("172.16.0.1", true),
            ("172.32.0.1", false),
            ("192.168.1.1", true),
            ("169.254.169.254", true),
            ("100.64.0.1", true),
            ("100.100.100.200", true),
            ("100.128.0.1", false),
            ("168.63.129.16", true),
            ("168.63.129.17", false),
            ("192.0.0.192", true),
            ("198.18.0.1", true),
            ("0.0.0.0", true),
            ("255.255.255.255", true),
            ("224.0.0.1", true),
            ("240.0.0.1", true),
            ("140.82.121.3", false),
            ("8.8.8.8", false),
            ("::1", true),
            ("::", true),
            ("fe80::1", true),
            ("fc00::1", true),
            ("fd00:ec2::254", true),
            ("ff02::1", true),
            ("::ffff:127.0.0.1", true),
            ("::ffff:8.8.8.8", false),
            ("::127.0.0.1", true),
            ("64:ff9b::a00:1", true),
            ("64:ff9b::808:808", false),
            ("2002:7f00:1::", true),
            ("2002:808:808::", false),
            ("2001::1", true),
            ("2001:db8::1", true),
            ("2606:50c0:8000::153", false),
        ];
        for (text, expected) in rows {
            assert_eq!(is_private(text.parse().expect("an address")), expected, "{text}");
        }
    }
}
