//! Fuzz bridge of the load generator's HTTP/2 client.

use crate::{call_headers::call_headers, outcome::Outcome};
use tidegate_http2::client::{Connection, Finished};

/// Feeds a client the bytes that its server sends after its SETTINGS, in reads of `piece` bytes. Returns the outcomes of the
/// calls, sorted, and the state of the connection or its error.
pub fn http2_client(sent: &[u8], piece: usize) -> (Vec<String>, String) {
    /// An empty SETTINGS frame.
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
