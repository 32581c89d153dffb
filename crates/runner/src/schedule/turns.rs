//! Which issuer is next.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The issuers that may start a run, now or at a time.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Those that may start a first-class run now, by the number of their next turn.
    first: BTreeSet<(u64, Arc<str>)>,
    /// The same for background runs.
    rest: BTreeSet<(u64, Arc<str>)>,
    /// When to check issuers again whose runs wait for a time.
    times: BTreeSet<(Duration, Arc<str>)>,
}

/// The places of one issuer among all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listed {
    pub(super) first: Option<u64>,
    pub(super) rest: Option<u64>,
    pub(super) time: Option<Duration>,
}

impl Turns {
    /// Updates the places of an issuer.
    pub(super) fn list(&mut self, issuer: &Arc<str>, before: Listed, now: Listed) {
        relist(&mut self.first, before.first, now.first, issuer);
        relist(&mut self.rest, before.rest, now.rest, issuer);
        relist(&mut self.times, before.time, now.time, issuer);
    }

    /// The next issuer, and whether its next run is a first-class one. Background runs come last, and only if there is
    /// `room_for_background`.
    pub(super) fn next(&self, room_for_background: bool) -> Option<(Arc<str>, bool)> {
        let rest = || self.rest.first().filter(|_| room_for_background).map(|next| (next, false));
        let next = self.first.first().map(|next| (next, true)).or_else(rest);
        next.map(|((_, issuer), is_first)| (Arc::clone(issuer), is_first))
    }

    /// An issuer whose time has come.
    pub(super) fn due(&self, now: Duration) -> Option<Arc<str>> {
        self.times.first().filter(|(at, _)| *at <= now).map(|(_, issuer)| Arc::clone(issuer))
    }

    /// The first of the times.
    pub(super) fn next_time(&self) -> Option<Duration> {
        self.times.first().map(|(at, _)| *at)
    }
}

fn relist<T: Copy + Ord>(
    set: &mut BTreeSet<(T, Arc<str>)>,
    before: Option<T>,
    after: Option<T>,
    issuer: &Arc<str>,
) {
    if before == after {
        return;
    }
    if let Some(before) = before {
        set.remove(&(before, Arc::clone(issuer)));
    }
    if let Some(after) = after {
        set.insert((after, Arc::clone(issuer)));
    }
}
