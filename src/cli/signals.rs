//! Signals of `serve`, received on a thread of their own: they take effect whatever the server is doing.

use std::{io, sync::mpsc, thread};
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// Exit code of a process that a signal ends, less the signal's number.
const EXIT_BY_SIGNAL: i32 = 128;

/// Receives signals from now on. The future completes at the first SIGTERM or SIGINT; a second one ends the process at
/// once, without the rest of the drain and without a last snapshot.
pub(super) fn stop() -> io::Result<impl Future<Output = ()>> {
    let (stop, stopped) = oneshot::channel();
    let (installed, is_installed) = mpsc::channel();
    thread::Builder::new().name("signals".into()).spawn(move || {
        let runtime = match runtime::Builder::new_current_thread().enable_io().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(installed.send(Err(error))),
        };
        runtime.block_on(async {
            match Signals::install() {
                Ok(signals) => {
                    let _ = installed.send(Ok(()));
                    signals.receive(stop).await;
                }
                Err(error) => drop(installed.send(Err(error))),
            }
        });
    })?;
    is_installed.recv().map_err(io::Error::other)??;
    Ok(async move {
        // The sender is dropped only after it has sent.
        let _ = stopped.await;
    })
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn receive(mut self, stop: oneshot::Sender<()>) {
        let mut stop = Some(stop);
        loop {
            let (name, kind) = tokio::select! {
                _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate()),
                _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
                _ = self.hangup.recv() => {
                    tracing::warn!("SIGHUP ignored: rules are read at the start; restart to read them again");
                    continue;
                }
            };
            match stop.take() {
                Some(stop) => {
                    tracing::info!("{name}: stopping; a second signal ends the process at once");
                    let _ = stop.send(());
                }
                None => {
                    tracing::warn!("{name} again: ending at once, without a last snapshot");
                    std::process::exit(EXIT_BY_SIGNAL + kind.as_raw_value());
                }
            }
        }
    }
}
