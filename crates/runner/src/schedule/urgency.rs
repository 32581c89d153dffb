//! How urgent runs are, and whose they are.

use super::{gate::Class, lane::Party};
use credbroker_plugin::PluginKey;

/// How urgent a run is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Urgency {
    /// No caller waits: a refresh ahead of expiry, prewarm, a refresh of many keys.
    Background,
    /// No caller waits, but the credential is in use and expires soon. Such runs have the same class as those that callers
    /// wait for, and share turns like one more caller of their provider.
    Urgent,
    /// Only a caller needs it. It is background work from when the last caller leaves.
    Waited {
        /// Identifies the caller's process: processes take turns.
        peer: u64,
    },
    /// A person asked for this run. It starts even while its issuer is paused.
    Forced,
}

impl Urgency {
    /// The class of a run that is not queued for callers; `None`: only callers need it.
    pub(super) fn class(self) -> Option<Class> {
        match self {
            Self::Background => Some(Class::Background),
            Self::Forced => Some(Class::Forced),
            Self::Urgent => Some(Class::First),
            Self::Waited { .. } => None,
        }
    }
}

/// Who decides what the plugin of a run receives, and with that what it can write to stderr.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RunSource {
    /// The configuration alone. Such runs have different keys.
    Configuration(PluginKey),
    /// Also callers or a ClusterProfile.
    Others {
        /// The uid whose request made the key, with variables or a cluster; `None`: no caller sent any.
        uid: Option<u32>,
    },
}

impl RunSource {
    /// The uid whose text the plugin receives.
    pub(super) fn uid(self) -> Option<u32> {
        match self {
            Self::Configuration(_) => None,
            Self::Others { uid } => uid,
        }
    }

    /// Whose run it is while no caller waits.
    pub(super) fn party(self) -> Party {
        Party::Broker(self.uid())
    }
}
