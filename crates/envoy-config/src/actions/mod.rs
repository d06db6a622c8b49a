//! The actions of `rate_limits`, each with the entry that it adds to a descriptor.
//!
//! Invariant: an action adds the entry that Envoy's filter adds, byte for byte, or none, or prevents the descriptor, as Envoy's does.

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
pub use query::percent_decoded;
use std::{borrow::Cow, cell::OnceCell};
pub(crate) use text_match::TextMatch;

/// An action: adds an entry with this key, if its source has a value.
#[derive(Debug, PartialEq)]
pub(crate) struct Action {
    pub(crate) key: String,
    reads: Reads,
    /// Whether the descriptor is made even without the entry.
    pub(crate) skip_if_absent: bool,
}

/// The source of an entry's value.
#[derive(Debug, PartialEq)]
enum Reads {
    /// `generic_key`, and `source_cluster`, which is constant too.
    Constant(String),
    Cluster,
    /// A header of the request.
    Header(String),
    QueryParameter(String),
    Address,
    Network(MaskLengths),
    /// This value, if the request matches.
    Match(String, Matcher),
    Metadata(Metadata),
}

/// A match of a request. For headers and parameters: whether all of the list have to match, or not all of them.
#[derive(Debug, PartialEq)]
enum Matcher {
    Address(AddressMatch),
    Headers(bool, Vec<HeaderMatch>),
    Query(bool, Vec<QueryMatch>),
}

/// A text of metadata.
#[derive(Debug, PartialEq)]
struct Metadata {
    source: MetadataSource,
    namespace: String,
    name: String,
    /// The value if it is absent or empty; none if this is empty too.
    default: String,
}

/// An entry that an action can add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PossibleEntry {
    /// Its key.
    pub key: String,
    /// Its values.
    pub value: Sent,
    /// Whether the descriptor may be made without it.
    pub may_be_left_out: bool,
}

impl PossibleEntry {
    /// Describes its source: `header x-api-key`, `remote_address`.
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
    /// This value.
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

/// A stream as actions read it. Parts that several actions need are read once.
pub struct Source<'s> {
    pub(crate) stream: &'s dyn Stream,
    client: OnceCell<Option<Client<'s>>>,
    /// At the end of a stream, the ticket of its beginning.
    ticket: Option<TicketMetadata<'s>>,
}

/// The ticket of a stream, as metadata of a filter would have it.
#[derive(Clone, Copy)]
struct TicketMetadata<'s> {
    text: &'s str,
    namespace: &'s str,
}

/// The namespace in which a filter has the metadata of its server, unless it sets `metadata_namespace`.
pub const METADATA_NAMESPACE: &str = "envoy.filters.http.ratelimit";

/// The metadata key of tickets in a server's responses, below the namespace of the filter.
const TICKET_KEY: &str = "slot";

/// Headers of requests that Envoy sets, by facts that a request does not show.
const OF_ENVOY: [&str; 3] = ["x-envoy-external-address", "x-envoy-internal", "x-request-id"];

impl<'s> Source<'s> {
    /// The source of a request, or of its end.
    pub fn new(stream: &'s dyn Stream) -> Self {
        Self { stream, client: OnceCell::new(), ticket: None }
    }

    /// Sets the ticket of the stream, where no metadata has it, and the namespace of the filter's metadata.
    pub fn with_ticket(self, ticket: Option<&'s str>, namespace: &'s str) -> Self {
        Self { ticket: ticket.map(|text| TicketMetadata { text, namespace }), ..self }
    }

