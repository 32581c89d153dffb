//! How urgent runs are.

use super::{gate::Class, lane::Party};

/// How urgent a run is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Urgency {
    /// No caller waits: a refresh ahead of expiry, prewarm, a refresh of many keys.
    Background,
    /// No caller waits, but the credential is in use and expires soon. Such runs have the same class as those that callers
    /// wait for, and share turns like one more caller of their provider.
    Urgent,
    /// A caller waits.
    Waited {
        /// Identifies the caller's process: processes take turns.
        peer: u64,
    },
    /// A person asked for this run. It starts even while its issuer is paused.
    Forced,
}

impl Urgency {
    /// The class of the run.
    pub(super) fn class(self) -> Class {
        match self {
            Self::Background => Class::Background,
            Self::Forced => Class::Forced,
            Self::Urgent | Self::Waited { .. } => Class::First,
        }
    }

    /// Whose run it is.
    pub(super) fn party(self) -> Party {
        match self {
            Self::Background | Self::Forced | Self::Urgent => Party::Broker,
            Self::Waited { peer } => Party::Peer(peer),
        }
    }
}
