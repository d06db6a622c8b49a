//! `tidegate.v1.Control`: operations on a running server, over gRPC and as JSON over HTTP.
//!
//! Both protocols pass [`ControlApi::admit`] first, then call the same handler with the same message.

mod caller;
mod convert;
mod counters;
mod error;
mod grpc;
mod json;
mod rules;
mod status;

pub use caller::ControlApi;
pub(in crate::api) use grpc::GrpcControl;
pub(in crate::api) use json::call;
pub(crate) use json::to_json;

use crate::control::Role;

/// Expands `$macro` with every unary method: its name, its handler, its messages, the role that it needs.
macro_rules! for_each_method {
    ($macro:ident) => {
        $macro! {
            Status status StatusRequest StatusResponse Read;
            ListRules list_rules ListRulesRequest ListRulesResponse Read;
            Explain explain ExplainRequest ExplainResponse Read;
            Peek peek PeekRequest PeekResponse Read;
            ListCounters list_counters ListCountersRequest ListCountersResponse Read;
            Reset reset ResetRequest ResetResponse Operate;
            GiveBack give_back GiveBackRequest GiveBackResponse Operate;
        }
    };
}
use for_each_method;

macro_rules! role_of {
    ($($name:ident $handler:ident $request:ident $response:ident $role:ident;)*) => {
        /// The role that a method needs; none for an unknown method.
        fn role_of(method: &str) -> Option<Role> {
            match method {
                $(stringify!($name) => Some(Role::$role),)*
                _ => None,
            }
        }
    };
}
for_each_method!(role_of);
