//! The loop that keeps a source, or the fleet, current.

use std::future::Future;

use futures_util::{Stream, StreamExt};
use tokio::time::sleep;

use super::backoff::Backoff;
use crate::Error;

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
