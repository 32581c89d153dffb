//! `limits` of our own configuration.

use std::num::NonZeroUsize;

use super::{
    reader::Fields,
    table::{limits, root},
};

/// Limits of the whole broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Connections at the same time; one more is refused, unless an idle one gives way.
    pub connections: NonZeroUsize,
    /// Bytes of connections, calls, requests and unread answers.
    pub bytes: NonZeroUsize,
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
        Self {
            connections: limits::CONNECTIONS.absent.0,
            bytes: limits::BYTES.absent.0,
            plugin_runs: limits::PLUGIN_RUNS.absent.0,
            interactive_runs: limits::INTERACTIVE_RUNS.absent.0,
            entries: limits::ENTRIES.absent.0,
            entry_bytes: limits::ENTRY_BYTES.absent.0,
        }
    }
}

pub(super) fn limits_section(root: &Fields<'_>) -> Limits {
    let Some(fields) = root::LIMITS.read(root) else { return Limits::default() };
    Limits {
        connections: limits::CONNECTIONS.read(&fields),
        bytes: limits::BYTES.read(&fields),
        plugin_runs: limits::PLUGIN_RUNS.read(&fields),
        interactive_runs: limits::INTERACTIVE_RUNS.read(&fields),
        entries: limits::ENTRIES.read(&fields),
        entry_bytes: limits::ENTRY_BYTES.read(&fields),
    }
}
