//! What the broker counts. Every count is kept where the event happens, and read at each scrape.
//!
//! Counting never waits: a request that is answered from memory adds to three atomic numbers, all others also take a lock
//! for the time of one addition. `prometheus_client` has the counters and writes the text.

mod counter;
mod exposition;
mod process;
mod proxied;
mod requests;
mod runs;

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

pub use exposition::{
    ConstGauge, Exposition, FAILURE, Family, MetricType, SUCCESS,
    families::{self, FAMILIES},
};
pub use process::write_process;
pub use proxied::Proxied;
pub use requests::{Requests, Rpc};
pub use runs::{CallStatus, Calls, ProviderMetrics, ProviderTable, RunOutcome, RunReason};

/// After an event passes, events of the same key are only counted for this time.
const QUIET: Duration = Duration::from_secs(60);
/// Keys that are remembered. A peer that makes more of them, for example by its uid, shares one key with the rest.
const KEYS: usize = 256;

/// All counts of one broker, by component.
#[derive(Debug, Default)]
pub struct Metrics {
    /// The plugin runs as client-go counts them.
    pub calls: Calls,
    /// Credentials and runs of each provider.
    pub providers: ProviderTable,
    /// Requests, by RPC and result.
    pub requests: Requests,
    /// Warnings about plugins that are not installed, by provider.
    pub missing: Sparse<Arc<str>>,
    /// Warnings about denied requests, by uid and reason.
    pub denied: Sparse<(u32, &'static str)>,
}

/// Warnings about events that a peer can cause as often as it likes: the first of many equal ones passes, and the others
/// are counted.
#[derive(Debug, Default)]
pub struct Sparse<K> {
    seen: Mutex<HashMap<Option<K>, LastSeen>>,
}

#[derive(Debug, Default)]
struct LastSeen {
    /// Time since boot from which on the next event passes.
    until: Duration,
    suppressed: u64,
}

impl<K: Eq + Hash> Sparse<K> {
    /// `Some`: the event of `key` at `now`, a time since boot, passes; with the number of equal events that did not pass
    /// since the last one that did.
    pub fn admit(&self, key: K, now: Duration) -> Option<u64> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Some(key);
        let key = if seen.len() < KEYS || seen.contains_key(&key) { key } else { None };
        let event = seen.entry(key).or_default();
        if now < event.until {
            event.suppressed += 1;
            return None;
        }
        event.until = now.saturating_add(QUIET);
        Some(std::mem::take(&mut event.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_passes_and_the_next_one_has_the_count_of_the_others() {
        let (sparse, at) = (Sparse::default(), Duration::from_secs);
        assert_eq!(sparse.admit("a", at(0)), Some(0));
        assert_eq!(sparse.admit("b", at(1)), Some(0));
        for second in 1..60 {
            assert_eq!(sparse.admit("a", at(second)), None);
        }
        assert_eq!(sparse.admit("a", at(60)), Some(59));
        assert_eq!(sparse.admit("a", at(61)), None);
    }

    #[test]
    fn a_peer_that_makes_up_keys_gets_no_more_lines_than_there_are_keys() {
        let sparse = Sparse::default();
        let passed = (0..10_000).filter(|key| sparse.admit(*key, Duration::ZERO).is_some()).count();
        assert_eq!(passed, KEYS + 1);
    }
}
