//! The two loops that keep a source current: one follows, one reports.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt};
use tokio::time::sleep;

use super::{
    backoff::Backoff,
    state::{Rejection, State},
};
use crate::Error;

/// Between two reports of one source: the broker limits its plugin runs, this limits the calls.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);

/// Whoever shows what watches bring.
pub(crate) trait Keeps<T> {
    /// A watch begins: its first messages say how everything is now.
    fn begin(&mut self);

    /// Shows `message` from now on; says whether there was news in it.
    fn keep(&mut self, message: T) -> bool;

    /// The watch ended, or there was none.
    fn fail(&mut self, error: Error);
}

/// Shows what the watches bring, one watch after the other, for ever.
pub(crate) async fn follow<T, F, W, S>(mut keeper: impl Keeps<T>, mut watch: F)
where
    F: FnMut() -> W,
    W: Future<Output = Result<S, Error>>,
    S: Stream<Item = Result<T, Error>> + Unpin,
{
    let mut backoff = Backoff::default();
    loop {
        let failure = match watch().await {
            Ok(messages) => keep_all(&mut keeper, messages, &mut backoff).await,
            Err(error) => Some(error),
        };
        let pause = backoff.next(failure.as_ref(), fastrand::f64());
        if let Some(error) = failure {
            keeper.fail(error);
        }
        sleep(pause).await;
    }
}

/// Until the watch ends; why it did.
async fn keep_all<T, S>(keeper: &mut impl Keeps<T>, mut messages: S, backoff: &mut Backoff) -> Option<Error>
where
    S: Stream<Item = Result<T, Error>> + Unpin,
{
    keeper.begin();
    loop {
        match messages.next().await? {
            // Not with every message: a watch that ends after its first one is not to be repeated in a hot loop.
            Ok(message) => {
                if keeper.keep(message) {
                    backoff.reset();
                }
            }
            Err(error) => return Some(error),
        }
    }
}

/// Tells the broker of each generation that was rejected, one at a time, for ever. `report` resolves to the generation
/// to use instead. What it is comes over the watch: with two writers, an old answer could overtake a new message.
pub(crate) async fn report<F, R>(state: Arc<State>, mut report: F)
where
    F: FnMut(String) -> R,
    R: Future<Output = Result<String, Error>>,
{
    let mut rejections = state.rejection.subscribe();
    loop {
        let seen = match &*rejections.borrow_and_update() {
            Rejection::Seen(generation) => Some(Arc::clone(generation)),
            Rejection::Nothing | Rejection::Reported { .. } => None,
        };
        if let Some(generation) = seen {
            let instead = report(generation.as_ref().to_owned()).await;
            let replaced = instead.is_ok_and(|instead| instead != *generation);
            let reported = Rejection::Reported { generation: Arc::clone(&generation), replaced };
            replace(&state, &Rejection::Seen(generation), reported.clone());
            sleep(BETWEEN_REPORTS).await;
            replace(&state, &reported, Rejection::Nothing);
        } else if rejections.changed().await.is_err() {
            return;
        }
    }
}

/// Unless another generation was rejected meanwhile.
fn replace(state: &State, before: &Rejection, after: Rejection) {
    state.rejection.send_if_modified(|rejection| {
        let is_same = rejection == before;
        if is_same {
            *rejection = after;
        }
        is_same
    });
}
