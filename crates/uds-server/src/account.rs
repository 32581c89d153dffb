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

/// The account of one process.
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

impl Account {
    /// One without a limit, which nobody shares.
    pub(crate) fn unlimited() -> Arc<Self> {
        Arc::new(Self { uid: 0, process: 0, is_process: false, held: Default::default(), most: usize::MAX })
    }

    /// Whether the peer may have more of what `held` counts, of which there is as much as `most`.
    ///
    /// # Errors
    ///
    /// It, its uid or all peers have their share.
    pub(crate) fn check(
        &self,
        limit: Limit,
        held: impl Fn(&Held) -> &AtomicUsize,
        most: usize,
    ) -> Result<(), Full> {
        let counts = self.held.each_ref().map(|of| held(of).load(Ordering::Relaxed));
        lacks(counts, most, self.is_process).map_or(Ok(()), |who| Err(Full { limit, who, most }))
    }

    /// The same of bytes.
    pub(crate) fn check_bytes(&self) -> Result<(), Full> {
        self.check(Limit::Bytes, |held| &held.bytes, self.most)
    }

    /// Takes `bytes`, whether or not the peer may have more.
    pub(crate) fn take(&self, bytes: usize) {
        for held in &self.held {
            held.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        for held in &self.held {
            held.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Why the server refuses or ends a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// A limit is reached.
    Full(Full),
    /// The request was not received completely in this time.
    Incomplete(Duration),
    /// The server ends.
    Draining,
    /// A panic ended the call.
    Defect,
}
