use std::convert::Infallible;

use futures_util::{Stream, StreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};

use super::super::*;

/// The length of the response for `uri`, or the limit that it exceeds.
async fn answer(
    uri: &str,
    chunks: impl Stream<Item = Vec<u8>> + Send + Unpin + 'static,
) -> Result<usize, Excess> {
    let mut chunks = Some(chunks);
    let inner = tower::service_fn(|_: Request<()>| {
        let chunks = chunks.take().unwrap().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk.into())));
        std::future::ready(Ok::<_, Infallible>(Response::new(StreamBody::new(chunks))))
    });
    let mut service = Bounded(inner);
    let response = service.call(Request::get(uri).body(()).unwrap()).await.unwrap();
    let collected = response.into_body().collect().await;
    collected.map(|body| body.to_bytes().len()).map_err(|error| *error.downcast::<Excess>().unwrap())
}

fn blanks(count: usize) -> impl Stream<Item = Vec<u8>> + Send + Unpin + 'static {
    stream::iter(std::iter::repeat_n(vec![b' '; 64 * 1024], count))
}

#[tokio::test]
async fn an_answer_has_a_limit_in_bytes() {
    let most = PAGE / (64 * 1024);
    assert_eq!(answer("/list?limit=500", blanks(most)).await, Ok(PAGE));
    assert_eq!(answer("/list?limit=500", blanks(most + 1)).await, Err(Excess::Page));
    assert_eq!(answer("/list?limit=500", blanks(usize::MAX)).await, Err(Excess::Page));
}

#[tokio::test]
async fn a_watch_has_one_for_each_event() {
    let lines = || {
        let event = [vec![b'x'; EVENT - 1], vec![b'\n']].concat();
        stream::iter(std::iter::repeat_n(event, 3))
    };
    assert_eq!(answer("/list?&watch=true&a=b", lines()).await, Ok(3 * EVENT));
    assert_eq!(answer("/list?&watch=true", blanks(usize::MAX)).await, Err(Excess::Event));
}
