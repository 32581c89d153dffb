//! Why a plugin runs, and how the run ended. The names are label values and appear in the log: they must not change.

/// Why a plugin runs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RunReason {
    /// The broker has had no credential for this key yet.
    First,
    /// The last run failed, and no credential is valid.
    Retry,
    /// The credential has expired.
    Expired,
    /// The credential is valid and due for renewal.
    Refresh,
    /// The credential is valid, and the file of the plugin has changed.
    PluginChanged,
    /// The credential is fetched before a caller asks for it.
    Prewarm,
    /// The credential was rejected by an API server, or seems to be.
    Rejected,
    /// A person asked for the run.
    Requested,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RunOutcome {
    /// It returned another credential than the one that was held, or the first one.
    Rotated,
    /// It returned the same credential with another expiry.
    Extended,
    /// It returned the same credential.
    Unchanged,
    /// Its exit code was not 0.
    Exit,
    /// A signal ended it.
    Signal,
    /// It took longer than the provider allows.
    Timeout,
    /// It printed too much.
    OutputTooLarge,
    /// It did not print a valid `ExecCredential`.
    InvalidOutput,
    /// The credential had expired when it arrived.
    ExpiredOutput,
    /// The plugin is not installed.
    NotFound,
    /// The broker could not start it.
    NotStarted,
    /// It needs a terminal.
    InteractionRequired,
    /// It asked the broker for the credential that it must provide.
    Recursion,
    /// The policy does not allow the plugin.
    PolicyDenied,
    /// It did not start, because its issuer is paused.
    Throttled,
    /// It ended without an outcome: no caller needed it, or the broker stopped.
    Cancelled,
    /// A defect of the broker ended it.
    Panicked,
}

impl RunReason {
    /// Its name in logs and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Retry => "retry",
            Self::Expired => "expired",
            Self::Refresh => "refresh",
            Self::PluginChanged => "plugin_changed",
            Self::Prewarm => "prewarm",
            Self::Rejected => "rejected",
            Self::Requested => "requested",
        }
    }

    /// Whether the run renews a credential that is still valid, because of its age.
    pub(super) const fn is_refresh(self) -> bool {
        matches!(self, Self::Refresh | Self::PluginChanged)
    }
}

impl RunOutcome {
    /// Its name in logs and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rotated => "rotated",
            Self::Extended => "extended",
            Self::Unchanged => "unchanged",
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Timeout => "timeout",
            Self::OutputTooLarge => "output_too_large",
            Self::InvalidOutput => "invalid_output",
            Self::ExpiredOutput => "expired_output",
            Self::NotFound => "not_found",
            Self::NotStarted => "not_started",
            Self::InteractionRequired => "interaction_required",
            Self::Recursion => "recursion",
            Self::PolicyDenied => "policy_denied",
            Self::Throttled => "throttled",
            Self::Cancelled => "cancelled",
            Self::Panicked => "panicked",
        }
    }

    /// `Some(true)`: there is a credential. `None`: neither success nor failure, such as a run that the end of the broker
    /// cut short.
    pub const fn is_success(self) -> Option<bool> {
        match self {
            Self::Rotated | Self::Extended | Self::Unchanged => Some(true),
            Self::Cancelled | Self::Throttled => None,
            _ => Some(false),
        }
    }
}
