//! IP networks, and maps from addresses to the longest network that contains them.
//!
//! A network is of one family. An address that is mapped to IPv6 (`::ffff:192.0.2.1`) is the IPv4 address, a network within
//! `::ffff:0:0/96` is one of IPv4, and an IPv6 network has no IPv4 addresses: `::/0` is all of IPv6 and nothing else.

use ipnet::{IpNet, Ipv6Net};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// Bits before an IPv4 address that is mapped to IPv6.
const MAPPED_BITS: u8 = 96;

/// The first of the addresses to which IPv4 is mapped.
const MAPPED: u128 = 0xffff << 32;

/// Reason why a text is no network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("is not a network; write an address and a prefix length, such as 192.0.2.0/24 or 2001:db8::/32")]
pub struct NetworkError;

/// An IP network. IPv4 networks are mapped to IPv6, so that each has one form; bits beyond the prefix are zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Network(Ipv6Net);

impl std::str::FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        declared(text).map(|net| Self(net.trunc()))
    }
}

/// The network with the address as it is written, which may have bits beyond the prefix.
fn declared(text: &str) -> Result<Ipv6Net, NetworkError> {
    let net = match text.contains('/') {
        true => {
            // ipnet accepts leading zeros, which may be meant as octal; an address alone has none.
            let (address, _) = text.split_once('/').unwrap_or((text, ""));
            address.parse::<IpAddr>().map_err(|_| NetworkError)?;
            text.parse().map_err(|_| NetworkError)?
        }
        false => IpNet::from(text.parse::<IpAddr>().map_err(|_| NetworkError)?),
    };
    match net {
        IpNet::V4(net) => Ipv6Net::new(net.addr().to_ipv6_mapped(), MAPPED_BITS + net.prefix_len()),
        IpNet::V6(net) => Ok(net),
    }
    .map_err(|_| NetworkError)
}

impl Network {
    /// The network. If the written address has bits beyond the prefix, the inner error is the network without them.
    pub(super) fn exact(text: &str) -> Result<Result<Self, Self>, NetworkError> {
        declared(text).map(|net| if net == net.trunc() { Ok(Self(net)) } else { Err(Self(net.trunc())) })
    }

    /// Whether the address is one of the network's.
    pub fn contains(self, address: IpAddr) -> bool {
        let address = mapped(address);
        is_v4(address) == self.is_v4() && self.0.contains(&address)
    }

    /// Whether it is a network of IPv4.
    fn is_v4(self) -> bool {
        self.length() >= MAPPED_BITS && is_v4(self.0.network())
    }

    /// Whether a value is one of its addresses, or a network within it.
    pub(super) fn matches(self, value: &str) -> bool {
        match value.parse() {
            Ok(address) => self.contains(address),
            Err(_) => masked(value).is_some_and(|other| self == other || self.is_around(other)),
        }
    }

    /// The network of this length, no longer than this one, around it.
    fn widened(self, length: u8) -> Self {
        Self(Ipv6Net::new_assert(self.0.network(), length).trunc())
    }

    /// Whether it has every address of the other network, and more. `::/0` has none of IPv4.
    pub(super) fn is_around(self, other: Self) -> bool {
        self != other && self.is_v4() == other.is_v4() && self.spans(other)
    }

    /// Whether the other network is this network or within it. IPv4 addresses count as the IPv6 addresses to which they are mapped.
    pub(super) fn spans(self, other: Self) -> bool {
        self.0.contains(&other.0)
    }

    /// Length of its prefix, in bits of an IPv6 address.
    pub(super) fn length(self) -> u8 {
        self.0.prefix_len()
    }

    fn first(self) -> u128 {
        self.0.network().to_bits()
    }

    /// None at the end of all addresses.
    fn after_last(self) -> Option<u128> {
        self.0.broadcast().to_bits().checked_add(1)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.addr().to_ipv4_mapped(), self.length().checked_sub(MAPPED_BITS)) {
            (Some(address), Some(length)) => write!(f, "{address}/{length}"),
            _ => self.0.fmt(f),
        }
    }
}

/// The text as Envoy writes the address or the network, if it is one and is spelled otherwise: `2001:DB8:0::1`, `10.1.2.3/8`.
pub fn usual_spelling(text: &str) -> Option<String> {
    let usual = match text.contains('/') {
        true => text.parse::<Network>().ok()?.to_string(),
        false => text.parse::<IpAddr>().ok()?.to_string(),
    };
    (usual != text).then_some(usual)
}

