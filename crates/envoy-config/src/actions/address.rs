//! The address of the client, and networks.

use crate::{
    node::{Node, Problems},
    stream::Stream,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address of the client.
pub(crate) struct Client<'s> {
    /// As Envoy writes it.
    pub(crate) text: &'s str,
    pub(crate) address: IpAddr,
}

impl<'s> Client<'s> {
    /// The client of a stream; none if its address is none of IP.
    pub(crate) fn of(stream: &'s dyn Stream) -> Option<Self> {
        let with_port = str::from_utf8(stream.client()?).ok()?;
        let address: SocketAddr = with_port.parse().ok()?;
        let (text, _port) = with_port.rsplit_once(':')?;
        Some(Self { text: text.trim_start_matches('[').trim_end_matches(']'), address: address.ip() })
    }
}

/// The lengths of the prefixes of `masked_remote_address`.
#[derive(Debug, PartialEq)]
pub(crate) struct MaskLengths {
    v4: u8,
    v6: u8,
}

impl MaskLengths {
    pub(super) fn read(node: &Node, problems: &Problems) -> Self {
        Self {
            v4: node.prefix_length("v4_prefix_mask_len", 32, problems),
            v6: node.prefix_length("v6_prefix_mask_len", 128, problems),
        }
    }

    /// `192.0.2.0/24`.
    pub(super) fn network_of(&self, address: IpAddr) -> String {
        let length = if address.is_ipv4() { self.v4 } else { self.v6 };
        format!("{}/{length}", masked(address, length))
    }
}

/// The first address of the network of this length that has the address.
fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

/// `remote_address_match`.
#[derive(Debug, PartialEq)]
pub(crate) struct AddressMatch {
    networks: Vec<(IpAddr, u8)>,
    invert: bool,
}

impl AddressMatch {
    pub(super) fn read(node: &Node, problems: &Problems) -> Self {
        let empty = Node::at(node.path_of("address_matcher"));
        let matcher = node.node("address_matcher").unwrap_or(&empty);
        if !matcher.has("ranges") {
            problems.add(&matcher.path_of("ranges"), "is empty; add a range");
        }
        let networks = matcher.nodes("ranges").filter_map(|node| network(node, problems)).collect();
        Self { networks, invert: matcher.bool("invert_match") }
    }

    pub(super) fn matches(&self, address: IpAddr) -> bool {
        let is_in = |(network, length): &(IpAddr, u8)| {
            network.is_ipv4() == address.is_ipv4() && masked(address, *length) == *network
        };
        self.networks.iter().any(is_in) != self.invert
    }
}

fn network(node: &Node, problems: &Problems) -> Option<(IpAddr, u8)> {
    let Ok(address) = node.text("address_prefix").parse::<IpAddr>() else {
        let path = node.path_of("address_prefix");
        problems.add(&path, format!("{:?} is not an address", node.text("address_prefix")));
        return None;
    };
    let max = if address.is_ipv4() { 32 } else { 128 };
    // An absent length is 0, as in Envoy.
    let length = if node.has("prefix_len") { node.prefix_length("prefix_len", max, problems) } else { 0 };
    Some((masked(address, length), length))
}
