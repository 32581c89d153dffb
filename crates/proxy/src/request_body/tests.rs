use std::convert::Infallible;

use credbroker_kube::RequestBody as _;
use futures_util::FutureExt as _;
use http_body_util::StreamBody;
use tokio::{sync::mpsc, time::sleep};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::task::TaskTracker;

use super::*;

const LONG: std::time::Duration = std::time::Duration::from_secs(10);

type Client = mpsc::UnboundedSender<Result<Frame<Bytes>, Infallible>>;

/// A body, and the client that sends it.
fn body(limit: Option<u64>, budget: &Budget) -> (Client, RequestBody) {
    let (client, pieces) = mpsc::unbounded_channel();
    let incoming = StreamBody::new(UnboundedReceiverStream::new(pieces)).map_err(|error| match error {});
    (client, RequestBody::new(incoming, limit, budget))
}

fn send(client: &Client, bytes: usize) {
    client.send(Ok(Frame::data(vec![b'x'; bytes].into()))).unwrap();
}

/// The bytes of the next piece, which is there already. `None`: the end.
fn next(body: &mut RequestBody) -> Option<Result<usize, String>> {
    let frame = body.frame().now_or_never().expect("a piece");
    frame.map(|frame| frame.map(|data| data.into_data().unwrap().len()).map_err(|error| error.to_string()))
}

#[test]
fn the_second_handle_begins_at_the_beginning_and_goes_on_where_the_first_one_was() {
    let budget = Budget::default();
    let (client, mut first) = body(None, &budget);
    let mut second = first.again().unwrap();
    send(&client, 10);
    assert_eq!(next(&mut first), Some(Ok(10)));
    send(&client, 20);
    assert!(second.is_complete());
    assert_eq!((next(&mut second), next(&mut second)), (Some(Ok(10)), Some(Ok(20))));
    assert!(next(&mut first).unwrap().is_err(), "it does not take the pieces of the second one");
    drop(client);
    assert_eq!(next(&mut second), None);
    assert_eq!(second.progress().received(), 30);
}

#[test]
fn a_handle_that_comes_too_late_fails_instead_of_a_part_of_the_body() {
    let budget = Budget::default();
    let (client, mut first) = body(None, &budget);
    let mut second = first.again().unwrap();
    send(&client, KEPT);
    assert_eq!(next(&mut first), Some(Ok(KEPT)));
    assert!(second.is_complete());
    send(&client, 1);
    assert_eq!(next(&mut first), Some(Ok(1)));
    assert!(!second.is_complete() && first.again().is_none());
    send(&client, 1);
    assert!(next(&mut second).unwrap().is_err());
    assert_eq!(next(&mut first), Some(Ok(1)), "the first one goes on");
}

#[test]
fn what_is_kept_is_limited_for_all_and_given_back() {
    let budget = Budget::default();
    let bodies: Vec<_> = (0..KEPT_BY_ALL / KEPT)
        .map(|_| {
            let (client, mut body) = body(None, &budget);
            send(&client, KEPT);
            next(&mut body);
            assert!(body.is_complete());
            (client, body)
        })
        .collect();
    let (client, mut more) = body(None, &budget);
    send(&client, 1);
    assert_eq!(next(&mut more), Some(Ok(1)), "it is sent");
    assert!(!more.is_complete(), "and not kept");
    bodies[0].1.progress().forget();
    assert_eq!(budget.0.load(Ordering::Relaxed), KEPT_BY_ALL - KEPT);
    drop(bodies);
    assert_eq!(budget.0.load(Ordering::Relaxed), 0);
}

#[test]
fn a_body_ends_at_its_limit() {
    let (client, mut limited) = body(Some(10), &Budget::default());
    send(&client, 10);
    assert_eq!(next(&mut limited), Some(Ok(10)));
    assert!(!limited.progress().is_too_large());
    send(&client, 1);
    assert!(next(&mut limited).unwrap().is_err() && limited.progress().is_too_large());
    assert!(!limited.is_complete());
}

#[test]
fn what_is_kept_is_a_copy_of_the_buffer_that_it_came_in() {
    let (client, mut body) = body(None, &Budget::default());
    let buffer: Arc<[u8]> = vec![0; 8192].into();
    client.send(Ok(Frame::data(Bytes::from_owner(Arc::clone(&buffer)).slice(..1)))).unwrap();
    assert_eq!(next(&mut body), Some(Ok(1)));
    assert_eq!(Arc::strong_count(&buffer), 1);
    assert_eq!(next(&mut body.again().unwrap()), Some(Ok(1)));
}

#[tokio::test]
async fn a_handle_that_waits_for_the_client_ends_when_another_one_begins_and_with_the_request() {
    let budget = Budget::default();
    let (client, mut first) = body(None, &budget);
    let (mut second, progress) = (first.again().unwrap(), first.progress());
    let tasks = TaskTracker::new();
    let waits = |mut body: RequestBody| {
        tasks.spawn(async move {
            tokio::select! {
                // Before a last look, which would find the end without being woken.
                biased;
                () = sleep(LONG) => false,
                frame = body.frame() => frame.unwrap().is_err(),
            }
        })
    };
    send(&client, 10);
    assert_eq!(next(&mut first), Some(Ok(10)));
    let first = waits(first);
    tokio::task::yield_now().await;
    assert_eq!(next(&mut second), Some(Ok(10)));
    assert!(first.await.unwrap(), "the first one does not wait on");
    let second = waits(second);
    tokio::task::yield_now().await;
    progress.end();
    assert!(second.await.unwrap(), "nor does the second one after the request");
    assert!(!client.is_closed() && !progress.is_complete());
}

#[test]
fn a_body_of_a_known_length_is_complete_with_its_last_byte() {
    let whole = http_body_util::Full::new(Bytes::from("ab")).map_err(|error| match error {});
    let mut body = RequestBody::new(whole, None, &Budget::default());
    assert!(!body.progress().is_complete());
    assert_eq!(next(&mut body), Some(Ok(2)));
    assert!(body.progress().is_complete());
    let mut again = body.again().unwrap();
    assert_eq!((next(&mut again), next(&mut again)), (Some(Ok(2)), None));
}
