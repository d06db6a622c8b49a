//! The operational log: lines on standard error, as text or JSON.
//!
//! Events that clients or a failing machine can cause at any rate are logged at a bounded rate: at most [`LINES_MAX`] warnings and errors
//! of one place in the code in [`PERIOD`]. The number of suppressed lines is logged with the next one.

use super::log_filter::{self, LogFilterError};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt,
    io::IsTerminal,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tidegate_core::clock::{Clock, SystemClock};
use tracing::{Event, Level, Metadata, Subscriber, callsite::Identifier, level_filters::LevelFilter};
use tracing_subscriber::{
    Registry,
    filter::{Targets, filter_fn},
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt,
};

/// The most lines of one place in the code in one period.
pub(super) const LINES_MAX: u32 = 50;

/// See [`LINES_MAX`].
pub(super) const PERIOD: Duration = Duration::from_secs(10);

/// Format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum LogFormat {
    /// Text.
    Text,
    /// One JSON object per line.
    Json,
}

/// The level of the running log.
struct Switch {
    handle: reload::Handle<Targets, Registry>,
    configured: Targets,
    is_switched: AtomicBool,
}

static SWITCH: OnceLock<Switch> = OnceLock::new();

/// Sends logs to standard error, including panics. `filter` is a level (`info`) or a list of `target=level`.
pub fn start_logging(format: LogFormat, filter: &str) -> Result<(), LogFilterError> {
    let configured = log_filter::parse(filter)?;
    let (filter, handle) = reload::Layer::new(configured.clone());
    let _ = SWITCH.set(Switch { handle, configured, is_switched: AtomicBool::new(false) });
    let registry = tracing_subscriber::registry().with(filter).with(filter_fn(|of| !is_noise(of)));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let lines = lines.with_ansi(std::io::stderr().is_terminal()).with_target(false);
            registry.with(lines.map_event_format(|inner| BoundedRate::new(inner, format))).init();
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false);
            registry.with(lines.map_event_format(|inner| BoundedRate::new(inner, format))).init();
            // A panic's default message is not JSON.
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
        }
    }
    Ok(())
}

/// Whether a line is useless. The library for file events removes the watch of a removed directory twice, and warns of that: at each swap
/// of a ConfigMap.
fn is_noise(of: &Metadata<'_>) -> bool {
    of.target() == "notify::inotify" && *of.level() == Level::WARN
}

/// A change of the level.
pub struct LogLevelChange {
    /// The level in force now.
    pub level: String,
    /// The level before.
    pub former: String,
}

/// The level cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum LogLevelError {
    /// It is neither a level nor a list.
    #[error(transparent)]
    Malformed(LogFilterError),
    /// There is no log yet, or no longer.
    #[error("there is no log")]
    NotStarted,
}

impl Switch {
    fn set(&self, filter: Targets) -> Result<LogLevelChange, LogLevelError> {
        let level = filter.to_string();
        let mut former = String::new();
        let changed = self.handle.modify(|current| former = std::mem::replace(current, filter).to_string());
        changed.map_err(|_| LogLevelError::NotStarted)?;
        tracing::info!("log level changed to {level}");
        Ok(LogLevelChange { level, former })
    }
}

/// Switches between the configured level and debug, or info if debug is configured.
pub fn switch_log_level() {
    let Some(switch) = SWITCH.get() else { return };
    let is_switched = !switch.is_switched.fetch_xor(true, Ordering::Relaxed);
    let info = Targets::new().with_default(LevelFilter::INFO);
    let filter = match is_switched {
        false => switch.configured.clone(),
        true if switch.configured.would_enable("tidegate", &Level::DEBUG) => info,
        true => info.with_target("tidegate", LevelFilter::DEBUG),
    };
    if let Err(error) = switch.set(filter) {
        tracing::error!(%error, "the log level cannot be changed");
    }
}

/// Sets the level to `filter`, as in [`start_logging`]. If it is empty, sets the configured level.
pub fn set_log_level(filter: &str) -> Result<LogLevelChange, LogLevelError> {
    let switch = SWITCH.get().ok_or(LogLevelError::NotStarted)?;
    let change = match filter {
        "" => switch.set(switch.configured.clone()),
        filter => switch.set(log_filter::parse(filter).map_err(LogLevelError::Malformed)?),
    }?;
    switch.is_switched.store(!filter.is_empty(), Ordering::Relaxed);
    Ok(change)
}

/// Writes the lines of another format at a bounded rate.
struct BoundedRate<F> {
    inner: F,
    format: LogFormat,
    clock: SystemClock,
    repeats: Mutex<Repeats<Identifier>>,
}

impl<F> BoundedRate<F> {
    fn new(inner: F, format: LogFormat) -> Self {
        Self { inner, format, clock: SystemClock::new(), repeats: Mutex::new(Repeats(HashMap::new())) }
    }

    fn write_suppressed(&self, count: u64, writer: &mut Writer<'_>) -> fmt::Result {
        const MESSAGE: &str = "lines like the next one were suppressed";
        match self.format {
            LogFormat::Text => {
                SystemTime.format_time(writer)?;
                writeln!(writer, "  WARN {MESSAGE} suppressed={count}")
            }
            LogFormat::Json => {
                write!(writer, "{{\"timestamp\":\"")?;
                SystemTime.format_time(writer)?;
                writeln!(writer, "\",\"level\":\"WARN\",\"message\":\"{MESSAGE}\",\"suppressed\":{count}}}")
            }
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for BoundedRate<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if *event.metadata().level() <= Level::WARN {
            let now = Duration::from_nanos(self.clock.now().as_nanos());
            match self.repeats.lock().admit(event.metadata().callsite(), now) {
                None => return Ok(()),
                Some(0) => {}
                Some(suppressed) => self.write_suppressed(suppressed, &mut writer)?,
            }
        }
        self.inner.format_event(context, writer, event)
    }
}

/// Lines by the place in the code that logs them. There are a few hundred places.
struct Repeats<K>(HashMap<K, PeriodCounts>);

/// The lines of one place in its current period.
struct PeriodCounts {
    since: Duration,
    written: u32,
    suppressed: u64,
}

impl<K: std::hash::Hash + Eq> Repeats<K> {
    /// Whether to write a line: the number of suppressed lines before it, or none.
    fn admit(&mut self, place: K, now: Duration) -> Option<u64> {
        let new = PeriodCounts { since: now, written: 0, suppressed: 0 };
        let lines = self.0.entry(place).or_insert(new);
        let mut suppressed = 0;
        if now.saturating_sub(lines.since) >= PERIOD {
            suppressed = lines.suppressed;
            *lines = PeriodCounts { since: now, written: 0, suppressed: 0 };
        }
        if lines.written == LINES_MAX {
            lines.suppressed += 1;
            return None;
        }
        lines.written += 1;
        Some(suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_lines_are_suppressed_and_counted_with_the_next_one() {
        let mut repeats = Repeats(HashMap::new());
        let second = Duration::from_secs;
        for _ in 0..LINES_MAX {
            assert_eq!(repeats.admit("accept", second(100)), Some(0));
        }
        assert_eq!(repeats.admit("accept", second(101)), None);
        assert_eq!(repeats.admit("accept", second(109)), None);
        assert_eq!(repeats.admit("other", second(109)), Some(0), "places do not affect each other");
        assert_eq!(repeats.admit("accept", second(110)), Some(2));
        assert_eq!(repeats.admit("accept", second(110)), Some(0));
    }
}
