//! Numbers of the gRPC protocol, for servers and clients.

/// Length of the prefix of a message: a compression flag and the message length in four bytes.
pub const PREFIX_BYTES: usize = 5;

/// The names of the status codes, by their numbers.
const STATUS_NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The name of a status code. None if the number is not a code.
pub fn status_name(code: u32) -> Option<&'static str> {
    STATUS_NAMES.get(code as usize).copied()
}
