//! A real Redis or Valkey: the script's arithmetic, and servers that share counters in it.

pub mod arithmetic;
mod process;

pub use process::{RedisServer, redis_binary};
