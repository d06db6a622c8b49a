//! Fuzz bridge: the body of `POST /json`.

use super::json;

/// The message of a body, encoded as protobuf, and its text in JSON; none if the body is refused.
pub fn rate_limit_json(body: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    json::reencoded(body)
}
