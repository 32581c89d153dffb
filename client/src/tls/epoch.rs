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
        let is_first = self.last.load().is_none();
        if current.identity == identity {
            self.last.store(Some(newest));
            return Ok(current);
        }
        // Back to an identity whose connections still drain: those carry the newest, and stay.
        let returned = draining.iter().position(|epoch| epoch.identity == identity);
        let next = match returned {
            Some(index) => draining.swap_remove(index),
            None => Arc::new(Epoch::new(identity, &self.settings)),
        };
        next.turns.fetch_add(1, Ordering::SeqCst);
        // In this order: who finds the credential in `last` takes `current` for its epoch, without the lock.
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

#[cfg(test)]
mod tests {
    use credbroker_proto::v1;
    use credbroker_test_support::{Accepts, ApiServer};

    use super::*;
    use crate::{clock::tests::paused, source::tests::Fake};

    const ROTATIONS: usize = 2_000;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn no_reader_takes_the_epoch_before_for_that_of_the_newest_credential() {
        let api = ApiServer::start(Accepts::Certificates);
        let pairs = ["x", "y"].map(|name| api.issue_client_certificate(name, Duration::from_secs(3600)));
        let mut fake = Fake::new();
        let broker = fake.broker();
        let settings = Settings::trusting(api.ca_pem().as_bytes()).unwrap().drain(Duration::ZERO);
        let epochs = Arc::new(Epochs::new(fake.source.clone(), settings.clone()));
        let credential = |rotation: usize| {
            let (chain, key) = pairs[rotation % 2].clone();
            let received = v1::Credential {
                generation: rotation.to_string(),
                client_certificate_data: Some(chain.into()),
                client_key_data: Some(key.into()),
                ..v1::Credential::default()
            };
            Credential::receive(received, None, paused()).unwrap()
        };
        let look = || {
            let (source, epochs, provider) =
                (fake.source.clone(), Arc::clone(&epochs), settings.provider().clone());
            let identities = [0, 1].map(|rotation| {
                Identity::parse(credential(rotation).identity().unwrap(), &provider).unwrap()
            });
            move || {
                // Or all who look wait for the one that makes the epoch, and none comes by.
                (0..fastrand::u32(0..4_000)).for_each(|_| std::hint::spin_loop());
                let (before, epoch, after) = (source.current(), epochs.current().unwrap(), source.current());
                // Whether there was a rotation in between is known; then either is right.
                if let (Some(before), Some(after)) = (before, after)
                    && Arc::ptr_eq(&before, &after)
                {
                    let rotation: usize = before.generation().parse().unwrap();
                    assert_eq!(epoch.identity.as_ref(), Some(&identities[rotation % 2]), "{rotation}");
                }
            }
        };
        let (other, here, done) = (look(), look(), CancellationToken::new());
        let ends = done.clone().drop_guard();
        let other = tokio::task::spawn_blocking(move || {
            while !done.is_cancelled() {
                other();
            }
        });
        for rotation in 0..ROTATIONS {
            broker.send(Ok(credential(rotation))).unwrap();
            fake.source.changed().await;
            (0..4).for_each(|_| here());
        }
        drop(ends);
        other.await.unwrap();
    }
}
