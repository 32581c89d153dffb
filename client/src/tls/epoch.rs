//! The time of one certificate, from its first connection to its last.

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
use crate::{Credential, CredentialSource};

/// One identity, its config, and the end of its connections.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(crate) identity: Option<Identity>,
    pub(crate) config: Arc<ClientConfig>,
    /// Its connections end with this, whatever they are doing.
    pub(crate) closing: CancellationToken,
    /// Counts its ends and returns, so that an old deadline does not end a new life.
    turns: AtomicU64,
}

/// Which one it is, kept in step with a source.
#[derive(Debug)]
pub(crate) struct Epochs {
    pub(crate) source: CredentialSource,
    pub(crate) settings: Settings,
    current: ArcSwap<Epoch>,
    /// The credential that `current` was made for; most looks at it end there.
    last: ArcSwapOption<Credential>,
    draining: Mutex<Vec<Arc<Epoch>>>,
}

impl Epochs {
    /// Starts with nobody's epoch; the first credential ends it without closing anything.
    pub(crate) fn new(source: CredentialSource, settings: Settings) -> Self {
        let first = Epoch::new(None, &settings);
        let (current, last, draining) =
            (ArcSwap::from_pointee(first), ArcSwapOption::empty(), Mutex::default());
        Self { source, settings, current, last, draining }
    }

    /// The epoch that is, whatever the source has by now.
    pub(crate) fn known(&self) -> Arc<Epoch> {
        self.current.load_full()
    }

    /// The epoch of the source's newest credential. Every decision about a connection begins here.
    pub(crate) fn current(self: &Arc<Self>) -> Result<Arc<Epoch>, IdentityError> {
        let Some(newest) = self.source.current() else { return Ok(self.current.load_full()) };
        if self.last.load().as_ref().is_some_and(|last| Arc::ptr_eq(last, &newest)) {
            return Ok(self.current.load_full());
        }
        let mut draining = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
        // Read again under the lock: whoever waited for it may hold an older one by now.
        let newest = self.source.current().unwrap_or(newest);
        let provider = self.settings.provider();
        let identity = newest.identity().map(|identity| Identity::parse(identity, provider)).transpose()?;
        let current = self.current.load_full();
        let is_first = self.last.swap(Some(newest)).is_none();
        if current.identity == identity {
            return Ok(current);
        }
        // Back to an identity whose connections still drain: those carry the newest, and stay.
        let returned = draining.iter().position(|epoch| epoch.identity == identity);
        let next = match returned {
            Some(index) => draining.swap_remove(index),
            None => Arc::new(Epoch::new(identity, &self.settings)),
        };
        next.turns.fetch_add(1, Ordering::SeqCst);
        self.current.store(Arc::clone(&next));
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

impl Epoch {
    fn new(identity: Option<Identity>, settings: &Settings) -> Self {
        let config = settings.config_for(identity.as_ref());
        Self { identity, config, closing: settings.ends.child_token(), turns: AtomicU64::new(0) }
    }
}

/// Unless the identity came back in the meantime. Nobody holds on to the client for this.
async fn close_later(epochs: Weak<Epochs>, epoch: Arc<Epoch>, turn: u64, limit: Duration) {
    sleep(limit).await;
    let epochs = epochs.upgrade();
    let mut draining =
        epochs.as_ref().map(|epochs| epochs.draining.lock().unwrap_or_else(PoisonError::into_inner));
    if epoch.turns.load(Ordering::SeqCst) == turn {
        if let Some(draining) = &mut draining {
            draining.retain(|other| !Arc::ptr_eq(other, &epoch));
        }
        epoch.closing.cancel();
    }
}
