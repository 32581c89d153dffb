//! The loop that keeps a source, or the clusters of the fleet, current.

pub(crate) mod backoff;

use std::future::Future;

use futures_core::Stream;
use futures_util::StreamExt;
use tokio::time::sleep;

use self::backoff::Backoff;
use crate::error::Error;

/// Applies the messages of watches to what readers see.
pub(crate) trait Follower<T> {
    /// A watch begins. Its first messages are the complete state.
    fn begin(&mut self);

    /// Applies a message. Returns whether it changed anything.
    fn apply(&mut self, message: T) -> bool;

    /// The watch ended, or could not begin.
    fn fail(&mut self, error: Error);
}

/// Runs one watch after the other until it is dropped.
pub(crate) async fn run<T, F, W, S>(mut follower: impl Follower<T>, mut watch: F)
where
    F: FnMut() -> W,
    W: Future<Output = Result<S, Error>>,
    S: Stream<Item = Result<T, Error>> + Unpin,
{
    let mut backoff = Backoff::default();
    loop {
        let error = match watch().await {
            Ok(messages) => apply_all(&mut follower, messages, &mut backoff).await,
            Err(error) => Some(error),
        };
        let pause = backoff.next(error.as_ref(), fastrand::f64());
        if let Some(error) = error {
            follower.fail(error);
        }
        sleep(pause).await;
    }
}

/// Applies the messages of one watch, and returns the error that ended it.
async fn apply_all<T, S>(
    follower: &mut impl Follower<T>,
    mut messages: S,
    backoff: &mut Backoff,
) -> Option<Error>
where
    S: Stream<Item = Result<T, Error>> + Unpin,
{
    follower.begin();
    loop {
        match messages.next().await? {
            // Only news resets the pause, or a watch that always ends after its first message would loop without one.
            Ok(message) => {
                if follower.apply(message) {
                    backoff.reset();
                }
            }
            Err(error) => return Some(error),
        }
    }
}
