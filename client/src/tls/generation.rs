//! One identity, from its first connection to its last.

use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::ClientConfig;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    identity::{Identity, IdentityError},
    settings::{Drain, Settings},
    validity::not_after,
};
use crate::{
    clock::{self, expiry::Expiry},
    credential::Credential,
    source::handle::CredentialSource,
};

/// The clocks are read this often.
const LOOK: Duration = Duration::from_secs(60);
/// The turn of a closed generation. None follows it.
const CLOSED: u64 = u64::MAX;

/// One identity, its TLS config, and the end of its connections.
#[derive(Debug)]
pub(super) struct IdentityGeneration {
    pub(super) identity: Option<Identity>,
    pub(super) config: Arc<ClientConfig>,
    /// Cancelled when its connections must end, even during a request.
    pub(super) closing: CancellationToken,
    /// Counts how often the identity was replaced and came back, so that an old deadline does not close it after it came
    /// back. `CLOSED`: it cannot come back.
    turns: AtomicU64,
    /// When its certificate expires.
    expiry: Option<Expiry>,
}

/// The identities of a source: the current one, and those whose connections drain, which keep them.
#[derive(Debug)]
pub(super) struct IdentityGenerations {
    pub(super) source: CredentialSource,
    pub(super) settings: Settings,
    current: ArcSwap<IdentityGeneration>,
    /// The credential that `current` belongs to. Most reads end with comparing it.
    last: ArcSwapOption<Credential>,
    draining: Mutex<Vec<Weak<IdentityGeneration>>>,
}

impl IdentityGenerations {
    /// Begins without an identity. The first credential replaces this generation without closing anything.
    pub(super) fn new(source: CredentialSource, settings: Settings) -> Self {
        let first = IdentityGeneration::new(None, &settings);
        let (current, last, draining) =
            (ArcSwap::from_pointee(first), ArcSwapOption::empty(), Mutex::default());
        Self { source, settings, current, last, draining }
    }

    /// The generation of the last call of [`Self::current`].
    pub(super) fn known(&self) -> Arc<IdentityGeneration> {
        self.current.load_full()
    }

    /// The generation of the source's newest credential. Every decision about a connection begins here.
    pub(super) fn current(&self) -> Result<Arc<IdentityGeneration>, IdentityError> {
        let Some(newest) = self.source.current() else { return Ok(self.current.load_full()) };
        if self.last.load().as_ref().is_some_and(|last| Arc::ptr_eq(last, &newest)) {
            return Ok(self.current.load_full());
        }
        let mut draining = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
        // Read again under the lock: the credential may have been replaced while this call waited for it.
        let newest = self.source.current().unwrap_or(newest);
        let provider = self.settings.provider();
        let identity = newest.identity().map(|identity| Identity::parse(identity, provider)).transpose()?;
        let current = self.current.load_full();
        let is_first = self.last.load().is_none();
        if current.identity == identity {
            self.last.store(Some(newest));
            return Ok(current);
        }
        // The connections of an identity that comes back while they drain are current again, and stay.
        let next = draining
            .iter()
            .filter_map(Weak::upgrade)
            .find(|generation| generation.identity == identity && generation.comes_back())
            .unwrap_or_else(|| self.begin(identity));
        draining.retain(|other| other.strong_count() > 0 && other.as_ptr() != Arc::as_ptr(&next));
        // In this order: a reader that finds the credential in `last` takes `current` for its generation, without the
        // lock.
        self.current.store(Arc::clone(&next));
        self.last.store(Some(newest));
        if is_first {
            return Ok(next);
        }
        draining.push(Arc::downgrade(&current));
        let turn = current.turns.load(Ordering::SeqCst);
        match self.settings.drain {
            Drain::After(Duration::ZERO) => current.close_in(turn),
            Drain::After(limit) => {
                let close = close_later(Arc::downgrade(&current), turn, limit);
                #[expect(clippy::disallowed_methods, reason = "ends at the drain deadline")]
                tokio::spawn(close);
            }
            Drain::Natural => {}
        }
        Ok(next)
    }

    /// A new generation. With [`Drain::Natural`], its connections end with its certificate, also if no other one comes.
    fn begin(&self, identity: Option<Identity>) -> Arc<IdentityGeneration> {
        let generation = Arc::new(IdentityGeneration::new(identity, &self.settings));
        if let (Drain::Natural, Some(expiry)) = (self.settings.drain, generation.expiry) {
            #[expect(
                clippy::disallowed_methods,
                reason = "ends with the generation, or when its certificate expires"
            )]
            tokio::spawn(close_when_expired(expiry, Arc::downgrade(&generation)));
        }
        generation
    }
}

impl IdentityGeneration {
    fn new(identity: Option<Identity>, settings: &Settings) -> Self {
        let config = settings.config_for(identity.as_ref());
        let leaf = identity.as_ref().and_then(|identity| identity.certified.cert.first());
        let expiry = leaf.and_then(|leaf| not_after(leaf)).map(|at| Expiry::at(at, clock::system()));
        let (closing, turns) = (settings.ends.child_token(), AtomicU64::new(0));
        Self { identity, config, closing, turns, expiry }
    }

    /// Begins its next turn. False: it is closed.
    fn comes_back(&self) -> bool {
        let next = |turn: u64| turn.checked_add(1);
        self.turns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
    }

    /// Closes its connections if `turn` is its turn.
    fn close_in(&self, turn: u64) {
        if self.turns.compare_exchange(turn, CLOSED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.closing.cancel();
        }
    }
}

/// Closes the connections of `generation` at the drain deadline, unless it came back. Without a connection it does not stay.
async fn close_later(generation: Weak<IdentityGeneration>, turn: u64, limit: Duration) {
    sleep(limit).await;
    if let Some(generation) = generation.upgrade() {
        generation.close_in(turn);
    }
}

/// Closes the connections of a generation when its certificate expires. An API server does not look again.
async fn close_when_expired(expiry: Expiry, generation: Weak<IdentityGeneration>) {
    while let Some(current) = generation.upgrade() {
        let now = clock::system();
        if !expiry.is_after(now) {
            return current.closing.cancel();
        }
        drop(current);
        sleep(expiry.left(now).min(LOOK)).await;
    }
}

#[cfg(test)]
mod tests;
