//! What the readers of a source and its task share.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;

use super::supervisor::Keeps;
use crate::{Credential, Error, clock::Clock};

/// One writer, the source's task; any number of readers, none of which waits.
#[derive(Debug)]
pub(crate) struct State {
    current: ArcSwapOption<Credential>,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) rejection: watch::Sender<Rejection>,
    clock: Clock,
}

/// How the following goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Counts the generations that were shown, and the moves of one to another endpoint.
    pub(crate) rotations: u64,
    /// Why there is no newer one; gone with the next message.
    pub(crate) failure: Option<Error>,
}

/// What the broker is to know, or answered. One report at a time, however many requests were rejected.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Rejection {
    #[default]
    Nothing,
    /// Somebody saw a 401.
    Seen(Arc<str>),
    /// The broker was told; `replaced` says whether it has another.
    Reported { generation: Arc<str>, replaced: bool },
}

impl State {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            current: ArcSwapOption::empty(),
            progress: watch::Sender::default(),
            rejection: watch::Sender::default(),
            clock,
        }
    }

    /// The newest, unless it has ended.
    pub(crate) fn current(&self) -> Option<Arc<Credential>> {
        let newest = self.current.load();
        let valid = newest.as_ref().is_some_and(|credential| self.is_valid(credential));
        // A guard turns into an `Arc` by a reference count at most.
        if valid { arc_swap::Guard::into_inner(newest) } else { None }
    }

    pub(crate) fn is_valid(&self, credential: &Credential) -> bool {
        credential.is_valid((self.clock)())
    }

    /// Shows `credential` from now on; says whether it is another one than before.
    fn publish(&self, credential: Credential) -> bool {
        let before = self.current.load();
        // A provider that is not told the cluster issues one credential for both ends of a move.
        let is_new = before.as_ref().is_none_or(|before| {
            before.generation() != credential.generation() || before.cluster() != credential.cluster()
        });
        self.current.store(Some(Arc::new(credential)));
        self.progress.send_modify(|progress| {
            progress.failure = None;
            progress.rotations += u64::from(is_new);
        });
        is_new
    }

    /// Takes note of a 401, unless that is known or the generation is history.
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

impl Keeps<Credential> for Arc<State> {
    fn begin(&mut self) {}

    fn keep(&mut self, credential: Credential) -> bool {
        self.publish(credential)
    }

    fn fail(&mut self, error: Error) {
        self.progress.send_modify(|progress| progress.failure = Some(error));
    }
}
