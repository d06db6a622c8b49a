//! The client half of HTTP/2 (RFC 9113), for requests whose body is known when they start.
//!
//! Does no IO: [`Connection`] turns bytes read into finished requests, and requests into bytes to write. The header block
//! of a request is encoded once. Responses are decoded in full and handed to a [`Response`], field by field.

mod connection;
mod request_encoder;

pub(crate) use self::{
    connection::{BODY_MAX, Connection, Finished, Response, StreamEnd, WindowTooSmall},
    request_encoder::RequestEncoder,
};
