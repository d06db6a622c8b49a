//! The effects of a configuration on one HTTP request: its route, its descriptors, and the response.

mod address;
mod entries;
mod filter;
mod hosts;
mod matching;
mod request;
mod response;

pub use entries::{Explained, explain};
pub use filter::{EntryHits, ExplainedEntry, ExplainedFilter, Made};
pub use request::{HttpRequest, RequestError};
pub use response::Responses;
