//! The client half of HTTP/2 (RFC 9113), for requests whose body is known at their start.
//!
//! Does no IO: [`Connection`] decodes finished requests from bytes read, and encodes requests to bytes to write. The header
//! block of a request is encoded once. Responses are decoded in full and handed to a [`Response`], field by field.

mod connection;
mod request_encoder;

pub use self::{
    connection::{BODY_MAX, Connection, Finished, Response, StreamEnd, WindowTooSmall},
    request_encoder::RequestEncoder,
};
