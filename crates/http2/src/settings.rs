//! Bounds of a connection.

use std::time::Duration;

/// Bounds of a connection. The defaults fit Envoy, which opens one connection per worker thread, with many streams, and keeps it open.
///
/// Together they bound the memory of a connection that a client can use:
/// - per request in progress, of which there are at most `streams_max`: its headers (`header_bytes_max`), up to 16 KiB of a body for the
///   fast path, and a response that waits for the client's flow-control windows;
/// - `connection_window` bytes of all other bodies that are received and not yet read. The service keeps bytes that were read: the gRPC
///   router keeps one message per request, within its own bound;
/// - one incomplete header block, one incomplete frame, and 256 KiB of responses that the client has not read, beyond those of a single
///   read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Http2Settings {
    /// Concurrent streams (MAX_CONCURRENT_STREAMS). Further streams are refused with REFUSED_STREAM, which is safe to retry.
    pub streams_max: u32,
    /// Bytes of one request's header list (MAX_HEADER_LIST_SIZE). A request with more gets HTTP status 431.
    pub header_bytes_max: u32,
    /// Flow-control window of each stream (INITIAL_WINDOW_SIZE). Bytes buffered for the fast path count as read.
    pub stream_window: u32,
    /// Flow-control window of the connection.
    pub connection_window: u32,
    /// Time from the connection's start to the end of its first whole request; preface and SETTINGS included.
    pub first_request_timeout: Duration,
    /// Silence of the client before it gets a PING.
    pub keep_alive_interval: Duration,
    /// Time to acknowledge a PING or a GOAWAY before the connection is closed.
    pub keep_alive_timeout: Duration,
    /// Time without a request before the connection is drained.
    pub idle_timeout: Duration,
    /// Age at which a connection is drained; none for no maximum. See [`Self::with_age_jitter`].
    pub age_max: Option<Duration>,
    /// Time that calls have to complete after the maximum age, before the connection is closed.
    pub age_grace: Duration,
    /// Time from a request's HEADERS to its END_STREAM, and from HEADERS to END_HEADERS. If the response starts before the request ends,
    /// the stream is bidirectional and exempt.
    pub body_timeout: Duration,
    /// Time to take a whole piece of a response. If a stream's windows delay it longer, the stream is reset. If the socket delays
    /// everything that waits for it longer, the connection is closed.
    pub write_timeout: Duration,
    /// Control frames (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA and the like) within ten seconds, beyond eight per request. A
    /// connection with more ends with ENHANCE_YOUR_CALM. The same number bounds the steps (`steps.rs`) of requests within that time, beyond
    /// one for each of their bytes.
    pub control_frames_max: u32,
    /// Streams reset by the client within ten seconds, beyond as many as had a response. A connection with more ends with
    /// ENHANCE_YOUR_CALM.
    pub resets_max: u32,
}

impl Default for Http2Settings {
    fn default() -> Self {
        Self {
            streams_max: 1024,
            header_bytes_max: 16 * 1024,
            stream_window: 256 * 1024,
            connection_window: 1024 * 1024,
            first_request_timeout: Duration::from_secs(10),
            keep_alive_interval: Duration::from_secs(60),
            keep_alive_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(3600),
            age_max: None,
            age_grace: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(20),
            control_frames_max: 10_000,
            resets_max: 10_000,
        }
    }
}

/// Reciprocal of the part by which the maximum age of a connection may differ from the setting.
const AGE_JITTER_SHARE: u32 = 10;

impl Http2Settings {
    /// The settings of one connection. Its maximum age differs by up to a tenth in either direction, in proportion to `random`, so that
    /// connections that were opened together, for example after a restart, are not drained together.
    pub fn with_age_jitter(self, random: u64) -> Self {
        let age_max = self.age_max.map(|age| {
            let jitter = age / AGE_JITTER_SHARE;
            let range = (2 * jitter).as_nanos().min(u64::MAX.into());
            let offset = (range * u128::from(random)) >> u64::BITS;
            (age - jitter).saturating_add(Duration::from_nanos(offset as u64))
        });
        Self { age_max, ..self }
    }

    /// Interval between a connection's ticks: the precision of every timeout.
    pub(super) fn tick(&self) -> Duration {
        // Shorter than the jitter, or different ages would end at the same tick.
        let age_precision = self.age_max.map_or(Duration::MAX, |age| age / AGE_JITTER_SHARE);
        let shortest = [
            age_precision,
            self.age_grace,
            self.first_request_timeout,
            self.keep_alive_interval,
            self.keep_alive_timeout,
            self.idle_timeout,
            self.body_timeout,
            self.write_timeout,
        ]
        .into_iter()
        .min()
        .unwrap_or(Duration::MAX);
        (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn age_max(age_max: Duration, random: u64) -> Option<Duration> {
        Http2Settings { age_max: Some(age_max), ..Http2Settings::default() }.with_age_jitter(random).age_max
    }

    #[test]
    fn the_jitter_spreads_ages_over_a_tenth_in_either_direction() {
        assert_eq!(age_max(MINUTE, 0), Some(MINUTE * 9 / 10));
        assert_eq!(age_max(MINUTE, u64::MAX / 2 + 1), Some(MINUTE));
        let oldest = age_max(MINUTE, u64::MAX).expect("there is a maximum");
        assert!(oldest < MINUTE * 11 / 10 && oldest > MINUTE * 11 / 10 - Duration::from_micros(1));
        assert_eq!(Http2Settings::default().with_age_jitter(7).age_max, None);
    }

    proptest::proptest! {
        #[test]
        fn any_age_has_a_jitter_within_its_bounds(age: u64, random: u64) {
            let age = Duration::from_nanos(age);
            let with_jitter = age_max(age, random).expect("there is a maximum");
            proptest::prop_assert!(with_jitter >= age - age / 10 && with_jitter <= age + age / 10);
        }
    }

    #[test]
    fn ticks_are_finer_than_the_jitter() {
        let settings = Http2Settings { age_max: Some(Duration::from_secs(10)), ..Http2Settings::default() };
        assert_eq!(settings.tick(), Duration::from_millis(250));
    }
}
