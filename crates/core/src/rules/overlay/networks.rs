//! Sets of IP networks.

use std::net::{IpAddr, Ipv6Addr};

/// Reason why a text is no network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("is not a network; write an address and a prefix length, such as 192.0.2.0/24 or 2001:db8::/32")]
pub struct NetworkError;

/// The first and the last address of a network. IPv4 addresses are mapped to IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Network {
    first: u128,
    last: u128,
}

impl std::str::FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let length: u32 = length.map_or(Ok(bits_max), str::parse).map_err(|_| NetworkError)?;
        let host_bits = bits_max.checked_sub(length).ok_or(NetworkError)?;
        let hosts = u128::MAX.checked_shr(128 - host_bits).unwrap_or(0);
        let bits = bits(address);
        Ok(Self { first: bits & !hosts, last: bits | hosts })
    }
}

impl Network {
    /// Whether the address is one of the network's.
    pub fn contains(self, address: IpAddr) -> bool {
        (self.first..=self.last).contains(&bits(address))
    }
}

fn bits(address: IpAddr) -> u128 {
    let mapped = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    Ipv6Addr::to_bits(mapped(address))
}

/// Networks that do not overlap, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks(Box<[Network]>);

impl Networks {
    pub(super) fn new(mut networks: Vec<Network>) -> Self {
        networks.sort_unstable();
        let mut merged: Vec<Network> = Vec::with_capacity(networks.len());
        for network in networks {
            match merged.last_mut() {
                Some(last) if network.first <= last.last => last.last = last.last.max(network.last),
                _ => merged.push(network),
            }
        }
        Self(merged.into())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let bits = bits(address);
        let after = self.0.partition_point(|network| network.first <= bits);
        after.checked_sub(1).is_some_and(|before| bits <= self.0[before].last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap_or_else(|error| panic!("{text} {error}"))
    }

    #[test]
    fn networks_contain_their_addresses_and_no_others() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("192.0.2.0/24", "::ffff:192.0.2.1", "::192.0.2.1"),
            ("::/0", "192.0.2.1", ""),
        ] {
            assert!(network(text).contains(inside.parse().unwrap()), "{text} {inside}");
            assert!(
                outside.parse().is_ok_and(|outside| !network(text).contains(outside)) || outside.is_empty()
            );
        }
        for wrong in ["", "192.0.2.0/33", "192.0.2/24", "2001:db8::/129", "192.0.2.0/", "x/8"] {
            assert_eq!(wrong.parse::<Network>(), Err(NetworkError), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_set_contains_what_one_of_its_networks_contains(
            networks in prop::collection::vec((0..64u32, 24..=32u32), 0..20),
            address in 0..64u32,
        ) {
            let base = u32::from(std::net::Ipv4Addr::new(192, 0, 2, 0));
            let address = IpAddr::from(std::net::Ipv4Addr::from(base + address));
            let networks: Vec<Network> = networks
                .iter()
                .map(|(host, length)| network(&format!("{}/{length}", std::net::Ipv4Addr::from(base + host))))
                .collect();
            let expected = networks.iter().any(|network| network.contains(address));
            prop_assert_eq!(Networks::new(networks).contains(address), expected);
        }
    }
}
