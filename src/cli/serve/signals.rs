//! Signals of `serve`, received on a thread of their own: they take effect whatever the server is doing.

use std::{io, sync::mpsc, time::Duration};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_operations::{
    config::ReloadRequests,
    telemetry::{self, DecisionLog},
};
use tidegate_threads::{BackgroundThread, Priority};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// Exit code of a process that a signal ends, less the signal's number.
const EXIT_BY_SIGNAL: i32 = 128;

/// Time in which a second signal counts as the first: a supervisor may signal the process and then its group.
const SAME_STOP: Duration = Duration::from_millis(100);

/// Receives signals from now on. SIGHUP requests a reload of rule files and certificates, SIGUSR1 changes the level of the log, SIGUSR2
/// opens the decision log again. The future completes at the first SIGTERM or SIGINT. A second signal, at least [`SAME_STOP`] later, ends
/// the process at once, without the rest of the drain and without a last snapshot.
pub(super) fn stop(
    reload: ReloadRequests,
    decision_log: Option<DecisionLog>,
) -> io::Result<impl Future<Output = ()>> {
    let (stop, stopped) = oneshot::channel();
    let (installed, is_installed) = mpsc::channel();
    let receive = async move || match install() {
        Ok(signals) => {
            let _ = installed.send(Ok(()));
            handle(signals, stop, &reload, decision_log.as_ref()).await;
        }
        Err(error) => drop(installed.send(Err(error))),
    };
    BackgroundThread::start_async("signals", Priority::Full, receive)?;
    is_installed.recv().map_err(io::Error::other)??;
    Ok(async move {
        // The sender is dropped only after it has sent.
        let _ = stopped.await;
    })
}

/// SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2.
fn install() -> io::Result<[Signal; 5]> {
    Ok([
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
        signal(SignalKind::user_defined1())?,
        signal(SignalKind::user_defined2())?,
    ])
}

async fn handle(
    [mut terminate, mut interrupt, mut hangup, mut user1, mut user2]: [Signal; 5],
    stop: oneshot::Sender<()>,
    reload: &ReloadRequests,
    decision_log: Option<&DecisionLog>,
) {
    let (mut stop, clock) = (Some(stop), SystemClock::new());
    let mut stopped_at = clock.now();
    loop {
        let (name, kind) = tokio::select! {
            _ = terminate.recv() => ("SIGTERM", SignalKind::terminate()),
            _ = interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
            _ = user1.recv() => {
                telemetry::switch_log_level();
                continue;
            }
            _ = user2.recv() => {
                match decision_log {
                    Some(log) => log.reopen(),
                    None => tracing::warn!("SIGUSR2 ignored: there is no decision log to open again"),
                }
                continue;
            }
            _ = hangup.recv() => {
                if reload.request() {
                    tracing::info!("SIGHUP: reading rule files and certificates again");
                } else {
                    tracing::warn!("SIGHUP ignored: there are no rule files and no certificates to read again");
                }
                continue;
            }
        };
        match stop.take() {
            Some(stop) => {
                tracing::info!("{name}: stopping; a second signal ends the process at once");
                let _ = stop.send(());
                stopped_at = clock.now();
            }
            None if clock.now().since(stopped_at) < SAME_STOP => {
                tracing::info!("{name} again, just after the first: ignored");
            }
            None => {
                tracing::warn!("{name} again: ending at once, without a last snapshot");
                std::process::exit(EXIT_BY_SIGNAL + kind.as_raw_value());
            }
        }
    }
}
