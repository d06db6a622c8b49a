//! Fuzz bridge: bodies of the control API.

use super::{for_each_method, json};
use crate::api::pb::control as messages;

macro_rules! bridge {
    ($($name:ident $handler:ident $request:ident $response:ident $role:ident;)*) => {
        /// The methods with a body that is one message.
        pub const CONTROL_METHODS: &[&str] = &[$(stringify!($name),)*];

        /// The request of a method, as the server reads it, written again; none if it is refused.
        pub fn control_json(method: &str, body: &[u8]) -> Option<Vec<u8>> {
            match method {
                $(stringify!($name) => {
                    let request = json::decode::<messages::$request>(body).ok()?;
                    json::try_json(&request).ok()
                })*
                _ => None,
            }
        }
    };
}
for_each_method!(bridge);
