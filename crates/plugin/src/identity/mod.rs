//! The files that select the account of a run, and a digest of what in them selects it. Keeps no content.

mod aws;
mod rules;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_lc_rs::digest::{Context, SHA256};
use tokio::sync::Notify;

use self::rules::{Rule, rules};
use super::provider::Provider;
use credbroker_credential::Sha256;

/// The files that select the account of some runs, and the number of accounts that they selected so far.
#[derive(Debug)]
pub struct IdentityFiles {
    rules: Vec<Rule>,
    /// Held while the files are read, so that no older content replaces a newer one.
    pub turn: Arc<tokio::sync::Mutex<()>>,
    /// Twice the number of accounts, plus 1 while the files may have changed and were not read since.
    stamp: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    digest: Option<Sha256>,
    /// The files that were read, and whether they had content.
    files: BTreeMap<PathBuf, bool>,
    /// Since when a file that had content has none, since boot.
    lost_since: Option<Duration>,
    touches: u64,
}

impl IdentityFiles {
    /// How long the account stays the same after a file has lost its content: many programs empty one before they write it.
    pub const GRACE: Duration = Duration::from_millis(500);

    /// The files for a run of `provider` with these variables of a caller, not read yet. `None`: none are known.
    pub fn of(provider: &Provider, caller_env: &BTreeMap<String, String>) -> Option<Self> {
        let rules = Some(rules(provider, caller_env)).filter(|rules| !rules.is_empty())?;
        Some(Self { rules, turn: Arc::default(), stamp: AtomicU64::new(1), seen: Mutex::default() })
    }

    /// The number of accounts that the files selected so far.
    pub fn version(&self) -> u64 {
        self.stamp.load(Ordering::Acquire) >> 1
    }

    /// Whether the files may select another account than when they were read.
    pub fn is_unsettled(&self) -> bool {
        self.stamp.load(Ordering::Acquire) & 1 == 1
    }

    /// The files that were read last.
    pub fn files(&self) -> Vec<PathBuf> {
        self.seen().files.keys().cloned().collect()
    }

    /// Whether a file has lost its content less than [`GRACE`](Self::GRACE) before it was read.
    pub fn is_losing(&self) -> bool {
        self.seen().lost_since.is_some()
    }

    /// Notes that a file may have changed: the next request reads them.
    pub fn touch(&self) {
        let mut seen = self.seen();
        seen.touches += 1;
        self.stamp.fetch_or(1, Ordering::AcqRel);
    }

    /// Reads the files with `read`, which returns nothing for a file without content, and returns the version of the account.
    /// `None`: a file has just lost its content, so a plugin may read another account now.
    pub fn judge<C: AsRef<[u8]>>(
        &self,
        mut read: impl FnMut(&Path) -> C,
        now: impl FnOnce() -> Duration,
    ) -> Option<u64> {
        let touches = self.seen().touches;
        let (mut digest, mut files) = (Context::new(&SHA256), BTreeMap::new());
        let mut read = |path: &Path| {
            let content = read(path);
            files.insert(path.to_owned(), !content.as_ref().is_empty());
            content
        };
        for rule in &self.rules {
            rule.select(&mut read, |part| {
                digest.update(&(part.len() as u64).to_le_bytes());
                digest.update(part);
            });
        }
        let (digest, mut seen, now) = (Some(Sha256::from(digest.finish())), self.seen(), now());
        let is_lost = files.iter().any(|(file, is_there)| !is_there && seen.files.get(file) == Some(&true));
        let since = is_lost.then(|| seen.lost_since.unwrap_or(now));
        seen.lost_since = since.filter(|since| now < since.saturating_add(Self::GRACE));
        let (is_certain, mut version) = (seen.lost_since.is_none(), self.version());
        if is_certain {
            version += u64::from(seen.digest != digest);
            (seen.digest, seen.files) = (digest, files);
        }
        self.stamp.store(version << 1 | u64::from(seen.touches != touches), Ordering::Release);
        is_certain.then_some(version)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The [`IdentityFiles`] of all credentials. Runs whose account the same files select share them.
#[derive(derive_more::Debug, Default)]
pub struct Identities {
    known: Mutex<HashMap<Vec<Rule>, Weak<IdentityFiles>>>,
    added: Notify,
    /// Whether the kernel has reported a change that was not read yet.
    #[debug(skip)]
    has_news: OnceLock<HasNews>,
    /// Whether reports are being read, and the files are not touched yet.
    is_reading: AtomicBool,
}

type HasNews = Box<dyn Fn() -> bool + Send + Sync>;

impl Identities {
    /// As [`IdentityFiles::of`].
    pub fn of(
        &self,
        provider: &Provider,
        caller_env: &BTreeMap<String, String>,
    ) -> Option<Arc<IdentityFiles>> {
        let new = Arc::new(IdentityFiles::of(provider, caller_env)?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.get(&new.rules).and_then(Weak::upgrade);
        Some(same.unwrap_or_else(|| {
            known.insert(new.rules.clone(), Arc::downgrade(&new));
            self.added.notify_one();
            new
        }))
    }

    /// Those that a credential depends on.
    pub fn all(&self) -> Vec<Arc<IdentityFiles>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, files| files.strong_count() > 0);
        known.values().filter_map(Weak::upgrade).collect()
    }

    /// Reads reports of the kernel with `read`, which returns whether a file may have changed. Then any file may have:
    /// through links and other names, one file may be another.
    pub fn read(&self, read: impl FnOnce() -> bool) -> bool {
        self.is_reading.store(true, Ordering::SeqCst);
        let is_touched = read();
        if is_touched {
            self.touch();
        }
        self.is_reading.store(false, Ordering::SeqCst);
        is_touched
    }

    fn touch(&self) {
        self.all().iter().for_each(|files| files.touch());
    }

    /// Sets how [`meet`](Self::meet) learns of a change. Only the first call counts.
    pub fn follow(&self, has_news: impl Fn() -> bool + Send + Sync + 'static) {
        // An error means that it was set before.
        drop(self.has_news.set(Box::new(has_news)));
    }

    /// A process has connected. Who changed a file before must not get the account before, although the kernel's report of the
    /// change may still wait to be read.
    pub fn meet(&self) {
        // In this order: a report that does not wait any longer was read, and its files are touched or about to be.
        let has_news = self.has_news.get().is_some_and(|has_news| has_news());
        if has_news || self.is_reading.load(Ordering::SeqCst) {
            self.touch();
        }
    }

    /// Waits until there are new ones. Cancel safe.
    pub async fn added(&self) {
        self.added.notified().await;
    }
}

#[cfg(test)]
mod tests;
