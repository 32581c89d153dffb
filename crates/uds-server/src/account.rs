//! What peers hold: connections and bytes, in one account for each process and each uid.
//!
//! One rule divides both. A uid may grow while it holds less than three times what is free, so one alone reaches three
//! quarters; and a process of it while it holds less than three times what remains of that for its uid.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A connection takes bytes in such steps, so that few calls at a time take nothing.
pub(crate) const STEP: usize = 8 * 1024;

/// A limit that is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Full {
    /// What there is no more of.
    pub limit: Limit,
    /// Who has all, or its share.
    pub who: Who,
    /// How much there is.
    pub most: usize,
}

/// What is limited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    /// [`Limits::connections`](crate::Limits::connections).
    Connections,
    /// Connections, which the limit of open files bounds.
    OpenFiles,
    /// Connections without a call, while others like them are being closed.
    Silent,
    /// [`Limits::bytes`](crate::Limits::bytes).
    Bytes,
    /// Bytes of the unfinished requests of one connection.
    Unfinished,
    /// Watches of one connection.
    Watches,
}

/// Who has reached a limit.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Who {
    /// One connection.
    Connection,
    /// All connections of a process.
    Process,
    /// All processes of a uid.
    Uid,
    /// All peers together.
    All,
}

/// What a process, a uid, or all peers hold.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) connections: AtomicUsize,
    pub(crate) bytes: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    /// As [`Peer::process`](crate::Peer::process) numbers it.
    pub(crate) process: u64,
    /// Whether the process is known: otherwise all of the uid count as one, and only the share of the uid limits them.
    pub(crate) is_process: bool,
    /// What the process, its uid, and all peers hold.
    pub(crate) held: [Arc<Held>; 3],
    /// [`Limits::bytes`](crate::Limits::bytes).
    pub(crate) most: usize,
}

/// Who may not grow from what a process, its uid and all peers hold, of `most`.
pub(crate) fn lacks([process, uid, all]: [usize; 3], most: usize, is_process: bool) -> Option<Who> {
    let others = all.saturating_sub(uid);
    if all >= most {
        Some(Who::All)
    } else if uid >= (most - all).saturating_mul(3) {
        Some(Who::Uid)
    } else if is_process && 4 * process + 12 * uid >= (most - others).saturating_mul(9) {
        Some(Who::Process)
    } else {
        None
    }
}

/// One without a limit, which no peer shares.
impl Default for Account {
    fn default() -> Self {
        Self { uid: 0, process: 0, is_process: false, held: Default::default(), most: usize::MAX }
    }
}

impl Account {
    /// Whether the peer may have more of what `held` counts, of which there is as much as `most`. Otherwise who may not.
    pub(crate) fn check(
        &self,
        limit: Limit,
        held: impl Fn(&Held) -> &AtomicUsize,
        most: usize,
    ) -> Result<(), Full> {
        let counts = self.held.each_ref().map(|of| held(of).load(Ordering::Relaxed));
        lacks(counts, most, self.is_process).map_or(Ok(()), |who| Err(Full { limit, who, most }))
    }
}

/// What one connection has taken from the account of its peer. Dropping it gives that back.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    pub(crate) account: Arc<Account>,
    pub(crate) bytes: AtomicUsize,
}

impl Reserve {
    /// Takes what is missing of `used` bytes, if the peer may have more.
    pub(crate) fn grow_to(&self, used: usize) -> Result<(), Full> {
        if used > self.bytes.load(Ordering::Relaxed) {
            self.account.check(Limit::Bytes, |held| &held.bytes, self.account.most)?;
            self.must_grow_to(used);
        }
        Ok(())
    }

    /// The same, whether or not the peer may have more: the bytes are there already.
    pub(crate) fn must_grow_to(&self, used: usize) {
        let missing = used.saturating_sub(self.bytes.load(Ordering::Relaxed)).next_multiple_of(STEP);
        if missing > 0 {
            self.bytes.fetch_add(missing, Ordering::Relaxed);
            for held in &self.account.held {
                held.bytes.fetch_add(missing, Ordering::Relaxed);
            }
        }
    }

    /// Gives back what `used` bytes and the next calls do not need.
    pub(crate) fn shrink_to(&self, used: usize) {
        let (bytes, needed) = (self.bytes.load(Ordering::Relaxed), used.next_multiple_of(STEP) + STEP);
        if needed < bytes
            && self.bytes.compare_exchange(bytes, needed, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.give_back(bytes - needed);
        }
    }

    fn give_back(&self, bytes: usize) {
        for held in &self.account.held {
            held.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.give_back(self.bytes.load(Ordering::Relaxed));
    }
}

/// Why the server refuses or ends a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// A limit is reached.
    Full(Full),
    /// The request was not received completely in this time.
    Incomplete(Duration),
    /// A message of a stream is larger than so many bytes.
    Large(usize),
    /// The server ends.
    Draining,
    /// A panic ended the call.
    Defect,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of some processes gets of `most` when all of them take one by one, in turns, as long as they may. They are
    /// named by their uids.
    fn shares(most: usize, uids: &[usize]) -> Vec<usize> {
        let mut held = vec![0; uids.len()];
        loop {
            let before = held.clone();
            for process in 0..uids.len() {
                let of_uid =
                    (0..uids.len()).filter(|other| uids[*other] == uids[process]).map(|of| held[of]).sum();
                if lacks([held[process], of_uid, held.iter().sum()], most, true).is_none() {
                    held[process] += 1;
                }
            }
            if held == before {
                return held;
            }
        }
    }

    #[test]
    fn a_process_leaves_something_to_its_siblings_and_a_uid_to_other_uids() {
        assert_eq!(shares(1600, &[1]), [900], "three quarters of three quarters");
        assert_eq!(shares(1400, &[1, 1]), [450, 450]);
        for most in [1, 2, 3, 12, 100, 1600] {
            for uids in [&[1][..], &[1, 1], &[1, 2], &[1, 1, 1, 2], &[1, 2, 3, 4], &[1; 40]] {
                let held = shares(most, uids);
                let all: usize = held.iter().sum();
                assert!(all <= most && all > most / 2, "{most} of {uids:?}: {held:?}");
                if uids.contains(&2) && most >= 12 {
                    let second = uids.iter().position(|uid| *uid == 2).unwrap();
                    assert!(held[second] * 5 >= most, "a uid that is alone, of {most}: {held:?}");
                }
            }
        }
    }

    #[test]
    fn who_comes_late_gets_a_part_however_many_processes_one_uid_has() {
        let most = 1600;
        for process in [0, 10, 900] {
            let uid = (process..most)
                .take_while(|uid| lacks([0, *uid, *uid], most, false).is_none())
                .last()
                .unwrap()
                + 1;
            assert_eq!(uid, 1200);
            assert_eq!(lacks([process, uid, uid], most, true), Some(Who::Uid));
            assert_eq!(lacks([0, 0, uid], most, true), None, "another uid");
        }
        assert_eq!(lacks([0, 0, most], most, true), Some(Who::All));
    }
}
