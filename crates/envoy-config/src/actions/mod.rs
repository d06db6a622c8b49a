//! The actions of `rate_limits`: what each adds to a descriptor.
//!
//! Invariant: an action adds the entry that Envoy's filter adds, byte for byte, or none, or keeps the descriptor from being made, as there.

mod address;
mod header_match;
pub(crate) mod hits;
mod query;
mod text_match;

use crate::{
    node::{Node, Problems, literal},
    stream::{Envoy, Headers, MetadataSource, Stream},
};
use address::Client;
use address::{AddressMatch, MaskLengths};
pub(crate) use header_match::HeaderMatch;
pub(crate) use query::QueryMatch;
use std::{borrow::Cow, cell::OnceCell};
pub(crate) use text_match::TextMatch;

/// An action.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// `generic_key`, and `source_cluster`, which is as constant.
    Constant {
        key: String,
        value: String,
    },
    DestinationCluster,
    RequestHeader {
        key: String,
        name: String,
        skip_if_absent: bool,
    },
    QueryParameter {
        key: String,
        name: String,
        skip_if_absent: bool,
    },
    RemoteAddress,
    MaskedRemoteAddress(MaskLengths),
    RemoteAddressMatch {
        key: String,
        value: String,
        matcher: AddressMatch,
    },
    HeaderValueMatch {
        key: String,
        value: String,
        expect: bool,
        matchers: Vec<HeaderMatch>,
    },
    QueryValueMatch {
        key: String,
        value: String,
        expect: bool,
        matchers: Vec<QueryMatch>,
    },
    Metadata(Metadata),
}

/// A text of metadata.
#[derive(Debug, PartialEq)]
pub(crate) struct Metadata {
    key: String,
    source: MetadataSource,
    namespace: String,
    name: String,
    default: String,
    skip_if_absent: bool,
}

/// An entry that an action can add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PossibleEntry {
    /// Its key.
    pub key: String,
    /// Its values.
    pub value: Sent,
    /// Whether the descriptor may also be made without it.
    pub may_be_left_out: bool,
}

impl PossibleEntry {
    /// What it reads: `header x-api-key`, `remote_address`.
    pub(crate) fn what(&self) -> String {
        match &self.value {
            Sent::Text(what) => what.clone(),
            Sent::Ticket => "the ticket of the request".to_owned(),
            _ => self.key.clone(),
        }
    }
}

/// The values that an action can send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// This one.
    Exact(String),
    /// Any text of a part of the request, such as `header x-api-key`.
    Text(String),
    /// The address of a client.
    Address,
    /// A network, such as `192.0.2.0/24`.
    Network,
    /// The name of the cluster of the route.
    Cluster,
    /// The ticket of a request in flight, or of a reservation.
    Ticket,
}

/// What an action adds to a descriptor.
pub(crate) enum Added<'s> {
    Entry(&'s str, Cow<'s, [u8]>),
    Nothing,
    /// No descriptor is made.
    NoDescriptor,
}

/// A stream as actions read it: what several of them need is read once.
pub struct Source<'s> {
    pub(crate) stream: &'s dyn Stream,
    client: OnceCell<Option<Client<'s>>>,
    /// At the end of a stream, the ticket of its beginning.
    ticket: Option<&'s str>,
}

/// The metadata in which a server's responses have tickets.
const TICKET: (&str, &str) = ("envoy.filters.http.ratelimit", "slot");

impl<'s> Source<'s> {
    /// The source of a request, or of its end.
    pub fn new(stream: &'s dyn Stream) -> Self {
        Self { stream, client: OnceCell::new(), ticket: None }
    }

    /// Sets the ticket of the stream, where no metadata has it.
    pub fn with_ticket(self, ticket: Option<&'s str>) -> Self {
        Self { ticket, ..self }
    }

    /// The client's address; none if it is none of IP.
    fn client(&self) -> Option<&Client<'s>> {
        self.client.get_or_init(|| Client::of(self.stream)).as_ref()
    }

    fn path(&self) -> &'s [u8] {
        self.stream.header(Headers::Request, ":path", 0).0.unwrap_or_default()
    }
}

impl Action {
    /// Reads an action; none if it is refused.
    pub(crate) fn read(node: &Node, envoy: &Envoy, problems: &Problems) -> Option<Self> {
        let mut names = node.names();
        let (Some(name), None) = (names.next(), names.next()) else {
            problems.add(&node.path, "is not exactly one action");
            return None;
        };
        let why = match (node.node(name), name) {
            (Some(own), _) => return Self::of(name, own, envoy, problems),
            (None, "extension") => "needs Envoy's own code; use another action",
            (None, _) => "is not supported here by Envoy either; use `metadata`",
        };
        problems.add(&node.path_of(name), why);
        None
    }

