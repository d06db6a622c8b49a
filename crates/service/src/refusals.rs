//! Reasons for refusals of requests without a decision, and for refusals by the HTTP port before a route is reached.

use crate::NotReady;
use tidegate_core::limit::RequestError;
use tidegate_counts::labels;

labels! {
    /// The reason why a request was refused.
    pub enum Refusal {
        /// INVALID_ARGUMENT: the domain is empty.
        EmptyDomain = "empty_domain",
        /// INVALID_ARGUMENT: the domain is too long.
        LongDomain = "long_domain",
        /// INVALID_ARGUMENT: there is no descriptor.
        NoDescriptors = "no_descriptors",
        /// INVALID_ARGUMENT: there are too many descriptors.
        ManyDescriptors = "many_descriptors",
        /// INVALID_ARGUMENT: a descriptor has too many entries.
        ManyEntries = "many_entries",
        /// INVALID_ARGUMENT: an entry has no key.
        EmptyKey = "empty_key",
        /// INVALID_ARGUMENT: the request's own limit has an unknown unit.
        UnknownUnit = "unknown_unit",
        /// INVALID_ARGUMENT: `grpc-timeout` is malformed.
        MalformedTimeout = "malformed_timeout",
        /// INVALID_ARGUMENT: the precision is unknown.
        UnknownPrecision = "unknown_precision",
        /// OUT_OF_RANGE: the message is too long.
        LongMessage = "long_message",
        /// INTERNAL or UNIMPLEMENTED by tonic: the message cannot be decoded, or its compression is not supported.
        UndecodableMessage = "undecodable_message",
        /// UNIMPLEMENTED: there is no such method.
        UnknownMethod = "unknown_method",
        /// HTTP status 415 or 405: not a gRPC call.
        NotGrpc = "not_grpc",
        /// RESOURCE_EXHAUSTED: too many open streaming calls, of another kind than RLQS.
        StreamingCalls = "streaming_calls",
        /// UNAVAILABLE: the counters are being restored.
        NotReady = "not_ready",
        /// UNAVAILABLE: there are no rules yet.
        NoRules = "no_rules",
        /// The HTTP port refused it before its route: see [`HttpRefusal`].
        HttpPort = "http_port",
        /// RLQS, RESOURCE_EXHAUSTED: too many open streams.
        QuotaStreams = "quota_streams",
        /// RLQS, FAILED_PRECONDITION: the domain has no quotas.
        QuotaDomain = "quota_domain",
        /// RLQS, INVALID_ARGUMENT: a message of reports is malformed.
        QuotaReports = "quota_reports",
        /// RLQS, RESOURCE_EXHAUSTED: the peer reports too much in too short a time.
        QuotaPace = "quota_pace",
        /// RLQS, RESOURCE_EXHAUSTED: a message of reports takes too much memory.
        QuotaMemory = "quota_memory",
        /// RLQS, DEADLINE_EXCEEDED: the first message did not arrive in time.
        QuotaFirstMessage = "quota_first_message",
        /// RLQS, CANCELLED: assignments were not sent in time.
        QuotaStuck = "quota_stuck",
    }
}

labels! {
    /// The reason why the HTTP port refused a request, or closed a connection.
    pub enum HttpRefusal {
        /// 401: no valid token.
        Unauthorized = "unauthorized",
        /// 404: no such path.
        NotFound = "not_found",
        /// 405: the path has other methods.
        Method = "method",
        /// 431: the head is too long.
        HeaderBytes = "header_bytes",
        /// 400: the head is malformed.
        MalformedHead = "malformed_head",
        /// The head was not complete in time.
        HeaderTimeout = "header_timeout",
        /// 413: the body is too long.
        BodyBytes = "body_bytes",
        /// 400: the body is malformed.
        MalformedBody = "malformed_body",
        /// 408: the body was not complete in time.
        BodyTimeout = "body_timeout",
        /// The client did not read the response in time.
        WriteTimeout = "write_timeout",
        /// The connection was closed when it was accepted: all others are busy.
        Connections = "max_connections",
        /// 403, 415, 421: a web page of another origin may have sent it.
        Origin = "origin",
        /// 503: the memory for incomplete requests is used up.
        BodyMemory = "body_memory",
    }
}

impl From<&RequestError> for Refusal {
    fn from(error: &RequestError) -> Self {
        match error {
            RequestError::EmptyDomain => Self::EmptyDomain,
            RequestError::LongDomain { .. } => Self::LongDomain,
            RequestError::NoDescriptors => Self::NoDescriptors,
            RequestError::ManyDescriptors { .. } => Self::ManyDescriptors,
            RequestError::ManyEntries { .. } => Self::ManyEntries,
            RequestError::EmptyKey { .. } => Self::EmptyKey,
            RequestError::UnknownUnit { .. } => Self::UnknownUnit,
        }
    }
}

impl From<&NotReady> for Refusal {
    fn from(error: &NotReady) -> Self {
        match error {
            NotReady::Restoring | NotReady::Store(_) => Self::NotReady,
            NotReady::NoRules => Self::NoRules,
        }
    }
}
