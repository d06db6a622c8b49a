//! The response to a call, as the connection receives it.

use tidegate_envoy_config::percent_decoded;
use tidegate_http2::{client, grpc::PREFIX_BYTES};

/// Bytes of the largest response that is accepted.
const RESPONSE_MAX: usize = 4 << 20;
/// The gRPC status of methods that a server does not have.
const UNIMPLEMENTED: u32 = 12;

/// The response to one call, as received so far.
#[derive(Default)]
pub(super) struct Reply {
    http_status: Option<u16>,
    grpc_status: Option<u32>,
    grpc_message: String,
    body: Vec<u8>,
    is_too_large: bool,
}

impl client::Response for Reply {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let number = || str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        match name {
            b":status" => self.http_status = number().and_then(|status| u16::try_from(status).ok()),
            // A status that is not a number is UNKNOWN by the gRPC protocol, and never OK.
            b"grpc-status" => self.grpc_status = Some(number().unwrap_or(2)),
            b"grpc-message" => {
                self.grpc_message = String::from_utf8_lossy(&percent_decoded(value)).into_owned();
            }
            _ => {}
        }
    }

    fn data(&mut self, piece: &[u8]) {
        self.is_too_large |= self.body.len() + piece.len() > RESPONSE_MAX;
        if !self.is_too_large {
            self.body.extend_from_slice(piece);
        }
    }
}

impl Reply {
    /// The message; the error is why there is none.
    pub(super) fn message(&self) -> Result<&[u8], String> {
        match (self.grpc_status, self.http_status) {
            (Some(0), _) => {}
            (Some(UNIMPLEMENTED), _) => {
                return Err("the server grants no leases there; start it with --leases".to_owned());
            }
            (Some(status), _) => return Err(format!("gRPC status {status}: {}", self.grpc_message)),
            (None, Some(status)) if status != 200 => return Err(format!("HTTP status {status}")),
            (None, _) => return Err("a response without a gRPC status".to_owned()),
        }
        match self.body.split_first_chunk::<PREFIX_BYTES>() {
            Some((&[0, l0, l1, l2, l3], message))
                if !self.is_too_large && message.len() == u32::from_be_bytes([l0, l1, l2, l3]) as usize =>
            {
                Ok(message)
            }
            _ => Err("a response that is not one message".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http2::client::Response as _;

    #[test]
    fn the_status_of_a_call_that_failed_is_readable() {
        let mut reply = Reply::default();
        reply.field(b"grpc-status", b"16");
        reply.field(b"grpc-message", b"a%20token, 5%, \xe2%82%ac%zz%");
        let expected = "gRPC status 16: a token, 5%, \u{20ac}%zz%";
        assert_eq!(reply.message(), Err(expected.to_owned()));
    }
}
