//! Tidegate, the command.

fn main() {}
