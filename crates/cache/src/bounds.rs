//! The bounds of the cache, in entries and in bytes, and which entry gives way at one. Pure.
//!
//! What the variables or the cluster of a caller select belongs to the uid of that caller. There can be any number of such
//! entries, so the uids share the room: the least recently used idle entry of the uid with the most gives way, and a uid
//! below its fair part loses nothing. All other entries are the broker's. The configuration limits their number; one of them
//! gives way only if none of a uid does, after a minute without a request.

use std::{
    collections::{BTreeSet, HashMap},
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use super::rejection::Caller;
use credbroker_observe::clock::Now;
use credbroker_plugin::{PluginKey, PluginSpec};

/// An entry of the broker gives way only if there was no request for it in this time.
pub(crate) const EVICTABLE_AFTER: Duration = Duration::from_secs(60);
/// Entries that are looked at for the least recently used one, if requests were answered from all of them since they were
/// listed. It bounds the time under the lock.
const LOOKED_AT: usize = 32;
/// An entry that is not listed as idle.
const NOT_LISTED: u64 = u64::MAX;

/// How much the cache may hold.
#[derive(Clone, Copy, Debug)]
pub struct EntryLimits {
    /// Entries.
    pub entries: usize,
    /// Bytes of their credentials, and of the variables and clusters of callers that select them.
    pub bytes: usize,
}

/// The bound that leaves no room for another key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Full {
    /// `limits.entries`.
    #[error(
        "the broker holds {limit} credentials, which is the limit (`limits.entries`), and all are in use; raise it"
    )]
    Entries {
        /// `limits.entries`.
        limit: usize,
    },
    /// `limits.entryBytes`.
    #[error(
        "the credentials that the broker holds, and what selects them, have {limit} bytes, which is the limit (`limits.entryBytes`), and all are in use; raise it"
    )]
    Bytes {
        /// `limits.entryBytes`.
        limit: usize,
    },
}

impl Full {
    /// The key of the configuration.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Entries { .. } => "limits.entries",
            Self::Bytes { .. } => "limits.entryBytes",
        }
    }
}

/// Whose entries: those of a uid, or the broker's (`None`).
pub(crate) type Party = Option<u32>;

/// What one entry counts. It changes under the lock of the [`Bounds`], except for the time of its last request.
#[derive(Debug)]
pub(crate) struct Share {
    pub party: Party,
    /// Bytes of the variables and the cluster that select it, if they are a caller's.
    sent: usize,
    credential: AtomicUsize,
    /// Callers that wait for it, and watches.
    uses: AtomicUsize,
    /// Milliseconds since boot of the last request.
    last_used: AtomicU64,
    /// The last caller, or [`Caller::BROKER`].
    last_peer: AtomicU64,
    /// The time of the last request when it was listed as idle, or [`NOT_LISTED`].
    listed: AtomicU64,
    /// It counts.
    is_in_map: AtomicBool,
}

/// The entries in the map, by whose they are.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub limits: EntryLimits,
    total: Held,
    parties: HashMap<Party, Account>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    entries: usize,
    bytes: usize,
}

/// What one party has.
#[derive(Debug, Default)]
struct Account {
    held: Held,
    /// Entries without callers and watches, by the time at which they were listed. Answers from memory do not change the
    /// order; that is made up for when an entry has to give way.
    idle: BTreeSet<(u64, PluginKey)>,
}

impl Share {
    /// That of a new entry, which `peer` asked for at `now`.
    pub(crate) fn new(spec: &PluginSpec, peer: u64, now: Now) -> Self {
        let sent = sent_bytes(spec).filter(|_| peer != Caller::BROKER);
        Self {
            party: sent.map(|_| uid(peer)),
            sent: sent.unwrap_or_default(),
            credential: AtomicUsize::default(),
            uses: AtomicUsize::default(),
            last_used: AtomicU64::new(millis(now)),
            last_peer: AtomicU64::new(peer),
            listed: AtomicU64::new(NOT_LISTED),
            is_in_map: AtomicBool::default(),
        }
    }

