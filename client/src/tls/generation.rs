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
    settings::Settings,
};
use crate::{credential::Credential, source::handle::CredentialSource};

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
            None => Arc::new(IdentityGeneration::new(identity, &self.settings)),
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
        if self.settings.drain.is_zero() {
            current.closing.cancel();
        } else {
            draining.push(Arc::clone(&current));
            let close = close_later(Arc::downgrade(self), current, turn, self.settings.drain);
            #[expect(clippy::disallowed_methods, reason = "ends at the drain deadline")]
            tokio::spawn(close);
        }
        Ok(next)
    }
}

impl IdentityGeneration {
    fn new(identity: Option<Identity>, settings: &Settings) -> Self {
        let config = settings.config_for(identity.as_ref());
        Self { identity, config, closing: settings.ends.child_token(), turns: AtomicU64::new(0) }
    }
}

/// Closes the connections of `generation` at the drain deadline, unless it came back. It does not keep the client alive.
async fn close_later(
    generations: Weak<IdentityGenerations>,
    generation: Arc<IdentityGeneration>,
    turn: u64,
    limit: Duration,
) {
    sleep(limit).await;
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

#[cfg(test)]
mod tests;