    /// The action of this name, from its own message.
    fn of(name: &str, own: &Node, envoy: &Envoy, problems: &Problems) -> Option<Self> {
        let keyed = |default: &str| own.text_or("descriptor_key", default);
        let expect = || own.bool_or("expect_match", true);
        Some(match name {
            "source_cluster" => match &envoy.source_cluster {
                Some(value) => Self::Constant { key: name.to_owned(), value: value.clone() },
                None => {
                    problems.add(
                        &own.path,
                        "is the cluster of Envoy's node, which is not known here; set the variable TIDEGATE_SOURCE_CLUSTER \
                         of Envoy, or `tidegate: {source_cluster: …}` in a configuration as JSON",
                    );
                    return None;
                }
            },
            "destination_cluster" => Self::DestinationCluster,
            "request_headers" => Self::RequestHeader {
                key: own.required("descriptor_key", problems),
                name: own.required("header_name", problems).to_ascii_lowercase(),
                skip_if_absent: own.bool("skip_if_absent"),
            },
            "query_parameters" => Self::QueryParameter {
                key: own.required("descriptor_key", problems),
                name: own.required("query_parameter_name", problems),
                skip_if_absent: own.bool("skip_if_absent"),
            },
            "remote_address" => Self::RemoteAddress,
            "masked_remote_address" => Self::MaskedRemoteAddress(MaskLengths::read(own, problems)),
            "remote_address_match" => {
                let path = own.path_of("descriptor_value");
                let value = literal(&own.required("descriptor_value", problems), &path, problems);
                let matcher = AddressMatch::read(own, problems);
                Self::RemoteAddressMatch { key: keyed("remote_address_match"), value: value?, matcher }
            }
            "generic_key" => Self::Constant {
                key: keyed("generic_key"),
                value: own.required("descriptor_value", problems),
            },
            "header_value_match" => Self::HeaderValueMatch {
                key: keyed("header_match"),
                value: own.required("descriptor_value", problems),
                expect: expect(),
                matchers: own
                    .nodes("headers")
                    .filter_map(|node| HeaderMatch::read(node, envoy, problems))
                    .collect(),
            },
            "query_parameter_value_match" => Self::QueryValueMatch {
                key: keyed("query_match"),
                value: own.required("descriptor_value", problems),
                expect: expect(),
                matchers: own
                    .nodes("query_parameters")
                    .filter_map(|node| QueryMatch::read(node, problems))
                    .collect(),
            },
            _ => Self::Metadata(Metadata::read(own, problems)?),
        })
    }

    /// The entry that it can add to a descriptor.
    pub(crate) fn possible(&self) -> PossibleEntry {
        let entry =
            |key: &str, value: Sent| PossibleEntry { key: key.to_owned(), value, may_be_left_out: false };
        match self {
            Self::Constant { key, value } if value.is_empty() => {
                entry(key, Sent::Text("cluster of Envoy's node".to_owned()))
            }
            Self::Constant { key, value }
            | Self::RemoteAddressMatch { key, value, .. }
            | Self::HeaderValueMatch { key, value, .. }
            | Self::QueryValueMatch { key, value, .. } => entry(key, Sent::Exact(value.clone())),
            Self::DestinationCluster => entry("destination_cluster", Sent::Cluster),
            Self::RequestHeader { key, name, skip_if_absent } => PossibleEntry {
                may_be_left_out: *skip_if_absent,
                ..entry(key, Sent::Text(format!("header {name}")))
            },
            Self::QueryParameter { key, name, skip_if_absent } => PossibleEntry {
                may_be_left_out: *skip_if_absent,
                ..entry(key, Sent::Text(format!("query parameter {name}")))
            },
            Self::RemoteAddress => entry("remote_address", Sent::Address),
            Self::MaskedRemoteAddress(_) => entry("masked_remote_address", Sent::Network),
            Self::Metadata(metadata) => metadata.possible(),
        }
    }

    /// Whether its entry is not known without Envoy: dynamic metadata are written by other filters, and the cluster may be chosen later.
    pub(crate) fn is_unknown(&self, has_cluster: bool) -> bool {
        match self {
            Self::Metadata(metadata) => metadata.source != MetadataSource::Route && !metadata.is_ticket(),
            Self::DestinationCluster => !has_cluster,
            _ => false,
        }
    }

