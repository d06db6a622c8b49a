//! Access to the control API and to leases: the caller's role, its location, and how often it may call.

use std::{fmt, fs, net::IpAddr, str::FromStr};
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

/// Bound on calls: of one caller, or of one address without a token.
const RULES: &str = "{ domain: control, descriptors: [
  { key: caller, rate_limit: { unit: second, requests_per_unit: 100 } },
  { key: stranger, rate_limit: { unit: minute, requests_per_unit: 100 } },
  { key: denied, rate_limit: { unit: minute, requests_per_unit: 100 } }] }";
/// The user that represents unmapped users, unless the system has another.
const OVERFLOW_UID: u32 = 65_534;
/// The most known callers, and the most addresses, whose calls are counted.
const CALLERS_MAX: usize = 10_000;

/// Permissions of a caller, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Role {
    /// Nothing.
    #[default]
    None,
    /// Leases, but nothing of the control API.
    Lease,
    /// Methods of the control API that change nothing. No leases.
    Read,
    /// All methods.
    Operate,
}

impl Role {
    /// Whether a caller with this role may do what needs the role `needs`.
    pub fn permits(self, needs: Self) -> bool {
        self == needs || self == Self::Operate || needs == Self::None
    }
}

/// The credential of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credential {
    /// The caller sent no token, and has no known name in its certificate.
    None,
    /// A token that is not in the file. It has no role, whatever certificate or Unix socket user accompanies it.
    Wrong,
    /// The actor and the role of a token in the file, or of a name in the certificate of a caller that sent no token.
    Known(String, Role),
}

impl Credential {
    /// The actor, if it is known.
    pub fn actor(self) -> Option<String> {
        match self {
            Self::Known(actor, _) => Some(actor),
            Self::None | Self::Wrong => None,
        }
    }

    /// Whether it has a role that permits what needs the role `needs`.
    pub fn permits(&self, needs: Role) -> bool {
        matches!(self, Self::Known(_, role) if role.permits(needs))
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "lease" => Ok(Self::Lease),
            "read" => Ok(Self::Read),
            "operate" => Ok(Self::Operate),
            _ => Err("the role is none of lease, read and operate".into()),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Lease => "lease",
            Self::Read => "read",
            Self::Operate => "operate",
        })
    }
}

/// Where callers may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Reach {
    /// On this machine only.
    // On loopback, or at a Unix socket.
    Loopback,
    /// Anywhere.
    Any,
}

/// A service to which callers with a role have access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessTo {
    /// The control API.
    Control,
    /// Leases. A holder calls as often as its counters need.
    Leases,
}

impl fmt::Display for AccessTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "the control API is open to callers on this machine (--control loopback)",
            Self::Leases => "leases are granted to callers on this machine (--leases loopback)",
        })
    }
}

/// A caller with a role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The name in the audit log: `token:NAME`, `san:NAME` or `unix:UID`.
    pub actor: String,
    /// Its role.
    pub role: Role,
    /// The other end of the connection.
    pub peer: String,
}

/// The reason why a call is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Denied {
    /// It has no known token.
    #[error("send a bearer token that has a role: `authorization: Bearer TOKEN`")]
    Unauthenticated,
    /// The caller's role is not sufficient.
    #[error("{actor} has the role {has}; the method needs {needs}")]
    Role {
        /// The caller.
        actor: String,
        /// Its role.
        has: Role,
        /// The role that the method needs.
        needs: Role,
    },
    /// The caller is on another machine.
    #[error("{0}")]
    Reach(AccessTo),
    /// The caller calls too often.
    #[error("too many calls of one caller; wait a second")]
    TooMany,
}

/// Decides which calls are permitted.
pub struct Access {
    to: AccessTo,
    reach: Reach,
    /// The user of this process.
    uid: u32,
    /// The user that represents all users without a number in this user namespace, if there are such users.
    unmapped_uid: Option<u32>,
    /// Calls of known callers. Of more than [`CALLERS_MAX`], further ones are admitted without a count.
    known: Limiter,
    /// Calls without a known caller, by address. Apart from the others, so that strangers at many addresses keep no operator out.
    strangers: Limiter,
}

