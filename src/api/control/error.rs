//! Errors of the control API: a status in gRPC, a status and a JSON object in HTTP.

use crate::api::pb::control as pb;
use http::StatusCode;
use prost::Message as _;
use tidegate_http2::grpc::status_name;
use tidegate_operations::control::Denied;
use tonic::{Code, Status};

/// Reason why a call failed.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::api) struct Error {
    code: Code,
    message: String,
    fields: Vec<pb::FieldViolation>,
}

pub(super) type Result<T> = std::result::Result<T, Error>;

/// Runs long work on a thread of its own, so that other calls are not delayed. `failed` is the message if it panics.
pub(super) async fn on_thread<T: Send + 'static>(
    failed: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::new(Code::Internal, failed))
}

/// The status of a caller who is not admitted.
pub(in crate::api) fn code_of(denied: &Denied) -> Code {
    match denied {
        Denied::Unauthenticated => Code::Unauthenticated,
        Denied::Role { .. } | Denied::Reach(_) => Code::PermissionDenied,
        Denied::TooMany => Code::ResourceExhausted,
    }
}

impl Error {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), fields: Vec::new() }
    }

    /// A field of the request is wrong.
    pub(super) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        let text = format!("{field}: {message}");
        Self { fields: vec![pb::FieldViolation { field, message }], ..Self::new(Code::InvalidArgument, text) }
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// The counters are being restored.
    pub(super) fn starting() -> Self {
        Self::new(Code::Unavailable, "starting: the counters are being restored; retry shortly")
    }

    /// The name of its code.
    pub(super) fn code_name(&self) -> &'static str {
        status_name(self.code as u32).unwrap_or("UNKNOWN")
    }

    /// The error as a message.
    pub(in crate::api) fn to_message(&self) -> pb::Error {
        let Self { message, fields, .. } = self.clone();
        pb::Error { code: self.code_name().to_owned(), message, fields }
    }

    /// The status of an HTTP response with this error.
    pub(in crate::api) fn http_status(&self) -> StatusCode {
        match self.code {
            Code::InvalidArgument | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Self {
        Self::new(code_of(&denied), denied.to_string())
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let details = error.to_message().encode_to_vec();
        Self::with_details(error.code, error.message, details.into())
    }
}
