//! Which throttled runs show that an issuer throttles.

use std::time::Duration;

use super::{RunSource, lane::Party, share::uid};
use credbroker_plugin::PluginKey;

/// How long a throttled run is remembered: more than the longest pause without a time, so that keys that are tried again
/// after their own pauses are counted together.
const MEMORY: Duration = Duration::from_secs(120);

/// Whose run it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blame {
    /// Its key, if the configuration alone defines it.
    key: Option<PluginKey>,
    /// The uid that it was started for, or whose request made its key.
    uid: Option<u32>,
    /// The plugin receives text of a caller.
    has_text: bool,
}

impl Blame {
    /// That of a run that starts in the turn of `party`.
    pub(super) fn new(source: RunSource, party: Party) -> Self {
        let key = match source {
            RunSource::Configuration(key) => Some(key),
            RunSource::Others { .. } => None,
        };
        let uid = match party {
            Party::Peer(process) => Some(uid(process)),
            Party::Broker(uid) => uid,
        };
        Self { key, uid, has_text: source.uid().is_some() }
    }

    /// The uid whose text the plugin receives.
    pub(super) fn sender(self) -> Option<u32> {
        self.uid.filter(|_| self.has_text)
    }
}

/// The throttled runs of an issuer that is not paused. A caller can make the plugin of its run write anything, so one
/// uid shows nothing about the issuer. Two keys that the configuration alone defines do, and so do two uids.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThrottledRuns {
    /// The last key that the configuration alone defines.
    key: Option<(PluginKey, Duration)>,
    /// The last uid.
    uid: Option<(u32, Duration)>,
}

impl ThrottledRuns {
    /// Adds a throttled run. Returns whether the issuer throttles.
    pub(super) fn add(&mut self, blame: Blame, now: Duration) -> bool {
        add(&mut self.key, blame.key, now) | add(&mut self.uid, blame.uid, now)
    }
}

/// Remembers `new`. Returns whether there was another one a short time ago.
fn add<T: Copy + PartialEq>(last: &mut Option<(T, Duration)>, new: Option<T>, now: Duration) -> bool {
    let Some(new) = new else { return false };
    let before = last.replace((new, now));
    before.is_some_and(|(before, at)| before != new && now.saturating_sub(at) <= MEMORY)
}
