//! Identity of the other end of a connection, for bounds per client.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// The client for which a connection counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Peer {
    /// An IPv4 address, or the /64 network of an IPv6 address: one host usually has all of such a network.
    Ip(IpAddr),
    /// The user id of a process on the other end of a Unix socket.
    User(u32),
    /// A Unix socket whose peer's credentials the kernel does not return.
    UnknownUser,
}

impl Peer {
    pub(super) fn from_ip(address: IpAddr) -> Self {
        const NETWORK: u128 = !0 << 64;
        // An IPv4 client of a dual-stack listener has a mapped IPv6 address.
        Self::Ip(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
            address => address,
        })
    }
}

/// `192.0.2.1`, `2001:db8::/64`, `uid:1000` or `unix`.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Ip(IpAddr::V6(network)) => write!(f, "{network}/64"),
            Self::User(uid) => write!(f, "uid:{uid}"),
            Self::UnknownUser => f.write_str("unix"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_peers_are_counted_by_network_and_mapped_ones_as_ipv4() {
        let peer = |text: &str| Peer::from_ip(text.parse().expect("an address"));
        assert_eq!(peer("2001:db8:1:2:aaaa::1"), peer("2001:db8:1:2:bbbb::2"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
    }
}
