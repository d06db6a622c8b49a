//! As much of an HTTP/2 client (RFC 9113) as unary gRPC calls need, light enough to saturate any server.
//!
//! Nothing here does IO: [`Connection`] turns bytes read into finished calls, and calls into bytes to write. The
//! header block of a call is made once; what comes back is decoded in full, since an answer that only looks like
//! an OK must not count as one.

mod answer;
mod connection;
mod request_headers;

pub(super) use self::{
    answer::{Failure, Outcome},
    connection::{Connection, Finished, MESSAGE_MAX, WindowTooSmall},
    request_headers::RequestHeaders,
};