    /// Notes a request of `peer` at `now`.
    pub(crate) fn touch(&self, peer: u64, now: Now) {
        self.last_used.store(millis(now), Ordering::Relaxed);
        if peer != Caller::BROKER {
            self.last_peer.store(peer, Ordering::Relaxed);
        }
    }

    /// The uid of the last caller.
    pub(crate) fn last_uid(&self) -> Party {
        Some(self.last_peer.load(Ordering::Relaxed)).filter(|peer| *peer != Caller::BROKER).map(uid)
    }

    /// The time since the last request.
    pub(crate) fn idle(&self, now: Now) -> Duration {
        Duration::from_millis(millis(now).saturating_sub(self.last_used.load(Ordering::Relaxed)))
    }

    /// Whether a caller waits or watches.
    pub(crate) fn is_in_use(&self) -> bool {
        self.uses.load(Ordering::Relaxed) > 0
    }

    /// Whether its entry is in the map.
    pub(crate) fn is_in_map(&self) -> bool {
        self.is_in_map.load(Ordering::Relaxed)
    }

    /// What it counts.
    pub(crate) fn bytes(&self) -> usize {
        self.sent + self.credential.load(Ordering::Relaxed)
    }
}

impl Bounds {
    pub(crate) fn new(limits: EntryLimits) -> Self {
        Self { limits, total: Held::default(), parties: HashMap::new() }
    }

    /// Counts a new entry.
    pub(crate) fn add(&mut self, share: &Share) {
        share.is_in_map.store(true, Ordering::Relaxed);
        self.count(share.party, |held| {
            held.entries += 1;
            held.bytes += share.bytes();
        });
    }

    /// An entry that is no longer in the map does not count.
    pub(crate) fn remove(&mut self, key: PluginKey, share: &Share) {
        if !share.is_in_map.swap(false, Ordering::Relaxed) {
            return;
        }
        self.unlist(key, share);
        self.count(share.party, |held| {
            held.entries -= 1;
            held.bytes -= share.bytes();
        });
        if self.parties.get(&share.party).is_some_and(|account| account.held.entries == 0) {
            self.parties.remove(&share.party);
        }
    }

    /// The credential of an entry has so many bytes now.
    pub(crate) fn resize(&mut self, share: &Share, bytes: usize) {
        let before = share.credential.swap(bytes, Ordering::Relaxed);
        if share.is_in_map() {
            self.count(share.party, |held| held.bytes = held.bytes + bytes - before);
        }
    }

    /// A caller waits or watches.
    pub(crate) fn enter(&mut self, key: PluginKey, share: &Share) {
        if share.uses.fetch_add(1, Ordering::Relaxed) == 0 {
            self.unlist(key, share);
        }
    }

    /// A caller has left.
    pub(crate) fn leave(&mut self, key: PluginKey, share: &Share) {
        if share.uses.fetch_sub(1, Ordering::Relaxed) == 1 && share.is_in_map() {
            let used = share.last_used.load(Ordering::Relaxed);
            share.listed.store(used, Ordering::Relaxed);
            self.parties.entry(share.party).or_default().idle.insert((used, key));
        }
    }

    /// The bound that is exceeded.
    pub(crate) fn exceeded(&self) -> Option<Full> {
        let EntryLimits { entries, bytes } = self.limits;
        if self.total.entries > entries {
            return Some(Full::Entries { limit: entries });
        }
        (self.total.bytes > bytes).then_some(Full::Bytes { limit: bytes })
    }

