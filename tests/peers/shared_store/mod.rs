//! A real Redis or Valkey: the script's arithmetic, and servers that share counters in it.

pub mod arithmetic;
pub mod cluster;
pub mod cluster_faults;
pub mod connections;
pub mod envoy;
pub mod envoy_slots;
pub mod faults;
pub mod give_backs;
pub mod joining;
pub mod kept_denials;
pub mod lease_faults;
mod lease_script;
pub mod lease_servers;
pub mod lease_waits;
pub mod leases;
pub mod limits_file;
pub mod local_rules;
pub mod operators;
mod process;
mod proxy;
pub mod quota_script;
mod random_rules;
pub mod received_ends;
pub mod reference_env;
pub mod renewal_policies;
pub mod reserve_script;
pub mod reserve_servers;
pub mod resets;
pub mod slot_script;
pub mod slot_servers;
pub mod slot_waits;
pub mod transfer;
pub mod undo;

pub use process::{RedisCluster, RedisServer, free_port, redis_binary};
