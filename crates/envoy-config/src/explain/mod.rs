//! The effects of a configuration on one HTTP request: its route, its descriptors, and the response.

mod address;
mod entries;
mod hosts;
mod matching;
mod request;
mod response;

pub use entries::{Explained, ExplainedEntry, ExplainedFilter, Made, explain};
pub use request::{HttpRequest, RequestError};
pub use response::Responses;
