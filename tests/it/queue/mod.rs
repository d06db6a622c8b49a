//! Answers that are held until their turn: through the front, with a time that only timers move, and by a real server.

mod releases;
mod server;
