//! What an Envoy configuration sends to a rate limit service.
//!
//! A configuration is read from JSON or protobuf by the tables of `schema` into a tree of checked values ([`Node`]); [`Policy`] is an entry
//! of `rate_limits`, and [`draft`] makes its descriptor for a request ([`Stream`]).
//!
//! Invariant: a descriptor is the same, byte for byte, as Envoy's filter makes. What only Envoy can evaluate is refused when the
//! configuration is read, with the path of the field ([`Problems`]).

mod actions;
pub mod check;
pub mod configuration;
mod draft;
pub mod explain;
mod files;
mod key_source;
mod node;
mod part;
mod policy;
mod schema;
mod selection;
mod stream;

pub use actions::{METADATA_NAMESPACE, PossibleEntry, Sent, Source, percent_decoded};
pub use draft::{Draft, Texts, draft};
pub use files::Files;
pub use key_source::KeySource;
pub use node::{Node, Problems, Value, from_json, literal};
pub use part::Part;
pub use policy::Policy;
pub use schema::{Field, Kind, Message, RATE_LIMIT_FILTER, RATE_LIMIT_PER_ROUTE};
pub use selection::{LeftOut, OfRoute, Selection};
pub use stream::{Envoy, Headers, MetadataSource, Stream};
