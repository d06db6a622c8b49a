//! A door for the fuzzers.

use super::{call_headers::call_headers, outcome::Outcome};
use crate::http2::client::{Connection, Finished};

/// What a client makes of all that its server sends after its settings, read in pieces of so many bytes: the ends of its
/// calls, whose order is nobody's promise, and how the connection stands or failed.
pub fn http2_client(sent: &[u8], piece: usize) -> (Vec<String>, String) {
    /// A frame of settings that says nothing: all are as the protocol has them.
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let mut connection = Connection::new(call_headers("fuzz", None));
    let (mut finished, mut broken) = (Vec::new(), None);
    connection.read(SETTINGS, &mut finished).expect("empty settings are settings");
    (0..4).for_each(|number| connection.start(b"x", number));
    for bytes in sent.chunks(piece) {
        if let Err(error) = connection.read(bytes, &mut finished) {
            broken = Some(error.to_string());
            break;
        }
        connection.wrote(connection.unwritten().len());
    }
    let stands = broken.unwrap_or_else(|| format!("{} under way", connection.in_flight()));
    let mut ends: Vec<String> = finished
        .into_iter()
        .map(|Finished { token, end }| format!("{token}: {:?}", Outcome::from(end)))
        .collect();
    ends.sort_unstable();
    (ends, stands)
}
