//! The address of the client, and networks.

use crate::{
    node::{Node, Problems},
    stream::Stream,
};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

/// The address of the client.
pub(crate) struct Client<'s> {
    /// The text of the address as Envoy writes it.
    pub(crate) text: &'s str,
    pub(crate) address: IpAddr,
}

impl<'s> Client<'s> {
    /// The client of a stream; none if its address is not an IP address.
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

    /// `192.0.2.0/24`; none only of lengths that reading has refused.
    pub(super) fn network_of(&self, address: IpAddr) -> Option<IpNet> {
        let length = if address.is_ipv4() { self.v4 } else { self.v6 };
        IpNet::new(address, length).ok().map(|network| network.trunc())
    }
}

/// `remote_address_match`.
#[derive(Debug, PartialEq)]
pub(crate) struct AddressMatch {
    networks: Vec<IpNet>,
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
        self.networks.iter().any(|network| network.contains(&address)) != self.invert
    }
}

fn network(node: &Node, problems: &Problems) -> Option<IpNet> {
    let Ok(address) = node.text("address_prefix").parse::<IpAddr>() else {
        let path = node.path_of("address_prefix");
        problems.add(&path, format!("{:?} is not an address", node.text("address_prefix")));
        return None;
    };
    let max = if address.is_ipv4() { 32 } else { 128 };
    // An absent length is 0, as in Envoy.
    let length = if node.has("prefix_len") { node.prefix_length("prefix_len", max, problems) } else { 0 };
    IpNet::new(address, length).ok()
}
