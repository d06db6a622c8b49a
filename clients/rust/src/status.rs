//! Statuses of failed calls: their names, their causes, and the consequences.

use std::error::Error as StdError;
use tonic::{Code as GrpcCode, ConnectError, Status as GrpcStatus, TimeoutExpired};

/// The message of a status with those of its causes, which name the transport's error.
pub(crate) fn with_causes(status: &GrpcStatus) -> String {
    let mut message = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message += if message.is_empty() { "" } else { ": " };
            message += &text;
        }
        cause = error.source();
    }
    message
}

/// Whether the channel's own timer ended the call.
pub(crate) fn is_timeout(status: &GrpcStatus) -> bool {
    any_cause(status, |error| error.is::<TimeoutExpired>())
}

/// Whether no connection could be opened.
pub(crate) fn is_refused(status: &GrpcStatus) -> bool {
    any_cause(status, |error| error.is::<ConnectError>())
}

/// Whether the server cannot have seen the call: the connection closed before it was sent, or a graceful GOAWAY excludes its stream (RFC
/// 9113, 6.8). Any other call is never repeated, since it may have been charged.
pub(crate) fn was_not_processed(status: &GrpcStatus) -> bool {
    any_cause(status, |error| {
        let is_excluded = |error: &h2::Error| {
            error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
        };
        error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
            || error.downcast_ref().is_some_and(is_excluded)
    })
}

/// The code of a failed call. tonic has the code UNKNOWN for a broken connection; a server's own UNKNOWN has no cause here.
pub(crate) fn code_of(status: &GrpcStatus) -> GrpcCode {
    match status.code() {
        GrpcCode::Unknown if status.source().is_some() => GrpcCode::Unavailable,
        code => code,
    }
}

/// Whether a code is a fault of the request, whatever the server's state. Every other code is a failure of the server, or of a proxy in
/// front of it.
pub(crate) fn is_callers_error(code: GrpcCode) -> bool {
    matches!(code, GrpcCode::InvalidArgument | GrpcCode::OutOfRange)
}

/// Whether any of the causes of a status has a property.
fn any_cause(status: &GrpcStatus, has: impl Fn(&(dyn StdError + 'static)) -> bool) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if has(error) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The name of a code as the gRPC specification has it.
pub(crate) fn name(code: GrpcCode) -> &'static str {
    match code {
        GrpcCode::Ok => "OK",
        GrpcCode::Cancelled => "CANCELLED",
        GrpcCode::Unknown => "UNKNOWN",
        GrpcCode::InvalidArgument => "INVALID_ARGUMENT",
        GrpcCode::DeadlineExceeded => "DEADLINE_EXCEEDED",
        GrpcCode::NotFound => "NOT_FOUND",
        GrpcCode::AlreadyExists => "ALREADY_EXISTS",
        GrpcCode::PermissionDenied => "PERMISSION_DENIED",
        GrpcCode::ResourceExhausted => "RESOURCE_EXHAUSTED",
        GrpcCode::FailedPrecondition => "FAILED_PRECONDITION",
        GrpcCode::Aborted => "ABORTED",
        GrpcCode::OutOfRange => "OUT_OF_RANGE",
        GrpcCode::Unimplemented => "UNIMPLEMENTED",
        GrpcCode::Internal => "INTERNAL",
        GrpcCode::Unavailable => "UNAVAILABLE",
        GrpcCode::DataLoss => "DATA_LOSS",
        GrpcCode::Unauthenticated => "UNAUTHENTICATED",
    }
}
