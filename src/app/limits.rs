//! The limits of the configuration, as the parts of the broker take them.

use tracing::warn;

use credbroker_cache::EntryLimits;
use credbroker_config::Limits;
use credbroker_uds_server as uds;

/// The plugin runs at a time: as many as configured, or as the limit of open files allows.
pub(super) fn runs(limits: &Limits) -> usize {
    let runs = uds::affordable_runs(limits.plugin_runs.get());
    if runs < limits.plugin_runs.get() {
        warn!(
            runs,
            "fewer plugins run at a time than `limits.pluginRuns` allows: the limit of open files is low"
        );
    }
    runs
}

pub(super) fn entries(limits: &Limits) -> EntryLimits {
    EntryLimits { entries: limits.entries.get(), bytes: limits.entry_bytes.get() }
}

pub(super) fn connections(limits: &Limits) -> uds::Limits {
    uds::Limits {
        connections: limits.connections.get(),
        bytes: limits.bytes.get(),
        runs: limits.plugin_runs.saturating_add(limits.interactive_runs.get()).get(),
    }
}