    /// The entry for a stream.
    pub(crate) fn added<'s>(&'s self, source: &Source<'s>) -> Added<'s> {
        let absent = |skip_if_absent: bool| if skip_if_absent { Added::Nothing } else { Added::NoDescriptor };
        let of_match = |is_match: bool, key: &'s str, value: &'s str| match is_match {
            true => Added::Entry(key, Cow::Borrowed(value.as_bytes())),
            false => Added::NoDescriptor,
        };
        match self {
            Self::Constant { key, value } => Added::Entry(key, Cow::Borrowed(value.as_bytes())),
            Self::DestinationCluster => match source.stream.cluster() {
                Some(name) => Added::Entry("destination_cluster", Cow::Borrowed(name)),
                None => Added::NoDescriptor,
            },
            Self::RequestHeader { key, name, skip_if_absent } => {
                match source.stream.header(Headers::Request, name, 0).0 {
                    Some(value) => Added::Entry(key, Cow::Borrowed(value)),
                    None => absent(*skip_if_absent),
                }
            }
            Self::QueryParameter { key, name, skip_if_absent } => match query::first(source.path(), name) {
                Some(value) => Added::Entry(key, value),
                None => absent(*skip_if_absent),
            },
            Self::RemoteAddress => match source.client() {
                Some(client) => Added::Entry("remote_address", Cow::Borrowed(client.text.as_bytes())),
                None => Added::NoDescriptor,
            },
            Self::MaskedRemoteAddress(lengths) => match source.client() {
                Some(client) => {
                    let network = lengths.network_of(client.address);
                    Added::Entry("masked_remote_address", Cow::Owned(network.into_bytes()))
                }
                None => Added::NoDescriptor,
            },
            Self::RemoteAddressMatch { key, value, matcher } => {
                of_match(source.client().is_some_and(|client| matcher.matches(client.address)), key, value)
            }
            Self::HeaderValueMatch { key, value, expect, matchers } => {
                let is_match = matchers.iter().all(|matcher| matcher.matches(source.stream));
                of_match(is_match == *expect, key, value)
            }
            Self::QueryValueMatch { key, value, expect, matchers } => {
                let path = source.path();
                let is_match = matchers.iter().all(|matcher| matcher.matches(path));
                of_match(is_match == *expect, key, value)
            }
            Self::Metadata(metadata) => metadata.added(source),
        }
    }
}

impl Metadata {
    fn read(node: &Node, problems: &Problems) -> Option<Self> {
        let empty = Node::at(node.path_of("metadata_key"));
        let key = node.node("metadata_key").unwrap_or(&empty);
        let namespace = key.required("key", problems);
        let mut path = key.nodes("path");
        let name = match (path.next(), path.next()) {
            (Some(segment), None) if segment.has("key") => segment.required("key", problems),
            (first, _) => {
                let what = if first.is_some() { "is not one key" } else { "is empty" };
                let remedy =
                    "only Envoy reads texts that are not directly below the namespace; write one `key`";
                problems.add(&key.path_of("path"), format!("{what}; {remedy}"));
                return None;
            }
        };
        let source = match node.number_of("source") {
            0 => MetadataSource::Dynamic,
            1 => MetadataSource::Route,
            2 => MetadataSource::Cluster,
            _ => {
                let what = "only Envoy can read CLUSTER_LOCALITY_ENTRY at this time; use another source";
                problems.add(&node.path_of("source"), what);
                return None;
            }
        };
        Some(Self {
            key: node.required("descriptor_key", problems),
            source,
            namespace,
            name,
            default: node.text("default_value").to_owned(),
            skip_if_absent: node.bool("skip_if_absent"),
        })
    }

    /// Whether it is that of a ticket of Tidegate's.
    fn is_ticket(&self) -> bool {
        self.source == MetadataSource::Dynamic && (&*self.namespace, &*self.name) == TICKET
    }

    fn possible(&self) -> PossibleEntry {
        let value = match self.is_ticket() {
            true => Sent::Ticket,
            false => Sent::Text(format!("metadata {}:{}", self.namespace, self.name)),
        };
        PossibleEntry {
            key: self.key.clone(),
            value,
            may_be_left_out: self.skip_if_absent && self.default.is_empty(),
        }
    }

    fn added<'s>(&'s self, source: &Source<'s>) -> Added<'s> {
        let ticket = source.ticket.filter(|_| self.is_ticket()).map(str::as_bytes);
        let text = || source.stream.metadata_text(self.source, &self.namespace, &self.name);
        match ticket.or_else(text) {
            Some(text) if !text.is_empty() => Added::Entry(&self.key, Cow::Borrowed(text)),
            _ if !self.default.is_empty() => Added::Entry(&self.key, Cow::Borrowed(self.default.as_bytes())),
            _ if self.skip_if_absent => Added::Nothing,
            _ => Added::NoDescriptor,
        }
    }
}
