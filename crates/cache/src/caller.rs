//! The callers of the cache, and the generation that each of them received last.
//!
//! The exec API does not report that a credential was rejected. A process that asks again for the credential that it has
//! suggests it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Callers remembered per key. One more, and all are forgotten: then a rejection may be noticed later.
const REMEMBERED: usize = 1024;
/// The list of callers grows by so many, so that little of it is unused.
const GROWTH: usize = 16;
/// A caller that does not ask again for so long has used its credential successfully.
pub(crate) const SATISFIED_AFTER: Duration = Duration::from_secs(10);

/// The caller of a request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Caller {
    /// A hash of the name that the caller gave for the process that uses the credential; 0: it gave none.
    pub name: u64,
    /// The process according to the kernel: its uid in the upper half, its process ID in the lower one, or 0 if the kernel
    /// does not show that. Processes share runs, entries and waiting places fairly.
    pub peer: u64,
    /// It set no `KUBERNETES_EXEC_INFO`: its repeated requests are verified, and are not evidence by themselves.
    pub without_exec_info: bool,
    /// A person waits for the answer.
    pub at_terminal: bool,
}

impl Caller {
    /// Whether the kernel shows its process ID.
    pub fn has_process(&self) -> bool {
        self.peer & u64::from(u32::MAX) != 0
    }
}

/// The generation that each caller received last, sorted by name. Each caller takes 16 bytes.
#[derive(Debug, Default)]
pub(crate) struct Callers(Mutex<Vec<Given>>);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Given {
    name: u64,
    /// The low bits of the generation's number.
    generation: u32,
    /// When it received it, in tenths of a second since boot, shifted left by [`FLAGS`]; then the flags.
    since_and_flags: u32,
}

/// It asked for this generation again.
const ASKED_AGAIN: u32 = 1;
/// It asked again within [`SATISFIED_AFTER`].
const AT_ONCE: u32 = 2;
/// It asked for the previous generation again.
const REJECTED_BEFORE: u32 = 4;
/// The number of flags.
const FLAGS: u32 = 3;

impl Callers {
    /// Notes that the caller `name` receives `generation` at `now`. Returns whether it has that one already.
    pub(crate) fn repeats(&self, name: u64, generation: u64, now: Duration) -> bool {
        if name == 0 {
            return false;
        }
        #[expect(clippy::cast_possible_truncation, reason = "the low bits tell generations of one key apart")]
        let generation = generation as u32;
        let since = tenths(now) << FLAGS;
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match callers.binary_search_by_key(&name, |given| given.name) {
            Ok(index) => {
                let Some(given) = callers.get_mut(index) else { return false };
                if given.generation == generation {
                    let satisfied = given.since_and_flags >> FLAGS <= satisfied_since(now);
                    given.since_and_flags |= ASKED_AGAIN | if satisfied { 0 } else { AT_ONCE };
                    return true;
                }
                let before = if given.since_and_flags & ASKED_AGAIN == 0 { 0 } else { REJECTED_BEFORE };
                *given = Given { name, generation, since_and_flags: since | before };
                false
            }
            Err(_) if callers.len() >= REMEMBERED => {
                callers.clear();
                callers.push(Given { name, generation, since_and_flags: since });
                false
            }
            Err(index) => {
                if callers.len() == callers.capacity() {
                    callers.reserve_exact(GROWTH);
                }
                callers.insert(index, Given { name, generation, since_and_flags: since });
                false
            }
        }
    }

    /// Whether `generation` was used successfully: a caller that had asked again for the previous one did not ask again
    /// for ten seconds, or two other callers did not.
    pub(crate) fn accepted(&self, generation: u64, now: Duration) -> bool {
        #[expect(clippy::cast_possible_truncation, reason = "as above")]
        let generation = generation as u32;
        let callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let satisfied = callers.iter().filter(|given| {
            given.generation == generation
                && given.since_and_flags & AT_ONCE == 0
                && given.since_and_flags >> FLAGS <= satisfied_since(now)
        });
        let weight = |given: &Given| if given.since_and_flags & REJECTED_BEFORE == 0 { 1 } else { 2 };
        satisfied.map(weight).sum::<usize>() >= 2
    }

    /// The number of remembered callers.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// One and a half years fit into the bits.
fn tenths(since_boot: Duration) -> u32 {
    u32::try_from(since_boot.as_millis() / 100).unwrap_or(u32::MAX) & (u32::MAX >> FLAGS)
}

/// A caller that received a generation before this time, and has not asked again, uses it successfully.
fn satisfied_since(now: Duration) -> u32 {
    tenths(now.saturating_sub(SATISFIED_AFTER))
}

#[cfg(test)]
mod tests;
