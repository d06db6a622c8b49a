//! Tidegate as it is measured with a store.

use crate::{
    Failure,
    perf::{
        bench::Process,
        machine::Machine,
        reference::{Store, write},
        server::{Binaries, free_port},
    },
};

/// One limit that no load reaches, for each address.
pub(super) const RULES: &str = "domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: day, requests_per_unit: 4000000000 }
";

/// Whether counters are leased.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leases {
    Off,
    Auto,
}

/// Tidegate on the first core, with counters in the store or its own. With a store, the store makes every decision, or leases
/// are taken.
pub(super) fn tidegate(
    machine: &Machine,
    binaries: &Binaries,
    store: Option<(&Store, Leases)>,
) -> Result<Process, Failure> {
    let rules = binaries.scratch.join("perf-shared.yaml");
    write(&rules, RULES)?;
    let address = free_port()?;
    let mut command = machine.on_core(0, &binaries.tidegate);
    command.args(["serve", "--threads", "1", "--listen"]).arg(address.to_string());
    command.arg("--rules").arg(rules);
    if let Some((store, leases)) = store {
        // A decision of another kind than the store's fails the measurement: it denies.
        command.args(["--on-store-failure", "deny", "--counters-timeout", "2s"]);
        let leases = if leases == Leases::Auto { "auto" } else { "off" };
        command.args(["--counters", &store.url(), "--lease", leases]);
    }
    Process::start("tidegate", command, address)
}
