//! The messages of Envoy's configuration that are read, by field.
//!
//! One table serves both forms in which Envoy hands a configuration over: the bytes of the message, and JSON.

/// A message: its fields.
pub struct Message(pub &'static [Field]);

/// A field of a message.
pub struct Field {
    /// The number by which the wire has it.
    pub number: u32,
    /// The name in the definition, in `snake_case`; JSON may also have it in `lowerCamelCase`.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// Whether it is a list.
    pub is_repeated: bool,
}

/// The type of a field.
#[derive(Clone, Copy)]
pub enum Kind {
    /// `string`.
    Text,
    /// `bool`.
    Bool,
    /// `uint32`, `uint64`.
    Unsigned,
    /// `int32`, `int64`.
    Signed,
    /// An enumeration: names by number.
    Enum(&'static [(u32, &'static str)]),
    /// A message.
    Message(&'static Message),
    /// A wrapper message of one value, which JSON writes as that value.
    Wrapped(&'static Kind),
    /// `google.protobuf.Duration`, which JSON writes as seconds: `0.5s`.
    Duration,
    /// Known, but not read: only its presence matters.
    Opaque,
}

const fn field(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, is_repeated: false }
}

const fn repeated(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, is_repeated: true }
}

use Kind::{Bool, Duration, Enum, Message as M, Opaque, Signed, Text, Unsigned, Wrapped};

/// `envoy.extensions.filters.http.ratelimit.v3.RateLimit`.
pub static RATE_LIMIT_FILTER: Message = Message(&[
    field(1, "domain", Text),
    field(2, "stage", Unsigned),
    field(3, "request_type", Text),
    field(4, "timeout", Duration),
    field(5, "failure_mode_deny", Bool),
    field(6, "rate_limited_as_resource_exhausted", Bool),
    field(7, "rate_limit_service", Opaque),
    field(8, "enable_x_ratelimit_headers", Enum(&[(0, "OFF"), (1, "DRAFT_VERSION_03")])),
    field(9, "disable_x_envoy_ratelimited_header", Bool),
    field(10, "rate_limited_status", M(&HTTP_STATUS)),
    repeated(11, "response_headers_to_add", M(&HEADER_VALUE_OPTION)),
    field(12, "status_on_error", M(&HTTP_STATUS)),
    field(13, "stat_prefix", Text),
    field(14, "filter_enabled", M(&RUNTIME_FRACTIONAL_PERCENT)),
    field(15, "filter_enforced", M(&RUNTIME_FRACTIONAL_PERCENT)),
    field(16, "failure_mode_deny_percent", M(&RUNTIME_FRACTIONAL_PERCENT)),
    repeated(17, "rate_limits", M(&RATE_LIMIT)),
    field(18, "metadata_namespace", Text),
    field(19, "enable_retry_after_header", Bool),
]);

/// `envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute`.
pub static RATE_LIMIT_PER_ROUTE: Message = Message(&[
    field(1, "vh_rate_limits", Enum(&[(0, "OVERRIDE"), (1, "INCLUDE"), (2, "IGNORE")])),
    field(
        2,
        "override_option",
        Enum(&[(0, "DEFAULT"), (1, "OVERRIDE_POLICY"), (2, "INCLUDE_POLICY"), (3, "IGNORE_POLICY")]),
    ),
    repeated(3, "rate_limits", M(&RATE_LIMIT)),
    field(4, "domain", Text),
]);

/// `envoy.config.route.v3.RateLimit`.
pub(crate) static RATE_LIMIT: Message = Message(&[
    field(1, "stage", Wrapped(&Unsigned)),
    field(2, "disable_key", Text),
    repeated(3, "actions", M(&ACTION)),
    field(4, "limit", M(&OVERRIDE)),
    field(5, "hits_addend", M(&HITS_ADDEND)),
    field(6, "apply_on_stream_done", Bool),
    field(7, "x_ratelimit_option", Enum(&[(0, "UNSPECIFIED"), (1, "OFF"), (2, "DRAFT_VERSION_03")])),
]);

static ACTION: Message = Message(&[
    field(1, "source_cluster", M(&EMPTY)),
    field(2, "destination_cluster", M(&EMPTY)),
    field(3, "request_headers", M(&REQUEST_HEADERS)),
    field(4, "remote_address", M(&EMPTY)),
    field(5, "generic_key", M(&GENERIC_KEY)),
    field(6, "header_value_match", M(&HEADER_VALUE_MATCH)),
    field(7, "dynamic_metadata", Opaque),
    field(8, "metadata", M(&METADATA)),
    field(9, "extension", Opaque),
    field(10, "masked_remote_address", M(&MASKED_REMOTE_ADDRESS)),
    field(11, "query_parameter_value_match", M(&QUERY_PARAMETER_VALUE_MATCH)),
    field(12, "query_parameters", M(&QUERY_PARAMETERS)),
    field(13, "remote_address_match", M(&REMOTE_ADDRESS_MATCH)),
]);

