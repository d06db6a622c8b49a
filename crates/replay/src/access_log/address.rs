//! The address of a client in the field of an access log, in the form that the actions of Envoy send.
//!
//! Envoy logs `192.0.2.44:37652` or `[2001:db8::1]:443`, and sends `192.0.2.44` or `2001:db8::1`. If a field has a list, such as
//! `x-forwarded-for`, the nearest proxy has appended the last address; addresses before it are claims of the client.

use ipnet::IpNet;
use std::{borrow::Cow, net::IpAddr};

/// The address in the text, without its port. Takes the last address of a list. None if it is not an IP address.
pub(super) fn address(text: &str) -> Option<Cow<'_, str>> {
    let last = text.rsplit(',').next().unwrap_or(text).trim();
    let bare = match last.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']').filter(|(_, port)| is_port(port))?.0,
        // An IPv6 address has at least two colons. Without brackets it has no port.
        None => match last.split_once(':') {
            Some((host, port)) if !port.contains(':') => is_number(port).then_some(host)?,
            _ => last,
        },
    };
    match bare.parse().ok()? {
        IpAddr::V4(_) => Some(Cow::Borrowed(bare)),
        // Envoy sends the shortest form.
        IpAddr::V6(address) => Some(Cow::Owned(address.to_string())),
    }
}

/// The network of the address in the text, as the action `masked_remote_address` sends it.
pub(super) fn network(text: &str, v4_bits: u8, v6_bits: u8) -> Option<String> {
    let address: IpAddr = address(text)?.parse().ok()?;
    let bits = if address.is_ipv4() { v4_bits } else { v6_bits };
    Some(IpNet::new(address, bits).ok()?.trunc().to_string())
}

/// Whether the text after a closing bracket is empty, or a colon and a port.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_loses_its_port_and_of_a_list_the_last_counts() {
        for (text, expected) in [
            ("192.0.2.44:37652", "192.0.2.44"),
            ("192.0.2.44", "192.0.2.44"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:DB8:0::1", "2001:db8::1"),
            ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
            ("203.0.113.9, 198.51.100.2,192.0.2.1:80", "192.0.2.1"),
            ("unknown, [2001:db8::2]:1", "2001:db8::2"),
        ] {
            assert_eq!(address(text).as_deref(), Some(expected), "{text}");
        }
        let others = ["", "-", "/tmp/envoy.sock", "192.0.2.1:http", "192.0.2.1:", "[2001:db8::1]443", "[::1"];
        for text in others.into_iter().chain(["192.0.2.1, unknown", "192.0.2", "example.com:80"]) {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn a_network_has_no_bits_beyond_its_prefix() {
        for (text, v4_bits, v6_bits, expected) in [
            ("192.0.2.44:37652", 24, 64, "192.0.2.0/24"),
            ("192.0.2.44", 32, 128, "192.0.2.44/32"),
            ("192.0.2.44", 0, 0, "0.0.0.0/0"),
            ("[2001:db8:1:2:3::]:1", 24, 48, "2001:db8:1::/48"),
            ("2001:db8::1", 24, 0, "::/0"),
        ] {
            assert_eq!(network(text, v4_bits, v6_bits).as_deref(), Some(expected), "{text}");
        }
    }
}
