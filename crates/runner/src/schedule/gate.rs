//! Whether a run may start, and why not.

use std::time::Duration;

/// The classes of runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    /// Only the configured limits apply.
    Forced,
    /// Before background runs.
    First,
    /// Evenly spread over a second, so that a caller that comes waits for a part of the second only.
    Background,
}

/// Whether a run may start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Gate {
    Open,
    /// Not before this time, and why.
    At(Duration, Cause),
    /// Not before another run of the issuer ends.
    Shut(Cause),
}

/// Why a run waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// All run slots are in use, or other runs are next.
    Slots {
        /// `limits.pluginRuns`.
        runs: usize,
    },
    /// The caller's process has as many runs at a time as it may have.
    ProcessShare {
        /// `limits.pluginRunsPerProcess`.
        runs: usize,
    },
    /// The processes of the caller's uid have as many runs at a time as they may have.
    UidShare {
        /// `limits.pluginRunsPerUid`, or three quarters of `limits.pluginRuns` while another uid waits.
        runs: usize,
    },
    /// The issuer has as many runs at a time as it allows.
    Concurrency {
        /// The limit.
        runs: usize,
    },
    /// The issuer had as many runs in this second as it allows.
    Rate {
        /// The limit.
        runs: usize,
    },
    /// The issuer asked for fewer runs.
    Paused {
        /// How long the pause still lasts.
        left: Duration,
    },
    /// The issuer asked for fewer runs, and one run is trying it again.
    Probe,
    /// The issuer asked for fewer runs and works again: its runs become more frequent step by step.
    SlowStart,
}