    /// The entry that gives way at `full`, for a new one of `newcomer`, which counts already. `find` finds the share of an
    /// idle entry; `None`: its plugin is running.
    pub(crate) fn victim<'a>(
        &mut self,
        full: Full,
        newcomer: Party,
        now: Now,
        find: impl Fn(&PluginKey) -> Option<&'a Share>,
    ) -> Option<PluginKey> {
        let (limit, held): (_, fn(&Held) -> usize) = match full {
            Full::Entries { limit } => (limit, |held| held.entries),
            Full::Bytes { limit } => (limit, |held| held.bytes),
        };
        // What the broker's entries leave is shared by the uids.
        let of_broker = self.parties.get(&None).map_or(0, |account| held(&account.held));
        let room = limit.saturating_sub(of_broker);
        let uids = self.parties.keys().flatten().count();
        let has_more = |party: Party, held: usize| party == newcomer || held.saturating_mul(uids) > room;
        let mut uids: Vec<_> = self
            .parties
            .iter()
            .filter(|(party, account)| party.is_some() && !account.idle.is_empty())
            .map(|(party, account)| (held(&account.held), *party == newcomer, *party))
            .filter(|(held, _, party)| has_more(*party, *held))
            .collect();
        uids.sort_unstable();
        let of_uids = uids.into_iter().rev().find_map(|(.., uid)| self.oldest(uid, u64::MAX, &find));
        of_uids.or_else(|| {
            let boot = now.boot.checked_sub(EVICTABLE_AFTER)?;
            self.oldest(None, millis(Now { boot, ..now }), &find)
        })
    }

    /// The least recently used idle entry of `party`, if it was not used after `until`.
    fn oldest<'a>(
        &mut self,
        party: Party,
        until: u64,
        find: &impl Fn(&PluginKey) -> Option<&'a Share>,
    ) -> Option<PluginKey> {
        let account = self.parties.get_mut(&party)?;
        let (mut touched, mut oldest) = (Vec::new(), None);
        for (listed, key) in &account.idle {
            let Some(share) = find(key) else { continue };
            let used = share.last_used.load(Ordering::Relaxed);
            if oldest.is_none_or(|(at, _)| used < at) {
                oldest = Some((used, *key));
            }
            // All that follow were used after this one.
            if used <= *listed || touched.len() == LOOKED_AT {
                break;
            }
            touched.push((*listed, *key, used, share));
        }
        for (listed, key, used, share) in touched {
            account.idle.remove(&(listed, key));
            account.idle.insert((used, key));
            share.listed.store(used, Ordering::Relaxed);
        }
        oldest.filter(|(used, _)| *used <= until).map(|(_, key)| key)
    }

    fn unlist(&mut self, key: PluginKey, share: &Share) {
        let listed = share.listed.swap(NOT_LISTED, Ordering::Relaxed);
        if let Some(account) = self.parties.get_mut(&share.party).filter(|_| listed != NOT_LISTED) {
            account.idle.remove(&(listed, key));
        }
    }

    fn count(&mut self, party: Party, change: impl Fn(&mut Held)) {
        change(&mut self.total);
        change(&mut self.parties.entry(party).or_default().held);
    }
}

/// The upper half of a peer is its uid.
pub(crate) fn uid(peer: u64) -> u32 {
    u32::try_from(peer >> 32).unwrap_or(u32::MAX)
}

/// The bytes that a caller sent to select `spec`; `None`: no part of it is the caller's.
fn sent_bytes(spec: &PluginSpec) -> Option<usize> {
    let variables = spec.caller_env.iter().map(|(name, value)| name.len() + value.len());
    let cluster = spec.cluster.as_ref().filter(|_| spec.target.is_none());
    if spec.caller_env.is_empty() && cluster.is_none() {
        return None;
    }
    let cluster = cluster.map_or(0, |cluster| {
        let texts = [&cluster.server, &cluster.tls_server_name, &cluster.proxy_url].map(String::len);
        texts.iter().sum::<usize>() + cluster.certificate_authority_data.len() + cluster.config.len()
    });
    Some(variables.sum::<usize>() + cluster)
}

fn millis(now: Now) -> u64 {
    u64::try_from(now.boot.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
