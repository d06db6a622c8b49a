//! The hash slots of a cluster: the slot of each group of counters, and the node of each slot. Pure.

use redis::Value;
use tidegate_core::limiter::GROUPS;

/// Hash slots of a cluster.
const HASH_SLOTS: u16 = 16_384;

/// The node of each group; none if no node has its hash slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HashSlots {
    /// Addresses of the nodes: host and port.
    pub(super) nodes: Vec<(String, u16)>,
    /// Indices of `nodes`, by group.
    pub(super) owners: Vec<Option<u16>>,
}

impl HashSlots {
    /// Reads the reply to CLUSTER SLOTS of a node with this host. None if it is not such a reply.
    pub(super) fn from_reply(reply: &Value, host: &str) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        let mut map = Self { nodes: Vec::new(), owners: vec![None; usize::from(GROUPS)] };
        let ranges: Vec<(u16, u16, u16)> =
            ranges.iter().map(|range| map.range(range, host)).collect::<Option<_>>()?;
        for (group, owner) in (0..GROUPS).zip(&mut map.owners) {
            let slot = hash_slot_of(group);
            let range = ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
            *owner = range.map(|&(_, _, node)| node);
        }
        Some(map)
    }

    /// The first and the last hash slot of a range, and the index of its primary.
    fn range(&mut self, range: &Value, host: &str) -> Option<(u16, u16, u16)> {
        let Value::Array(fields) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &fields[..] else {
            return None;
        };
        let [name, Value::Int(port), ..] = &primary[..] else { return None };
        // If a node does not state its address, it is the address at which it was reached.
        let name = match name {
            Value::BulkString(bytes) if !bytes.is_empty() && bytes != b"?" => str::from_utf8(bytes).ok()?,
            _ => host,
        };
        let node = (name.to_owned(), u16::try_from(*port).ok()?);
        let index = self.nodes.iter().position(|known| *known == node).unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, u16::try_from(index).ok()?))
    }
}

/// The hash tag of a group: its number in hexadecimal digits.
pub(super) fn hash_tag(group: u16) -> String {
    format!("{{{group:x}}}")
}

/// The hash slot of a group: that of the text in the braces of its hash tag.
fn hash_slot_of(group: u16) -> u16 {
    crc16(format!("{group:x}").as_bytes()) % HASH_SLOTS
}

/// CRC-16/XMODEM, as the cluster specification has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(
            crc ^ u16::from(byte) << 8,
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            },
        )
    })
}

/// The address in a redirection, such as `127.0.0.1:7000`. If the host is missing, it is that of the redirecting node.
pub(super) fn address(text: &str, host: &str) -> Option<(String, u16)> {
    let (name, port) = text.rsplit_once(':')?;
    let name = if name.is_empty() { host } else { name };
    Some((name.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn groups_are_spread_evenly_over_slots() {
        let mut thirds = [0; 3];
        (0..GROUPS)
            .for_each(|group| thirds[usize::from(hash_slot_of(group)) * 3 / usize::from(HASH_SLOTS)] += 1);
        assert!(thirds.iter().all(|groups| (300..=380).contains(groups)), "{thirds:?}");
    }

    fn range(first: i64, last: i64, host: &[u8], port: i64) -> Value {
        let node = Value::Array(vec![Value::BulkString(host.to_vec()), Value::Int(port)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node])
    }

    #[test]
    fn each_group_has_the_node_of_its_slot() {
        let half = i64::from(HASH_SLOTS / 2);
        let reply =
            Value::Array(vec![range(0, half - 1, b"10.0.0.1", 7_000), range(half, 16_000, b"", 7_001)]);
        let map = HashSlots::from_reply(&reply, "seed.example").expect("a map");
        assert_eq!(map.nodes, [("10.0.0.1".to_owned(), 7_000), ("seed.example".to_owned(), 7_001)]);
        for group in 0..GROUPS {
            let expected = match hash_slot_of(group) {
                slot if i64::from(slot) < half => Some(0),
                slot if slot <= 16_000 => Some(1),
                _ => None,
            };
            assert_eq!(map.owners[usize::from(group)], expected, "group {group}");
        }
        assert_eq!(HashSlots::from_reply(&Value::Okay, "seed.example"), None);
    }

    #[test]
    fn a_redirection_without_a_host_is_to_the_host_of_the_node() {
        assert_eq!(address("10.0.0.1:7000", "h"), Some(("10.0.0.1".to_owned(), 7_000)));
        assert_eq!(address(":7000", "h"), Some(("h".to_owned(), 7_000)));
        assert_eq!(address("10.0.0.1", "h"), None);
    }
}