/// The network that a value is, as Envoy's action `masked_remote_address` sends it.
fn masked(value: &str) -> Option<Network> {
    if value.contains('/') { value.parse().ok() } else { None }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn is_v4(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

/// A map from an address to the number of the longest network that contains it.
///
/// The networks are divided into ranges that do not overlap; a lookup is a binary search of their first addresses. It compares at most 64
/// bits at a time, for which the search has no branches.
#[derive(Clone, Debug, Default)]
pub(super) struct NetworkMap {
    /// First IPv4 addresses of ranges; the first is 0.
    v4: Box<[u32]>,
    v4_numbers: Box<[u32]>,
    /// First IPv6 addresses of ranges, the upper and the lower half; the first is 0.
    high: Box<[u64]>,
    low: Box<[u64]>,
    numbers: Box<[u32]>,
    /// All networks, sorted, each with its number.
    networks: Box<[(Network, u32)]>,
}

/// The number of a range in no network.
const NONE: u32 = u32::MAX;

impl NetworkMap {
    /// The map of these networks, each with its number; of two equal networks the first counts. Numbers are below [`NONE`].
    pub(super) fn new(networks: impl IntoIterator<Item = (Network, u32)>) -> Self {
        let mut networks: Vec<(Network, u32)> = networks.into_iter().collect();
        if networks.is_empty() {
            return Self::default();
        }
        networks.sort_by_key(|(network, _)| (network.first(), network.length()));
        networks.dedup_by_key(|(network, _)| *network);
        let (v4, v6): (Vec<_>, Vec<_>) = networks.iter().copied().partition(|(network, _)| network.is_v4());
        let ranges = ranges(&v6);
        // The ranges before and after all IPv4 addresses are in no network.
        let v4 = self::ranges(&v4).into_iter().filter(|(start, _)| is_v4(Ipv6Addr::from_bits(*start)));
        let v4 = v4.map(|(start, number)| ((start - MAPPED) as u32, number));
        let mut v4: Vec<(u32, u32)> = v4.collect();
        if v4.first().is_none_or(|(start, _)| *start > 0) {
            v4.insert(0, (0, NONE));
        }
        Self {
            v4: v4.iter().map(|(start, _)| *start).collect(),
            v4_numbers: v4.iter().map(|(_, number)| *number).collect(),
            high: ranges.iter().map(|(start, _)| (start >> 64) as u64).collect(),
            low: ranges.iter().map(|(start, _)| *start as u64).collect(),
            numbers: ranges.iter().map(|(_, number)| *number).collect(),
            networks: networks.into(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.v4.is_empty()
    }

    /// The number of the longest network that contains the value: an address, or a network.
    #[inline]
    pub(super) fn of_value(&self, value: &str) -> Option<u32> {
        match value.parse() {
            Ok(address) => self.get(address),
            Err(_) => self.around(value),
        }
    }

    /// The number of the longest network that is the value, or around it.
    #[cold]
    #[inline(never)]
    fn around(&self, value: &str) -> Option<u32> {
        let network = masked(value)?;
        let least = if network.is_v4() { MAPPED_BITS } else { 0 };
        (least..=network.length()).rev().find_map(|length| {
            let wanted = network.widened(length);
            let at = self.networks.binary_search_by_key(&(wanted.first(), length), |(network, _)| {
                (network.first(), network.length())
            });
            Some(self.networks[at.ok()?].1)
        })
    }

    /// The number of the longest network that contains the address.
    pub(super) fn get(&self, address: IpAddr) -> Option<u32> {
        let number = match address.to_canonical() {
            IpAddr::V4(address) => {
                let address = address.to_bits();
                let after = self.v4.partition_point(|start| *start <= address);
                *self.v4_numbers.get(after.checked_sub(1)?)?
            }
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                let (high, low) = ((bits >> 64) as u64, bits as u64);
                let before = self.high.partition_point(|start| *start < high);
                let same = self.high[before..].partition_point(|start| *start == high);
                let after = before + self.low[before..before + same].partition_point(|start| *start <= low);
                *self.numbers.get(after.checked_sub(1)?)?
            }
        };
        (number != NONE).then_some(number)
    }
}

/// Ranges that cover all addresses: the first address of each, and the number of the longest network there. `networks` are in the order of
/// first addresses, a longer network after a network that contains it.
fn ranges(networks: &[(Network, u32)]) -> Vec<(u128, u32)> {
    let mut ranges = Ranges { found: vec![(0, NONE)], around: Vec::new() };
    for (network, number) in networks {
        ranges.leave_before(Some(network.first()));
        ranges.begin(network.first(), *number);
        ranges.around.push((network.after_last(), *number));
    }
    ranges.leave_before(None);
    ranges.found
}

struct Ranges {
    found: Vec<(u128, u32)>,
    /// The address after each network that contains the present place, and its number; the longest is the last.
    around: Vec<(Option<u128>, u32)>,
}

impl Ranges {
    fn begin(&mut self, start: u128, number: u32) {
        match self.found.last_mut() {
            Some(last) if last.0 == start => last.1 = number,
            _ => self.found.push((start, number)),
        }
    }

    /// Ends the networks that do not contain this place.
    fn leave_before(&mut self, place: Option<u128>) {
        while let Some((Some(end), _)) = self.around.last().copied()
            && place.is_none_or(|place| end <= place)
        {
            self.around.pop();
            let number = self.around.last().map_or(NONE, |(_, number)| *number);
            self.begin(end, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

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
            ("::ffff:192.0.2.0/120", "192.0.2.1", "192.0.3.1"),
            ("::/0", "::1", "192.0.2.1"),
            ("::/0", "2001:db8::1", "::ffff:192.0.2.1"),
            ("::/80", "::1", "192.0.2.1"),
            ("::ffff:0:0/95", "::fffe:0:1", "192.0.2.1"),
            ("::ffff:0:0/96", "192.0.2.1", "::1"),
            ("ffff::/16", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fffe::"),
        ] {
            let (network, inside): (_, IpAddr) = (network(text), inside.parse().unwrap());
            let map = NetworkMap::new([(network, 7)]);
            assert!(network.contains(inside), "{text} {inside}");
            assert_eq!(map.get(inside), Some(7), "{text} {inside}");
            let outside = outside.parse().ok();
            assert!(!outside.is_some_and(|outside| network.contains(outside)), "{text}");
            assert_eq!(outside.and_then(|outside| map.get(outside)), None, "{text}");
        }
        for wrong in ["", "09.0.0.0/8", "192.0.2.0/33", "192.0.2/24", "2001:db8::/129", "192.0.2.0/", "x/8"] {
            assert_eq!(wrong.parse::<Network>(), Err(NetworkError), "{wrong}");
        }
    }

    #[test]
    fn a_network_is_written_in_its_own_family() {
        for (text, written) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("2001:DB8::1", "2001:db8::1/128"),
            ("::ffff:0:0/95", "::fffe:0:0/95"),
        ] {
            assert_eq!(network(text).to_string(), written, "{text}");
        }
    }

    #[test]
    fn an_empty_map_has_no_address() {
        assert!(NetworkMap::default().is_empty());
        assert_eq!(NetworkMap::default().get(Ipv4Addr::LOCALHOST.into()), None);
        assert_eq!(NetworkMap::default().get(Ipv6Addr::LOCALHOST.into()), None);
    }

    /// Networks of few bits, which contain each other often, of both families, and around the place to which IPv4 is mapped.
    fn some_network() -> impl Strategy<Value = Network> {
        let v4 = (0..32u32, 24..=32u8)
            .prop_map(|(host, length)| (IpAddr::from(Ipv4Addr::from(host << 3)), length));
        let v6 = (0..16u128, prop_oneof![0..=8u8, 60..=68u8, 124..=128u8])
            .prop_map(|(bits, length)| (Ipv6Addr::from(bits << 124 | bits << 62 | bits).into(), length));
        let around_v4 = (80..=128u8).prop_map(|length| (IpAddr::from(Ipv6Addr::from(MAPPED | 0xf0)), length));
        prop_oneof![v4, v6, around_v4].prop_map(|(address, length)| network(&format!("{address}/{length}")))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]
        #[test]
        fn an_address_has_the_number_of_the_longest_network_that_contains_it(
            networks in prop::collection::vec(some_network(), 0..20),
            addresses in prop::collection::vec(some_network(), 20),
        ) {
            let map = NetworkMap::new(networks.iter().copied().zip(0..));
            for Network(net) in addresses {
                for address in [IpAddr::from(net.addr()), net.addr().to_canonical(), net.broadcast().into()] {
                    let containing = (0..).zip(&networks).filter(|(_, network)| network.contains(address));
                    // Of equal networks the first counts.
                    let longest = containing.min_by_key(|(number, network)| (u8::MAX - network.length(), *number));
                    let expected = longest.map(|(number, _)| number);
                    prop_assert_eq!(map.get(address), expected, "{} in {:?}", address, networks);
                }
            }
        }

        /// As Envoy's action `masked_remote_address` sends them.
        #[test]
        fn a_network_as_a_value_has_the_number_of_the_longest_network_with_all_its_addresses(
            networks in prop::collection::vec(some_network(), 0..20),
            values in prop::collection::vec(some_network(), 20),
        ) {
            let map = NetworkMap::new(networks.iter().copied().zip(0..));
            for value in values {
                let ends = [value.0.network(), value.0.broadcast()].map(IpAddr::from);
                // `::/0` has none of IPv4, although it begins and ends around it.
                let has_all = |network: &Network| {
                    network.is_v4() == value.is_v4() && ends.iter().all(|end| network.0.contains(&mapped(*end)))
                };
                let containing = (0..).zip(&networks).filter(|(_, network)| has_all(network));
                let longest = containing.min_by_key(|(number, network)| (u8::MAX - network.length(), *number));
                let expected = longest.map(|(number, _)| number);
                let text = value.to_string();
                prop_assert_eq!(map.of_value(&text), expected, "{} in {:?}", text, networks);
                let matching = networks.iter().any(|network| network.matches(&text));
                prop_assert_eq!(matching, expected.is_some(), "{} in {:?}", text, networks);
            }
        }
    }
}
