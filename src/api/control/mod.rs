//! `tidegate.v1.Control`: operations on a running server, over gRPC and as JSON over HTTP.
//!
//! Both protocols pass [`ControlApi::admit`] first, then call the same handler with the same message.

mod audit;
mod caller;
mod convert;
mod counters;
mod error;
#[cfg(feature = "fuzzing")]
pub(in crate::api) mod fuzz_bridge;
mod grpc;
mod json;
mod leases;
mod live;
mod log_level;
mod method;
#[cfg(test)]
mod openapi;
mod overlays;
mod quotas;
mod rules;
mod status;
mod unlimited;
mod what_if;

pub use caller::ControlApi;
pub(in crate::api) use caller::{Admitted, Recheck};
pub(in crate::api) use error::{Error, code_of};
pub(in crate::api) use grpc::GrpcControl;
pub(crate) use json::{OutOfRange, to_json_with_lists, try_json};
pub(in crate::api) use json::{call, tail, to_json};
pub(crate) use method::{Method, Named};

use tidegate_operations::control::Role;

/// The method whose response is a stream.
pub(in crate::api) const TAIL: &str = "Tail";

/// Expands `$macro` with every unary method: its name, its handler, its messages, the role that it needs.
macro_rules! for_each_method {
    ($macro:ident) => {
        $macro! {
            Status status StatusRequest StatusResponse Read;
            History history HistoryRequest HistoryResponse Read;
            ListRules list_rules ListRulesRequest ListRulesResponse Read;
            Explain explain ExplainRequest ExplainResponse Read;
            Peek peek PeekRequest PeekResponse Read;
            ListCounters list_counters ListCountersRequest ListCountersResponse Read;
            ListLeases list_leases ListLeasesRequest ListLeasesResponse Read;
            ListQuotas list_quotas ListQuotasRequest ListQuotasResponse Read;
            ListUnlimited list_unlimited ListUnlimitedRequest ListUnlimitedResponse Read;
            Reset reset ResetRequest ResetResponse Operate;
            GiveBack give_back GiveBackRequest GiveBackResponse Operate;
            TopKeys top_keys TopKeysRequest TopKeysResponse Read;
            ListOverrides list_overrides ListOverridesRequest ListOverridesResponse Read;
            SetOverride set_override SetOverrideRequest SetOverrideResponse Operate;
            DeleteOverride delete_override DeleteOverrideRequest DeleteOverrideResponse Operate;
            ListBlocks list_blocks ListBlocksRequest ListBlocksResponse Read;
            SetBlock set_block SetBlockRequest SetBlockResponse Operate;
            DeleteBlock delete_block DeleteBlockRequest DeleteBlockResponse Operate;
            SetLogLevel set_log_level SetLogLevelRequest SetLogLevelResponse Operate;
            ListAudit list_audit ListAuditRequest ListAuditResponse Read;
            RecordDecisions record_decisions RecordDecisionsRequest RecordDecisionsResponse Read;
            WhatIf what_if WhatIfRequest WhatIfResponse Read;
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
                TAIL => Some(Role::Read),
                _ => None,
            }
        }
    };
}
for_each_method!(role_of);