static EMPTY: Message = Message(&[]);

static REQUEST_HEADERS: Message = Message(&[
    field(1, "header_name", Text),
    field(2, "descriptor_key", Text),
    field(3, "skip_if_absent", Bool),
]);

static QUERY_PARAMETERS: Message = Message(&[
    field(1, "query_parameter_name", Text),
    field(2, "descriptor_key", Text),
    field(3, "skip_if_absent", Bool),
]);

static MASKED_REMOTE_ADDRESS: Message = Message(&[
    field(1, "v4_prefix_mask_len", Wrapped(&Unsigned)),
    field(2, "v6_prefix_mask_len", Wrapped(&Unsigned)),
]);

static GENERIC_KEY: Message = Message(&[
    field(1, "descriptor_value", Text),
    field(2, "descriptor_key", Text),
    field(3, "default_value", Text),
]);

static HEADER_VALUE_MATCH: Message = Message(&[
    field(1, "descriptor_value", Text),
    field(2, "expect_match", Wrapped(&Bool)),
    repeated(3, "headers", M(&HEADER_MATCHER)),
    field(4, "descriptor_key", Text),
    field(5, "default_value", Text),
]);

static QUERY_PARAMETER_VALUE_MATCH: Message = Message(&[
    field(1, "descriptor_value", Text),
    field(2, "expect_match", Wrapped(&Bool)),
    repeated(3, "query_parameters", M(&QUERY_PARAMETER_MATCHER)),
    field(4, "descriptor_key", Text),
    field(5, "default_value", Text),
]);

static METADATA: Message = Message(&[
    field(1, "descriptor_key", Text),
    field(2, "metadata_key", M(&METADATA_KEY)),
    field(3, "default_value", Text),
    field(
        4,
        "source",
        Enum(&[(0, "DYNAMIC"), (1, "ROUTE_ENTRY"), (2, "CLUSTER_ENTRY"), (3, "CLUSTER_LOCALITY_ENTRY")]),
    ),
    field(5, "skip_if_absent", Bool),
]);

static METADATA_KEY: Message = Message(&[field(1, "key", Text), repeated(2, "path", M(&PATH_SEGMENT))]);

static PATH_SEGMENT: Message = Message(&[field(1, "key", Text), field(2, "index", Unsigned)]);

static REMOTE_ADDRESS_MATCH: Message = Message(&[
    field(1, "descriptor_value", Text),
    field(2, "descriptor_key", Text),
    field(3, "default_value", Text),
    field(4, "address_matcher", M(&ADDRESS_MATCHER)),
]);

static ADDRESS_MATCHER: Message =
    Message(&[repeated(1, "ranges", M(&CIDR_RANGE)), field(2, "invert_match", Bool)]);

static CIDR_RANGE: Message =
    Message(&[field(1, "address_prefix", Text), field(2, "prefix_len", Wrapped(&Unsigned))]);

static OVERRIDE: Message =
    Message(&[field(1, "dynamic_metadata", Opaque), field(2, "rate_limit", M(&STATIC_OVERRIDE))]);

static STATIC_OVERRIDE: Message = Message(&[
    field(1, "requests_per_unit", Unsigned),
    field(
        2,
        "unit",
        Enum(&[
            (0, "UNKNOWN"),
            (1, "SECOND"),
            (2, "MINUTE"),
            (3, "HOUR"),
            (4, "DAY"),
            (5, "MONTH"),
            (6, "YEAR"),
        ]),
    ),
]);

static HITS_ADDEND: Message = Message(&[
    field(1, "number", Wrapped(&Unsigned)),
    field(2, "format", Text),
    field(3, "is_negative_hits", Bool),
]);

/// `envoy.config.route.v3.HeaderMatcher`.
pub(crate) static HEADER_MATCHER: Message = Message(&[
    field(1, "name", Text),
    field(4, "exact_match", Text),
    field(6, "range_match", M(&RANGE)),
    field(7, "present_match", Bool),
    field(8, "invert_match", Bool),
    field(9, "prefix_match", Text),
    field(10, "suffix_match", Text),
    field(11, "safe_regex_match", M(&REGEX_MATCHER)),
    field(12, "contains_match", Text),
    field(13, "string_match", M(&STRING_MATCHER)),
    field(14, "treat_missing_header_as_empty", Bool),
]);

