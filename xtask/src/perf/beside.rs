//! Work of the server beside a load: a command of a shell that prints `ready`, and lines `figure=number`, of which the largest number
//! counts.

use super::{
    Place,
    process::Process,
    results::{Figures, figure, printed},
    server::Running,
};
use anyhow::{Context as _, Result};

/// Work until it is dropped.
pub(super) struct Work(Process);

impl Work {
    /// Starts the work, and waits until it is ready. Beside an open loop the work runs on the server's core, in the time that nothing else
    /// needs: the load has its core for itself, so that calls wait for the server and not for clients of its other work.
    pub(super) fn start(command: &str, is_open: bool, server: &Running, place: &Place) -> Result<Self> {
        let mut shell = match is_open {
            true => place.shell(Some(0), &format!("chrt --idle --pid 0 $$ || exit\n{command}")),
            false => place.shell(Some(1), command),
        };
        shell.env("ADDRESS", server.address.to_string()).env("HTTP", server.http.to_string());
        let is_ready = |work: &Process| work.log().lines().any(|line| line == "ready");
        let work = Process::start(shell, place.files.join("work.log"), is_ready);
        work.map(Self).context("the work beside the load")
    }

    /// Ends the work, and returns the figures that it printed.
    pub(super) fn finish(mut self) -> Result<Figures> {
        self.0.has_not_failed().context("the work beside the load")?;
        let mut figures = Figures::new();
        for (name, value) in printed(&self.0.log()) {
            let name = figure(name)?;
            match figures.iter_mut().find(|(known, _)| *known == name) {
                Some((_, largest)) => *largest = value.max(*largest),
                None => figures.push((name, value)),
            }
        }
        Ok(figures)
    }
}
