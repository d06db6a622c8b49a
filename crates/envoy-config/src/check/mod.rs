//! Compares rules with a configuration of Envoy: which limit each descriptor reaches, and what leaves requests unlimited.

mod chain;
mod charges;
mod collected;
mod descriptors;
mod finding;
mod hints;
mod reach;
mod report;
mod routes;
mod runtime;
mod server;
mod unsent;

pub use collected::SentDescriptor;
pub use finding::{Finding, Kind, Severity};
pub use reach::{Reach, Shape, ShapeEntry};
pub use report::{Checked, check};