static RANGE: Message = Message(&[field(1, "start", Signed), field(2, "end", Signed)]);

/// `envoy.config.route.v3.QueryParameterMatcher`.
pub(crate) static QUERY_PARAMETER_MATCHER: Message = Message(&[
    field(1, "name", Text),
    field(5, "string_match", M(&STRING_MATCHER)),
    field(6, "present_match", Bool),
]);

/// `envoy.type.matcher.v3.StringMatcher`.
static STRING_MATCHER: Message = Message(&[
    field(1, "exact", Text),
    field(2, "prefix", Text),
    field(3, "suffix", Text),
    field(5, "safe_regex", M(&REGEX_MATCHER)),
    field(6, "ignore_case", Bool),
    field(7, "contains", Text),
    field(8, "custom", Opaque),
]);

pub(crate) static REGEX_MATCHER: Message =
    Message(&[field(1, "google_re2", Opaque), field(2, "regex", Text)]);

/// `envoy.config.core.v3.HeaderValueOption`.
static HEADER_VALUE_OPTION: Message = Message(&[
    field(1, "header", M(&HEADER_VALUE)),
    field(2, "append", Wrapped(&Bool)),
    field(
        3,
        "append_action",
        Enum(&[
            (0, "APPEND_IF_EXISTS_OR_ADD"),
            (1, "ADD_IF_ABSENT"),
            (2, "OVERWRITE_IF_EXISTS_OR_ADD"),
            (3, "OVERWRITE_IF_EXISTS"),
        ]),
    ),
    field(4, "keep_empty_value", Bool),
]);

static HEADER_VALUE: Message =
    Message(&[field(1, "key", Text), field(2, "value", Text), field(3, "raw_value", Opaque)]);

/// `envoy.config.core.v3.RuntimeFractionalPercent`.
static RUNTIME_FRACTIONAL_PERCENT: Message =
    Message(&[field(1, "default_value", M(&FRACTIONAL_PERCENT)), field(2, "runtime_key", Text)]);

static FRACTIONAL_PERCENT: Message = Message(&[
    field(1, "numerator", Unsigned),
    field(2, "denominator", Enum(&[(0, "HUNDRED"), (1, "TEN_THOUSAND"), (2, "MILLION")])),
]);

static HTTP_STATUS: Message = Message(&[field(1, "code", Enum(STATUS_CODES))]);

/// `envoy.type.v3.StatusCode`.
const STATUS_CODES: &[(u32, &str)] = &[
    (0, "Empty"),
    (100, "Continue"),
    (200, "OK"),
    (201, "Created"),
    (202, "Accepted"),
    (204, "NoContent"),
    (301, "MovedPermanently"),
    (302, "Found"),
    (303, "SeeOther"),
    (304, "NotModified"),
    (307, "TemporaryRedirect"),
    (308, "PermanentRedirect"),
    (400, "BadRequest"),
    (401, "Unauthorized"),
    (402, "PaymentRequired"),
    (403, "Forbidden"),
    (404, "NotFound"),
    (405, "MethodNotAllowed"),
    (406, "NotAcceptable"),
    (407, "ProxyAuthenticationRequired"),
    (408, "RequestTimeout"),
    (409, "Conflict"),
    (410, "Gone"),
    (411, "LengthRequired"),
    (412, "PreconditionFailed"),
    (413, "PayloadTooLarge"),
    (414, "URITooLong"),
    (415, "UnsupportedMediaType"),
    (416, "RangeNotSatisfiable"),
    (417, "ExpectationFailed"),
    (421, "MisdirectedRequest"),
    (422, "UnprocessableEntity"),
    (423, "Locked"),
    (424, "FailedDependency"),
    (426, "UpgradeRequired"),
    (428, "PreconditionRequired"),
    (429, "TooManyRequests"),
    (431, "RequestHeaderFieldsTooLarge"),
    (500, "InternalServerError"),
    (501, "NotImplemented"),
    (502, "BadGateway"),
    (503, "ServiceUnavailable"),
    (504, "GatewayTimeout"),
    (505, "HTTPVersionNotSupported"),
    (506, "VariantAlsoNegotiates"),
    (507, "InsufficientStorage"),
    (508, "LoopDetected"),
    (510, "NotExtended"),
    (511, "NetworkAuthenticationRequired"),
];
