//! The state that the readers of a source share with its task.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::watch;

use crate::{clock::Clock, credential::Credential, error::Error, supervisor::Follower};

/// The source's task writes it. Readers never wait.
#[derive(Debug)]
pub(crate) struct SourceState {
    current: ArcSwapOption<Credential>,
    /// Belongs to the credentials that come from now on; see [`Credential::until`].
    withdrawn: ArcSwap<AtomicBool>,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) rejection: watch::Sender<Rejection>,
    clock: Clock,
}

/// The progress of the watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Counts changes of the generation or of its cluster.
    pub(crate) rotations: u64,
    /// Counts how often all earlier credentials were withdrawn.
    pub(crate) withdrawals: u64,
    /// Why there is no newer credential. Cleared by the next message.
    pub(crate) failure: Option<Error>,
}

/// The report that is pending or was answered. There is one at a time, however many requests were rejected.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Rejection {
    #[default]
    Nothing,
    /// An API server answered 401 to this generation.
    Seen(Arc<str>),
    /// The broker has the report; `replaced` says whether it has another credential.
    Reported { generation: Arc<str>, replaced: bool },
}

impl SourceState {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            current: ArcSwapOption::empty(),
            withdrawn: ArcSwap::default(),
            progress: watch::Sender::default(),
            rejection: watch::Sender::default(),
            clock,
        }
    }

    /// The newest credential, unless it has expired or was withdrawn.
    pub(crate) fn current(&self) -> Option<Arc<Credential>> {
        let newest = self.current.load();
        let valid = newest.as_ref().is_some_and(|credential| self.is_valid(credential));
        // A guard turns into an `Arc` by a reference count at most.
        if valid { arc_swap::Guard::into_inner(newest) } else { None }
    }

    pub(crate) fn is_valid(&self, credential: &Credential) -> bool {
        credential.is_valid((self.clock)())
    }

    /// Replaces the current credential. Returns whether the generation or the cluster is new.
    fn publish(&self, credential: Credential) -> bool {
        let before = self.current.load();
        // A plugin that does not receive the cluster issues the same credential before and after a move.
        let is_new = before.as_ref().is_none_or(|before| {
            before.generation() != credential.generation() || before.cluster() != credential.cluster()
        });
        let credential = credential.until(self.withdrawn.load_full());
        self.current.store(Some(Arc::new(credential)));
        self.progress.send_modify(|progress| {
            progress.failure = None;
            progress.rotations += u64::from(is_new);
        });
        is_new
    }

    /// No credential that has come so far is returned again, also not by the sources of single endpoints.
    fn withdraw(&self) {
        self.withdrawn.swap(Arc::default()).store(true, Ordering::Release);
        self.current.store(None);
        self.progress.send_modify(|progress| progress.withdrawals += 1);
    }

    /// Notes a 401, unless it is noted already or the generation is no longer current.
    pub(crate) fn reject(&self, generation: &str) {
        if self.current.load().as_ref().is_none_or(|credential| credential.generation() != generation) {
            return;
        }
        self.rejection.send_if_modified(|rejection| {
            let known = match rejection {
                Rejection::Nothing => false,
                Rejection::Seen(known) | Rejection::Reported { generation: known, .. } => {
                    **known == *generation
                }
            };
            if !known {
                *rejection = Rejection::Seen(generation.into());
            }
            !known
        });
    }
}

impl Follower<Credential> for Arc<SourceState> {
    /// The broker accepts the watch, so it runs, and the credential after a withdrawal is waited for.
    fn begin(&mut self) {
        self.progress.send_if_modified(|progress| {
            let is_over = |error: &mut Error| error.may_be_starting() || error.withdraws();
            progress.failure.take_if(is_over).is_some()
        });
    }

    fn apply(&mut self, credential: Credential) -> bool {
        self.publish(credential)
    }

    fn fail(&mut self, error: Error) {
        if error.withdraws() {
            self.withdraw();
        }
        self.progress.send_modify(|progress| progress.failure = Some(error));
    }
}
