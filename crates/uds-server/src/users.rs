//! Which uids and gids identify a user or group of the broker's user namespace.

use rustix::process::geteuid;

/// The numbers of the user namespace of the broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Users {
    /// The broker's own uid.
    own: u32,
    /// The number that the kernel shows for every uid that it cannot map; `None`: it can map all.
    overflow_uid: Option<u32>,
    /// The same of gids.
    overflow_gid: Option<u32>,
}

/// What the kernel uses unless `/proc/sys/kernel/overflowuid` says otherwise.
const OVERFLOW: u32 = 65_534;

impl Users {
    /// Reads `/proc`. What it does not show counts as not mapped.
    pub(crate) fn of_this_process() -> Self {
        let overflow = |map: &str, number: &str| {
            let map = std::fs::read_to_string(map).unwrap_or_default();
            let number = std::fs::read_to_string(number).ok().and_then(|text| text.trim().parse().ok());
            (!maps_all(&map)).then(|| number.unwrap_or(OVERFLOW))
        };
        Self {
            own: geteuid().as_raw(),
            overflow_uid: overflow("/proc/self/uid_map", "/proc/sys/kernel/overflowuid"),
            overflow_gid: overflow("/proc/self/gid_map", "/proc/sys/kernel/overflowgid"),
        }
    }

    /// The user of `uid`; `None`: the number identifies none.
    pub(crate) fn user(self, uid: u32) -> Option<u32> {
        Some(uid).filter(|uid| *uid != u32::MAX && Some(*uid) != self.overflow_uid)
    }

    /// The group of `gid`; `None`: the number identifies none.
    pub(crate) fn group(self, gid: u32) -> Option<u32> {
        Some(gid).filter(|gid| *gid != u32::MAX && Some(*gid) != self.overflow_gid)
    }

    /// Whether `uid` is the broker's own or root's.
    pub(crate) fn is_owner(self, uid: u32) -> bool {
        uid == self.own || uid == 0
    }

    /// Whether `uid` is the broker's own.
    pub(crate) fn is_own(self, uid: u32) -> bool {
        uid == self.own
    }

    /// Whether the broker can identify its own user.
    pub(crate) fn identify_own(self) -> bool {
        self.user(self.own).is_some()
    }
}

/// Whether a `uid_map` or `gid_map` maps every number to itself, so that no number can mean several users.
fn maps_all(map: &str) -> bool {
    let mut ranges = Vec::new();
    for line in map.lines() {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(inside)), Some(Ok(outside)), Some(Ok(length)), None) =
            (numbers.next(), numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        if inside != outside {
            return false;
        }
        ranges.push((inside, length));
    }
    ranges.sort_unstable();
    let mut next = 0;
    for (inside, length) in ranges {
        if inside != next {
            return false;
        }
        next += length;
    }
    // The last number is not a uid.
    next >= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
