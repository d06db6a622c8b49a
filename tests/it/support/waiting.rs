//! Waiting for an effect of a test, up to one bound for all tests: a test looks again and again, and fails with the last state that it saw.

use std::{fmt::Debug, thread, time::Duration};

/// The longest wait for anything that a test expects. It is long enough for a machine with many other tests, and shorter than most time
/// limits of a server with default settings, so that a test only sees time limits that it sets.
pub const PATIENCE: Duration = Duration::from_secs(25);

/// Time between two looks.
const POLL: Duration = Duration::from_millis(5);

/// The result of a look: whether something holds, a value if it is there, or a value or what was seen instead.
pub trait Look {
    type Value;

    fn value(self) -> Result<Self::Value, String>;
}

impl Look for bool {
    type Value = ();

    fn value(self) -> Result<(), String> {
        if self { Ok(()) } else { Err(String::new()) }
    }
}

impl<T> Look for Option<T> {
    type Value = T;

    fn value(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, S: Debug> Look for Result<T, S> {
    type Value = T;

    fn value(self) -> Result<T, String> {
        self.map_err(|seen| format!("{seen:#?}"))
    }
}

/// Looks until there is a value, and returns it. `what` completes "not within 25s: …".
pub async fn eventually<L: Look>(what: &str, mut look: impl AsyncFnMut() -> L) -> L::Value {
    let mut seen = String::new();
    let looks = async {
        loop {
            match look().await.value() {
                Ok(value) => return value,
                Err(other) => seen = other,
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, looks).await;
    found.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}\n{seen}"))
}

/// The same on a thread that may block.
pub fn eventually_blocking<L: Look>(what: &str, look: impl FnMut() -> L) -> L::Value {
    eventually_within(PATIENCE, what, look)
}

/// The same within a given time.
pub fn eventually_within<L: Look>(time: Duration, what: &str, mut look: impl FnMut() -> L) -> L::Value {
    let mut seen = String::new();
    for _ in 0..time.as_millis() / POLL.as_millis() {
        match look().value() {
            Ok(value) => return value,
            Err(other) => seen = other,
        }
        thread::sleep(POLL);
    }
    panic!("not within {time:?}: {what}\n{seen}");
}
