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

    pub(in crate::api) fn code(&self) -> Code {
        self.code
    }

    /// As a message.
    pub(in crate::api) fn to_message(&self) -> pb::Error {
        let Self { code, message, fields } = self.clone();
        let code = status_name(code as u32).unwrap_or("UNKNOWN").to_owned();
        pb::Error { code, message, fields }
    }

    /// As the status of an HTTP response.
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
        let code = match denied {
            Denied::Unauthenticated => Code::Unauthenticated,
            Denied::Role { .. } | Denied::Reach(_) => Code::PermissionDenied,
            Denied::TooMany => Code::ResourceExhausted,
        };
        Self::new(code, denied.to_string())
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let details = error.to_message().encode_to_vec();
        Self::with_details(error.code, error.message, details.into())
    }
}