impl Access {
    /// Access for callers within `reach`.
    pub fn new(to: AccessTo, reach: Reach) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let [map, overflow] =
            ["/proc/self/uid_map", "/proc/sys/kernel/overflowuid"].map(|path| fs::read_to_string(path).ok());
        let unmapped_uid = unmapped_uid(map.as_deref(), overflow.as_deref());
        if unmapped_uid == Some(uid) {
            tracing::warn!(
                uid,
                "this process has the user that stands for all unmapped ones: callers on Unix sockets need a token; map a user of its own"
            );
        }
        let [known, strangers] = [OnFull::Allow, OnFull::Deny].map(limiter);
        Self { to, reach, uid, unmapped_uid, known, strangers }
    }

    /// The caller, if it may call a method that needs this role.
    pub fn admit(
        &self,
        credential: Credential,
        peer: &str,
        needs: Role,
        now: Timestamp,
    ) -> Result<Caller, Denied> {
        if self.reach == Reach::Loopback && !is_local(peer) {
            return Err(Denied::Reach(self.to));
        }
        let of_socket = self.role_of_socket(peer);
        let (actor, has) = match (credential, of_socket) {
            (Credential::Known(actor, role), _) => (actor, role),
            (Credential::None, Some(uid)) => (format!("unix:{uid}"), Role::Operate),
            _ if is_within_limit(&self.strangers, "stranger", peer, now) => {
                return Err(Denied::Unauthenticated);
            }
            _ => return Err(Denied::TooMany),
        };
        if self.to == AccessTo::Control && !is_within_limit(&self.known, "caller", &actor, now) {
            return Err(Denied::TooMany);
        }
        if !has.permits(needs) {
            return Err(Denied::Role { actor, has, needs });
        }
        Ok(Caller { actor, role: has, peer: peer.to_owned() })
    }

    /// Whether a denied call of this actor, or of this address without an actor, gets a line in the audit log.
    pub fn is_denial_logged(&self, actor: Option<&str>, peer: &str, now: Timestamp) -> bool {
        match actor {
            Some(actor) => is_within_limit(&self.known, "denied", actor, now),
            None => is_within_limit(&self.strangers, "denied", peer, now),
        }
    }

    /// The user on the other end of a Unix socket, if it is this process's user or root.
    fn role_of_socket(&self, peer: &str) -> Option<u32> {
        let uid = peer.strip_prefix("uid:")?.parse().ok()?;
        ((uid == self.uid || uid == 0) && Some(uid) != self.unmapped_uid).then_some(uid)
    }
}

/// Counts calls by [`RULES`].
fn limiter(on_full: OnFull) -> Limiter {
    let rules = RuleSet::parse(&[Source::file("control", RULES)], &LoadOptions::default());
    let rules = rules.expect("a test parses the rules");
    // Keys in the tables are addresses and names, which strangers cannot choose: no secret is needed against them.
    let seed = Seed::random().unwrap_or_else(|_| Seed::from_bytes([0; 16]));
    Limiter::new(rules, StoreSettings { seed, counters_max: CALLERS_MAX, on_full }, false)
}

fn is_within_limit(calls: &Limiter, key: &str, value: &str, now: Timestamp) -> bool {
    let mut request = Request::new("control");
    let entries = [Entry { key, value }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    calls.pin().decide(&request, now).code == Code::Ok
}

/// The user that represents users without a number here, from the texts of `/proc/self/uid_map` and `/proc/sys/kernel/overflowuid`. None if
/// every user has a number. A namespace with an empty map has no numbers at all.
fn unmapped_uid(map: Option<&str>, overflow: Option<&str>) -> Option<u32> {
    const USERS: u64 = u32::MAX as u64;
    // Without the file there are no user namespaces.
    let lines = map?.lines();
    let mapped = lines.filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok()).sum::<u64>();
    (mapped < USERS).then(|| overflow.and_then(|text| text.trim().parse().ok()).unwrap_or(OVERFLOW_UID))
}

