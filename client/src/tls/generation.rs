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

/// One identity, its TLS config, and the end of its connections.
#[derive(Debug)]
pub(super) struct IdentityGeneration {
    pub(super) identity: Option<Identity>,
    pub(super) config: Arc<ClientConfig>,
    /// Cancelled when its connections must end, even during a request.
    pub(super) closing: CancellationToken,
    /// Counts how often the identity was replaced and came back, so that an old deadline does not close it after it came
    /// back.
    turns: AtomicU64,
    /// When its certificate expires.
    expiry: Option<Expiry>,
}

/// The identities of a source: the current one, and those whose connections drain.
#[derive(Debug)]
pub(super) struct IdentityGenerations {
    pub(super) source: CredentialSource,
    pub(super) settings: Settings,
    current: ArcSwap<IdentityGeneration>,
    /// The credential that `current` belongs to. Most reads end with comparing it.
    last: ArcSwapOption<Credential>,
    draining: Mutex<Vec<Arc<IdentityGeneration>>>,
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
    pub(super) fn current(self: &Arc<Self>) -> Result<Arc<IdentityGeneration>, IdentityError> {
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
        let returned = draining.iter().position(|generation| generation.identity == identity);
        let next = match returned {
            Some(index) => draining.swap_remove(index),
            None => self.begin(identity),
        };
        next.turns.fetch_add(1, Ordering::SeqCst);
        // In this order: a reader that finds the credential in `last` takes `current` for its generation, without the
        // lock.
        self.current.store(Arc::clone(&next));
        self.last.store(Some(newest));
        if is_first {
            return Ok(next);
        }
        let turn = current.turns.fetch_add(1, Ordering::SeqCst) + 1;
        if self.settings.drain == Drain::After(Duration::ZERO) {
            current.closing.cancel();
        } else {
            // Those that nothing uses need no deadline. Their number would grow with each rotation.
            draining.retain(IdentityGeneration::is_in_use);
            draining.push(Arc::clone(&current));
            let close = close_later(Arc::downgrade(self), current, turn, self.settings.drain);
            #[expect(clippy::disallowed_methods, reason = "ends at the drain deadline")]
            tokio::spawn(close);
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

    /// Whether it is more than one of those that drain: it has a connection, or is current.
    fn is_in_use(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }
}

/// Closes the connections of `generation` at the drain deadline, unless it came back. It does not keep the client alive.
async fn close_later(
    generations: Weak<IdentityGenerations>,
    generation: Arc<IdentityGeneration>,
    turn: u64,
    drain: Drain,
) {
    let generation = {
        let (expiry, waits) = (generation.expiry, Arc::downgrade(&generation));
        drop(generation);
        match drain {
            Drain::After(limit) => sleep(limit).await,
            Drain::Natural => expired(expiry, &waits).await,
        }
        // Without a connection it does not stay.
        let Some(generation) = waits.upgrade() else { return };
        generation
    };
    let generations = generations.upgrade();
    let mut draining = generations
        .as_ref()
        .map(|generations| generations.draining.lock().unwrap_or_else(PoisonError::into_inner));
    if generation.turns.load(Ordering::SeqCst) == turn {
        if let Some(draining) = &mut draining {
            draining.retain(|other| !Arc::ptr_eq(other, &generation));
        }
        generation.closing.cancel();
    }
}

/// Waits until the clocks say that it is over, or until nothing uses the generation.
async fn expired(expiry: Option<Expiry>, generation: &Weak<IdentityGeneration>) {
    loop {
        let now = clock::system();
        if generation.strong_count() <= 1 || expiry.is_some_and(|expiry| !expiry.is_after(now)) {
            return;
        }
        // A timer does not count suspend, so it only says when to look.
        sleep(expiry.map_or(LOOK, |expiry| expiry.left(now).min(LOOK))).await;
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
