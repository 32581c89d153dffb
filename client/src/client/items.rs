//! The items of a watch.

use std::task::{Poll, ready};

use futures_core::Stream;
use futures_util::{StreamExt, stream::poll_fn};
use tonic::Status;

use crate::{error::Error, socket::Socket};

/// What `receive` makes of the messages, up to the first error. A watch must not end, so its end is an error. With the
/// error the call is cancelled.
pub(super) fn items<M, T>(
    messages: impl Stream<Item = Result<M, Status>> + Send + Unpin,
    socket: Socket,
    mut receive: impl FnMut(M) -> Result<T, Error> + Send + Unpin,
) -> impl Stream<Item = Result<T, Error>> + Send + Unpin {
    let mut open = Some(messages);
    poll_fn(move |cx| {
        let Some(messages) = &mut open else { return Poll::Ready(None) };
        let item = match ready!(messages.poll_next_unpin(cx)) {
            Some(Ok(message)) => receive(message),
            Some(Err(status)) => Err(Error::from_status(&socket, &status)),
            None => Err(Error::ended(&socket)),
        };
        if item.is_err() {
            open = None;
        }
        Poll::Ready(Some(item))
    })
}
