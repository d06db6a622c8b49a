//! `/`: the paths of the port, as the debug port of the reference server lists its own.

use super::{MetricsPath, paths, state::HttpState};
use axum::extract::State;

/// `/`: the paths that are served, one a line.
pub(super) async fn index(State(state): State<HttpState>) -> String {
    served(&state).iter().map(|path| format!("{path}\n")).collect()
}

/// The paths that are served, in order.
fn served(state: &HttpState) -> Vec<&str> {
    let control = state.control.as_ref().map(|_| paths::CONTROL);
    let console = control.filter(|_| state.settings.has_console).map(|_| paths::CONSOLE[0]);
    let metrics = state.settings.metrics_path.as_ref().map(MetricsPath::as_str);
    let further = [control, console, metrics].into_iter().flatten();
    let mut served: Vec<&str> = paths::ALL.into_iter().chain(further).collect();
    served.sort_unstable();
    served
}
