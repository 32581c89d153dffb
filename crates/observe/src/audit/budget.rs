//! Limits the records of one second, and counts the others. A hit takes no lock.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use super::{RequestOutcome, record::Omitted};

/// The most records of hits in one second.
const HITS: u32 = 100;
/// The most records in one second of requests of one uid that were denied or failed.
const REFUSALS: u32 = 20;
/// The uids with a separate budget. A peer that makes up more of them, for example in a user namespace, shares one
/// budget with the rest.
const UIDS: usize = 256;

/// The records of this second.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    hits: AtomicU32,
    hits_omitted: AtomicU64,
    /// By uid; `None`: all uids without a separate budget.
    refusals: Mutex<HashMap<Option<u32>, Refusals>>,
    /// Signals the first decision of a second.
    begun: Notify,
}

#[derive(Debug, Default)]
struct Refusals {
    recorded: u32,
    denied: u64,
    failed: u64,
}

impl Budgets {
    /// Whether this hit gets a record.
    pub(super) fn take_hit(&self) -> bool {
        let more = |taken: u32| (taken < HITS).then_some(taken + 1);
        let taken = self.hits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        match taken {
            Ok(0) => self.begun.notify_one(),
            Ok(_) => {}
            Err(_) => drop(self.hits_omitted.fetch_add(1, Ordering::Relaxed)),
        }
        taken.is_ok()
    }

    /// Whether a request of `uid` with this outcome gets a record.
    pub(super) fn take(&self, uid: u32, outcome: RequestOutcome) -> bool {
        if outcome == RequestOutcome::Allowed {
            return true;
        }
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.is_empty() {
            self.begun.notify_one();
        }
        let own = Some(uid);
        let key = if refusals.len() < UIDS || refusals.contains_key(&own) { own } else { None };
        let refusals = refusals.entry(key).or_default();
        if refusals.recorded < REFUSALS {
            refusals.recorded += 1;
            return true;
        }
        let omitted =
            if outcome == RequestOutcome::Denied { &mut refusals.denied } else { &mut refusals.failed };
        *omitted += 1;
        false
    }

    /// The number of hits without a record since this was called last.
    pub(super) fn hits_not_recorded(&self) -> u64 {
        if self.hits_omitted.load(Ordering::Relaxed) == 0 {
            0
        } else {
            self.hits_omitted.swap(0, Ordering::Relaxed)
        }
    }

    /// Waits for the first decision of a second. Cancel safe.
    pub(super) async fn begun(&self) {
        self.begun.notified().await;
    }

    /// Begins a new second, and returns what has no record.
    pub(super) fn end_second(&self) -> Vec<Omitted> {
        self.hits.store(0, Ordering::Relaxed);
        let hits = Omitted { hits: self.hits_not_recorded(), ..Omitted::default() };
        let refusals = mem::take(&mut *self.refusals.lock().unwrap_or_else(PoisonError::into_inner));
        let refusals = refusals.into_iter().map(|(uid, refusals)| {
            let Refusals { denied, failed, .. } = refusals;
            Omitted { uid, denied, failed, hits: 0 }
        });
        refusals.chain([hits]).filter(|omitted| omitted.denied + omitted.failed + omitted.hits > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(budgets: &Budgets, uid: u32, outcome: RequestOutcome, requests: u64) -> usize {
        (0..requests).filter(|_| budgets.take(uid, outcome)).count()
    }

    #[test]
    fn a_second_has_so_many_records_of_hits_and_the_rest_is_counted() {
        let budgets = Budgets::default();
        let recorded = || (0..1000).filter(|_| budgets.take_hit()).count();
        assert_eq!(recorded(), 100);
        assert_eq!((budgets.hits_not_recorded(), budgets.hits_not_recorded()), (900, 0));
        assert_eq!(recorded(), 0);
        assert_eq!(budgets.end_second(), [Omitted { hits: 1000, ..Omitted::default() }]);
        assert_eq!(recorded(), 100);
    }

    #[test]
    fn a_uid_has_so_many_refusals_in_a_second_and_takes_nothing_of_others() {
        let (budgets, [allowed, denied, failed]) =
            (Budgets::default(), [RequestOutcome::Allowed, RequestOutcome::Denied, RequestOutcome::Failed]);
        assert_eq!(recorded(&budgets, 1, denied, 1000), 20);
        assert_eq!(recorded(&budgets, 1, failed, 5), 0);
        assert_eq!(recorded(&budgets, 1, allowed, 1000), 1000);
        assert_eq!(recorded(&budgets, 2, failed, 20), 20);
        assert_eq!(budgets.end_second(), [Omitted { uid: Some(1), denied: 980, failed: 5, hits: 0 }]);
        assert_eq!(recorded(&budgets, 1, denied, 1000), 20);
    }

    #[test]
    fn uids_beyond_the_table_share_one_budget() {
        let budgets = Budgets::default();
        let recorded: usize =
            (0..10_000).map(|uid| recorded(&budgets, uid, RequestOutcome::Denied, 30)).sum();
        assert_eq!(recorded, (UIDS + 1) * 20);
        let omitted = budgets.end_second();
        assert_eq!(omitted.len(), UIDS + 1);
        assert_eq!(omitted.iter().map(|omitted| omitted.denied).sum::<u64>() + recorded as u64, 300_000);
    }
}
