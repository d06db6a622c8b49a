//! Queued requests: through the service, with a clock that only timers move, and by a real server.

mod releases;
mod resets;
mod server;
