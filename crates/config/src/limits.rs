//! `limits` of our own configuration.

use std::num::NonZeroUsize;

use super::{
    reader::Fields,
    table::{limits, root},
};

/// One uid or process may have this number of connections, however few `limits.connections` allows.
const FEW_CONNECTIONS: usize = 64;

/// Limits of the whole broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Connections at the same time; one more is refused, unless an idle one gives way.
    pub connections: NonZeroUsize,
    /// The same of one uid.
    pub connections_per_uid: NonZeroUsize,
    /// The same of one process.
    pub connections_per_process: NonZeroUsize,
    /// Watches of one connection; one more is refused.
    pub watches_per_connection: NonZeroUsize,
    /// Bytes that the broker holds for one uid.
    pub bytes_per_uid: NonZeroUsize,
    /// Bytes that the broker holds for one process.
    pub bytes_per_process: NonZeroUsize,
    /// Plugin runs at the same time, of all providers.
    pub plugin_runs: NonZeroUsize,
    /// Plugin runs that wait for a person at the same time, besides `plugin_runs`.
    pub interactive_runs: NonZeroUsize,
    /// Credentials in memory; one more replaces the least recently used.
    pub entries: NonZeroUsize,
    /// Bytes of these credentials, and of the variables and clusters of callers that select them.
    pub entry_bytes: NonZeroUsize,
}

impl Default for Limits {
    fn default() -> Self {
        let connections = limits::CONNECTIONS.absent.0;
        Self {
            connections,
            connections_per_uid: connections_per_uid(connections),
            connections_per_process: connections_per_process(connections),
            watches_per_connection: limits::WATCHES_PER_CONNECTION.absent.0,
            bytes_per_uid: limits::BYTES_PER_UID.absent.0,
            bytes_per_process: limits::BYTES_PER_PROCESS.absent.0,
            plugin_runs: limits::PLUGIN_RUNS.absent.0,
            interactive_runs: limits::INTERACTIVE_RUNS.absent.0,
            entries: limits::ENTRIES.absent.0,
            entry_bytes: limits::ENTRY_BYTES.absent.0,
        }
    }
}

pub(super) fn limits_section(root: &Fields<'_>) -> Limits {
    let Some(fields) = root::LIMITS.read(root) else { return Limits::default() };
    let connections = limits::CONNECTIONS.read(&fields);
    Limits {
        connections,
        connections_per_uid: limits::CONNECTIONS_PER_UID
            .read(&fields)
            .unwrap_or_else(|| connections_per_uid(connections)),
        connections_per_process: limits::CONNECTIONS_PER_PROCESS
            .read(&fields)
            .unwrap_or_else(|| connections_per_process(connections)),
        watches_per_connection: limits::WATCHES_PER_CONNECTION.read(&fields),
        bytes_per_uid: limits::BYTES_PER_UID.read(&fields),
        bytes_per_process: limits::BYTES_PER_PROCESS.read(&fields),
        plugin_runs: limits::PLUGIN_RUNS.read(&fields),
        interactive_runs: limits::INTERACTIVE_RUNS.read(&fields),
        entries: limits::ENTRIES.read(&fields),
        entry_bytes: limits::ENTRY_BYTES.read(&fields),
    }
}

fn connections_per_uid(connections: NonZeroUsize) -> NonZeroUsize {
    at_least(all_but_a_quarter(connections).get(), FEW_CONNECTIONS)
}

fn connections_per_process(connections: NonZeroUsize) -> NonZeroUsize {
    at_least(connections.get() / 16, FEW_CONNECTIONS)
}

/// Three quarters, rounded up.
fn all_but_a_quarter(count: NonZeroUsize) -> NonZeroUsize {
    at_least(count.get() - count.get() / 4, 1)
}

fn at_least(count: usize, least: usize) -> NonZeroUsize {
    NonZeroUsize::new(count.max(least)).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_share_and_never_less_than_a_program_needs() {
        let count = |count| NonZeroUsize::new(count).unwrap();
        for (connections, per_uid, per_process) in [(4096, 3072, 256), (100, 75, 64), (1, 64, 64)] {
            assert_eq!(connections_per_uid(count(connections)).get(), per_uid);
            assert_eq!(connections_per_process(count(connections)).get(), per_process);
        }
        for (runs, per_process) in [(1, 1), (2, 2), (3, 3), (4, 3), (8, 6)] {
            assert_eq!(all_but_a_quarter(count(runs)).get(), per_process);
        }
    }
}