    /// The client's address; none if it is not an IP address.
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
        let key = match name {
            "request_headers" | "query_parameters" | "metadata" => own.required("descriptor_key", problems),
            "header_value_match" => own.text_or("descriptor_key", "header_match"),
            "query_parameter_value_match" => own.text_or("descriptor_key", "query_match"),
            _ => own.text_or("descriptor_key", name),
        };
        let value = || own.required("descriptor_value", problems);
        let expect = || own.bool_or("expect_match", true);
        let mut skip_if_absent = own.bool("skip_if_absent");
        let reads = match name {
            "source_cluster" => match &envoy.source_cluster {
                Some(value) => Reads::Constant(value.clone()),
                None => {
                    problems.add(
                        &own.path,
                        "is the cluster of Envoy's node, which is not known here; set the variable TIDEGATE_SOURCE_CLUSTER \
                         of Envoy, or `tidegate: {source_cluster: …}` in a configuration as JSON",
                    );
                    return None;
                }
            },
            "destination_cluster" => Reads::Cluster,
            "request_headers" => Reads::Header(own.required("header_name", problems).to_ascii_lowercase()),
            "query_parameters" => Reads::QueryParameter(own.required("query_parameter_name", problems)),
            "remote_address" => Reads::Address,
            "masked_remote_address" => Reads::Network(MaskLengths::read(own, problems)),
            "remote_address_match" => {
                let value = literal(&value(), &own.path_of("descriptor_value"), problems);
                let matcher = AddressMatch::read(own, problems);
                Reads::Match(value?, Matcher::Address(matcher))
            }
            "generic_key" => Reads::Constant(value()),
            "header_value_match" => {
                let headers = own.nodes("headers");
                let matchers = headers.filter_map(|node| HeaderMatch::read(node, envoy, problems));
                Reads::Match(value(), Matcher::Headers(expect(), matchers.collect()))
            }
            "query_parameter_value_match" => {
                let parameters = own.nodes("query_parameters");
                let matchers = parameters.filter_map(|node| QueryMatch::read(node, problems));
                Reads::Match(value(), Matcher::Query(expect(), matchers.collect()))
            }
            _ => {
                let metadata = Metadata::read(own, problems)?;
                skip_if_absent &= metadata.default.is_empty();
                Reads::Metadata(metadata)
            }
        };
        Some(Self { key, reads, skip_if_absent })
    }

    /// The entry that it can add to a descriptor of a filter with metadata in this namespace.
    pub(crate) fn possible(&self, namespace: &str) -> PossibleEntry {
        let value = match &self.reads {
            Reads::Constant(value) if value.is_empty() => Sent::Text("cluster of Envoy's node".to_owned()),
            Reads::Constant(value) | Reads::Match(value, _) => Sent::Exact(value.clone()),
            Reads::Cluster => Sent::Cluster,
            Reads::Header(name) => Sent::Text(format!("header {name}")),
            Reads::QueryParameter(name) => Sent::Text(format!("query parameter {name}")),
            Reads::Address => Sent::Address,
            Reads::Network(_) => Sent::Network,
            Reads::Metadata(metadata) if metadata.is_ticket(namespace) => Sent::Ticket,
            Reads::Metadata(Metadata { namespace, name, .. }) => {
                Sent::Text(format!("metadata {namespace}:{name}"))
            }
        };
        PossibleEntry { key: self.key.clone(), value, may_be_left_out: self.skip_if_absent }
    }

    /// Whether its entry is unknown without Envoy: other filters write dynamic metadata, the cluster may be chosen later, and Envoy itself
    /// sets some headers.
    pub(crate) fn is_unknown(&self, has_cluster: bool, namespace: &str) -> bool {
        match &self.reads {
            Reads::Metadata(metadata) => {
                metadata.source != MetadataSource::Route && !metadata.is_ticket(namespace)
            }
            Reads::Cluster => !has_cluster,
            Reads::Header(name) => OF_ENVOY.contains(&&**name),
            Reads::Match(_, Matcher::Headers(_, matchers)) => {
                matchers.iter().any(|matcher| OF_ENVOY.contains(&&*matcher.name))
            }
            _ => false,
        }
    }

    /// The value of the entry for a stream; none if there is none.
    pub(crate) fn value<'s>(&'s self, source: &Source<'s>) -> Option<Cow<'s, [u8]>> {
        match &self.reads {
            Reads::Constant(value) => Some(Cow::Borrowed(value.as_bytes())),
            Reads::Cluster => source.stream.cluster().map(Cow::Borrowed),
            Reads::Header(name) => source.stream.header(Headers::Request, name, 0).0.map(Cow::Borrowed),
            Reads::QueryParameter(name) => query::first(source.path(), name),
            Reads::Address => source.client().map(|client| Cow::Borrowed(client.text.as_bytes())),
            Reads::Network(lengths) => {
                let network = source.client().and_then(|client| lengths.network_of(client.address));
                network.map(|network| Cow::Owned(network.to_string().into_bytes()))
            }
            Reads::Match(value, matcher) => {
                matcher.matches(source).then_some(Cow::Borrowed(value.as_bytes()))
            }
            Reads::Metadata(metadata) => metadata.text(source).map(Cow::Borrowed),
        }
    }
}

impl Matcher {
    fn matches(&self, source: &Source<'_>) -> bool {
        match self {
            Self::Address(matcher) => source.client().is_some_and(|client| matcher.matches(client.address)),
            Self::Headers(expect, matchers) => {
                matchers.iter().all(|matcher| matcher.matches(source.stream)) == *expect
            }
            Self::Query(expect, matchers) => {
                let path = source.path();
                matchers.iter().all(|matcher| matcher.matches(path)) == *expect
            }
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
        Some(Self { source, namespace, name, default: node.text("default_value").to_owned() })
    }

    /// Whether it reads the ticket of a filter with metadata in this namespace.
    fn is_ticket(&self, namespace: &str) -> bool {
        self.source == MetadataSource::Dynamic && self.namespace == namespace && self.name == TICKET_KEY
    }

    fn text<'s>(&'s self, source: &Source<'s>) -> Option<&'s [u8]> {
        let ticket = source.ticket.filter(|ticket| self.is_ticket(ticket.namespace));
        let ticket = ticket.map(|ticket| ticket.text.as_bytes());
        let text = || source.stream.metadata_text(self.source, &self.namespace, &self.name);
        let text = ticket.or_else(text).unwrap_or_default();
        Some(if text.is_empty() { self.default.as_bytes() } else { text }).filter(|text| !text.is_empty())
    }
}