/// Whether a peer is on this machine. IPv6 peers are networks: loopback's network has no other address in use.
fn is_local(peer: &str) -> bool {
    let is_loopback = |address: IpAddr| address.is_loopback();
    peer.starts_with("uid:") || peer == "unix" || peer == "::/64" || peer.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn credential(token: Option<(&str, Role)>) -> Credential {
        token.map_or(Credential::None, |(name, role)| Credential::Known(format!("token:{name}"), role))
    }

    #[test]
    fn the_role_is_that_of_the_token_or_of_the_unix_peer() {
        let access = Access::new(AccessTo::Control, Reach::Any);
        let own = format!("uid:{}", access.uid);
        let stranger = format!("uid:{}", access.uid + 1);
        let admit = |token, peer: &str, needs| {
            access.admit(credential(token), peer, needs, NOW).map(|caller| caller.actor)
        };
        assert_eq!(admit(Some(("a", Role::Read)), "192.0.2.1", Role::Read).as_deref(), Ok("token:a"));
        let denied = admit(Some(("a", Role::Read)), "192.0.2.1", Role::Operate);
        assert!(matches!(denied, Err(Denied::Role { has: Role::Read, needs: Role::Operate, .. })));
        assert!(matches!(admit(Some(("a", Role::None)), &own, Role::Read), Err(Denied::Role { .. })));
        assert_eq!(admit(None, &own, Role::Operate), Ok(format!("unix:{}", access.uid)));
        assert_eq!(admit(None, &stranger, Role::Read), Err(Denied::Unauthenticated));
        assert_eq!(admit(None, "127.0.0.1", Role::Read), Err(Denied::Unauthenticated));
        let wrong = access.admit(Credential::Wrong, &own, Role::Read, NOW);
        assert_eq!(wrong, Err(Denied::Unauthenticated), "a wrong token has no role, from any user");
    }

    /// In a user namespace whose server had the user 65534, all users of the machine were operators.
    #[test]
    fn the_user_that_stands_for_unmapped_ones_has_no_role() {
        let unmapped_by = |map| unmapped_uid(map, Some("65534\n"));
        assert_eq!(unmapped_by(Some("         0          0 4294967295\n")), None, "no namespace");
        assert_eq!(unmapped_by(Some("     65534       1000          1\n")), Some(65_534));
        assert_eq!(unmapped_uid(Some("0 1000 1\n1 100000 65536\n"), None), Some(65_534));
        assert_eq!(unmapped_by(Some("")), Some(65_534), "a namespace without a map");
        assert_eq!(unmapped_by(None), None, "no namespaces in this kernel");
        let access =
            Access { uid: 65_534, unmapped_uid: Some(65_534), ..Access::new(AccessTo::Control, Reach::Any) };
        let admit = |peer| access.admit(Credential::None, peer, Role::Read, NOW).map(|caller| caller.actor);
        assert_eq!(admit("uid:65534"), Err(Denied::Unauthenticated));
        assert_eq!(admit("uid:0"), Ok("unix:0".into()));
    }

    #[test]
    fn callers_on_other_machines_are_refused_unless_any_are_admitted() {
        let access = Access::new(AccessTo::Control, Reach::Loopback);
        let admit =
            |peer: &str| access.admit(credential(Some(("a", Role::Read))), peer, Role::Read, NOW).err();
        for (peer, denied) in [
            ("127.0.0.1", None),
            ("::/64", None),
            ("unix", None),
            ("192.0.2.1", Some(Denied::Reach(AccessTo::Control))),
            ("2001:db8::/64", Some(Denied::Reach(AccessTo::Control))),
            ("", Some(Denied::Reach(AccessTo::Control))),
        ] {
            assert_eq!(admit(peer), denied, "{peer}");
        }
    }

    #[test]
    fn readers_take_no_credits_and_holders_read_nothing() {
        let all = [Role::None, Role::Lease, Role::Read, Role::Operate];
        let permitted = |role: Role| all.map(|needs| u8::from(role.permits(needs)));
        assert_eq!(all.map(permitted), [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]]);
    }

    #[test]
    fn holders_call_as_often_as_they_need() {
        let access = Access::new(AccessTo::Leases, Reach::Loopback);
        let admit = |peer| access.admit(credential(Some(("a", Role::Lease))), peer, Role::Lease, NOW);
        assert!((0..1_000).all(|_| admit("127.0.0.1").is_ok()));
        assert_eq!(admit("192.0.2.1"), Err(Denied::Reach(AccessTo::Leases)));
    }

    #[test]
    fn calls_of_one_caller_are_bounded_and_those_of_others_go_on() {
        let access = Access::new(AccessTo::Control, Reach::Any);
        let admit = |name| access.admit(credential(Some((name, Role::Read))), "192.0.2.1", Role::Read, NOW);
        let admitted = (0..200).filter(|_| admit("a").is_ok()).count();
        assert_eq!((admitted, admit("a"), admit("b").is_ok()), (100, Err(Denied::TooMany), true));
        let guesses = (0..200).map(|_| access.admit(Credential::None, "192.0.2.1", Role::Read, NOW));
        assert_eq!(guesses.filter(|refused| *refused == Err(Denied::Unauthenticated)).count(), 100);
    }

    /// Calls without a token from 10,000 addresses, such as those of loopback, kept every operator out.
    #[test]
    fn strangers_at_many_addresses_keep_no_operator_out() {
        let access = Access::new(AccessTo::Control, Reach::Any);
        let peer = |number: usize| format!("127.{}.{}.1", number >> 8, number & 255);
        for number in 0..=CALLERS_MAX {
            let refused = access.admit(Credential::None, &peer(number), Role::Read, NOW);
            let expected = if number < CALLERS_MAX { Denied::Unauthenticated } else { Denied::TooMany };
            assert_eq!(refused, Err(expected), "{number}");
        }
        let admit = |token, peer: &str| access.admit(credential(token), peer, Role::Read, NOW);
        assert!(admit(Some(("a", Role::Operate)), "192.0.2.1").is_ok());
        assert!(admit(None, &format!("uid:{}", access.uid)).is_ok());
        assert!(access.is_denial_logged(Some("token:reader"), "192.0.2.1", NOW));
    }
}
