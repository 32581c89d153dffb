//! How many connections the limit of open files allows, beside plugin runs and the broker's own files.

use rustix::process::{Resource, getrlimit};

use crate::identity::PINNED;

/// Descriptors of the broker itself: its log, timers, listeners, lock files, the hub, and processes that it pinned.
const OWN: usize = 32 + PINNED;
/// Descriptors of one plugin run: the pipes of its output and of its start, and the process.
const PER_RUN: usize = 12;
/// The most connections that are refused or leave at a time. They do not take the place of served ones.
const SPARE: usize = 48;

/// The descriptors of the process, divided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Budget {
    /// Connections that may be served.
    pub(super) connections: usize,
    /// Connections beside them that are refused, or that leave.
    pub(super) spare: usize,
    /// Plugin runs at a time.
    pub(super) runs: usize,
}

impl Budget {
    /// Divides `open_files` (`RLIMIT_NOFILE`) for a broker of `runs` plugin runs at a time. Runs get what they need, but at
    /// most half; connections get the rest.
    pub(super) fn of(open_files: usize, runs: usize) -> Self {
        let left = open_files.saturating_sub(OWN);
        let for_runs = runs.saturating_mul(PER_RUN).min(left / 2);
        let spare = ((left - for_runs) / 4).min(SPARE);
        let connections = (left - for_runs - spare).max(1);
        Self { connections, spare, runs: runs.min(for_runs / PER_RUN).max(1) }
    }
}

/// The plugin runs at a time, of `wanted`, for which the limit of open files leaves descriptors.
pub fn affordable_runs(wanted: usize) -> usize {
    Budget::of(open_files(), wanted).runs
}

/// The limit of open files.
pub(super) fn open_files() -> usize {
    getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_keep_their_descriptors_however_many_connections_there_are() {
        for (open_files, runs, expected) in [
            (1_048_576, 8, (1_048_392, 48, 8)),
            (1024, 8, (840, 48, 8)),
            (256, 8, (90, 30, 8)),
            (72, 8, (12, 4, 1)),
            (0, 8, (1, 0, 1)),
            (usize::MAX, usize::MAX, (usize::MAX / 2 - 67, 48, (usize::MAX - 40) / 2 / 12)),
        ] {
            let Budget { connections, spare, runs } = Budget::of(open_files, runs);
            assert_eq!((connections, spare, runs), expected, "{open_files}");
        }
    }
}
