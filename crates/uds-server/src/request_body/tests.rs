use std::convert::Infallible;

use bytes::BufMut as _;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use super::*;

fn status(why: Refusal) -> Status {
    Status::unavailable(format!("{why:?}"))
}

/// A body whose chunks are sent by the test.
fn reading(
    traffic: &Arc<Traffic>,
) -> (mpsc::UnboundedSender<Bytes>, Messages<impl HttpBody<Data = Bytes, Error = Infallible> + Unpin + use<>>)
{
    let (sender, mut chunks) = mpsc::unbounded_channel();
    let frames = stream::poll_fn(move |cx| chunks.poll_recv(cx)).map(|chunk| Ok(Frame::data(chunk)));
    (sender, Messages::new(StreamBody::new(frames), traffic))
}

fn message(length: usize) -> Bytes {
    let mut message = BytesMut::from(&[0][..]);
    message.put_u32(length.try_into().unwrap());
    message.resize(HEAD + length, b'm');
    message.freeze()
}

#[tokio::test]
async fn messages_are_passed_on_one_by_one_however_they_arrive() {
    let traffic = Traffic::for_tests();
    let (sender, mut messages) = reading(&traffic);
    let sent = [0, 1, 7, MESSAGE, 3].map(message);
    let bytes = Bytes::from(sent.concat());
    for chunk in [0..2, 2..9, 9..60_000, 60_000..bytes.len()] {
        sender.send(bytes.slice(chunk)).unwrap();
    }
    drop(sender);
    for message in sent {
        assert!(messages.next(status).await.unwrap() == Some(message));
    }
    assert_eq!(messages.next(status).await.unwrap(), None);
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_when_its_head_is_read() {
    let (sender, mut messages) = reading(&Traffic::for_tests());
    sender.send(message(MESSAGE + 1).slice(..HEAD)).unwrap();
    let refused = messages.next(status).await.unwrap_err();
    assert_eq!(refused.message(), format!("Large({MESSAGE})"));
}

#[tokio::test(start_paused = true)]
async fn a_message_has_a_deadline_and_the_time_between_messages_has_none() {
    let (sender, mut messages) = reading(&Traffic::for_tests());
    assert!(timeout(1000 * DEADLINE, messages.next(status)).await.is_err(), "nothing has begun");
    sender.send(message(2)).unwrap();
    sender.send(message(2).slice(..1)).unwrap();
    messages.next(status).await.unwrap().unwrap();
    let rest = messages.next(status);
    let refused = timeout(2 * DEADLINE, rest).await.unwrap().unwrap_err();
    assert_eq!(refused.message(), "Incomplete(10s)");
}

#[tokio::test]
async fn bytes_count_until_the_next_message_is_asked_for() {
    let traffic = Traffic::for_tests();
    let before = traffic.used();
    let (sender, mut messages) = reading(&traffic);
    sender.send(Bytes::from([message(1000), message(500).slice(..10)].concat())).unwrap();
    messages.next(status).await.unwrap().unwrap();
    assert_eq!(traffic.used() - before, HEAD + 1000 + 10, "the reader may still decode it");
    assert!(messages.next(status).now_or_never().is_none());
    assert_eq!(traffic.used() - before, 10);
    drop(messages);
    assert_eq!(traffic.used(), before);
}

#[tokio::test]
async fn the_end_of_the_connection_is_not_the_end_of_the_request() {
    let end = CancellationToken::new();
    let (_sender, mut messages) = reading(&Traffic::for_tests_until(end.clone()));
    assert!(messages.next(status).now_or_never().is_none());
    end.cancel();
    assert_eq!(messages.next(status).await.unwrap_err().message(), "Draining");
}
