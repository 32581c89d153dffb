use std::pin::pin;

use futures_util::{StreamExt as _, poll, stream};
use http_body_util::{BodyExt as _, StreamBody};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::traffic::Traffic;

const CHUNK: usize = 300 * 1024;

fn status(why: Refusal) -> Status {
    Status::unavailable(format!("{why:?}"))
}

/// An answer of `chunks` chunks, whose stream then stays open without a message.
fn answer(traffic: &Arc<Traffic>, chunks: usize) -> ResponseBody {
    let chunk = || Ok::<_, Status>(Frame::data(Bytes::from(vec![0; CHUNK])));
    let chunks = stream::iter((0..chunks).map(move |_| chunk())).chain(stream::pending());
    let body = Body::new(StreamBody::new(chunks));
    ResponseBody::new(body, Call::of(traffic), Watching::default(), status)
}

#[tokio::test]
async fn an_answer_is_counted_before_the_peer_takes_it_and_further_ones_wait() {
    let traffic = Traffic::for_tests();
    let mut answers: Vec<_> = (0..4).map(|_| answer(&traffic, 2)).collect();
    for answer in &mut answers {
        std::future::poll_fn(|cx| answer.poll_ahead(cx)).await;
    }
    assert!(!traffic.has_room());
    let made = answers.iter().filter(|answer| answer.ahead.is_some()).count();
    assert_eq!(made, 2, "the others are not even encoded");
    let [first, second, third, fourth] = &mut answers[..] else { panic!("four") };
    let (mut third, mut fourth) = (pin!(third.frame()), pin!(fourth.frame()));
    assert!(poll!(&mut third).is_pending() && poll!(&mut fourth).is_pending());
    for taken in [first, second] {
        let mut frame = taken.frame().await.unwrap().unwrap().into_data().unwrap();
        frame.advance(CHUNK);
    }
    let third = third.await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(third.remaining(), CHUNK);
    assert!(fourth.await.is_some(), "room is passed on");
}

#[tokio::test]
async fn a_whole_answer_is_its_message_and_a_good_end() {
    let traffic = Traffic::for_tests();
    let mut answer = ResponseBody::whole(Bytes::from_static(b"message"), Call::of(&traffic), status);
    assert!(!answer.is_end_stream());
    let frame = answer.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame.chunk(), b"message");
    assert!(!answer.is_end_stream(), "trailers follow");
    let trailers = answer.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    assert!(answer.frame().await.is_none() && answer.is_end_stream());
}

#[tokio::test]
async fn a_message_goes_out_in_pieces_that_are_counted_once() {
    let traffic = Traffic::for_tests();
    let message: Vec<u8> = (0..=255).cycle().take(3 * PIECE + 1).collect();
    let mut answer = ResponseBody::whole(message.clone().into(), Call::of(&traffic), status);
    let mut sent = Vec::new();
    while let Ok(mut piece) = answer.frame().await.unwrap().unwrap().into_data() {
        assert!(piece.remaining() <= PIECE);
        sent.extend_from_slice(piece.chunk());
        piece.advance(piece.remaining());
        assert_eq!(traffic.unsent(), message.len() - sent.len());
    }
    assert_eq!(sent, message);
}

#[tokio::test]
async fn what_has_nothing_to_say_ends_with_the_broker() {
    let draining = CancellationToken::new();
    let traffic = Traffic::for_tests_until(draining.child_token());
    let mut answer = answer(&traffic, 1);
    assert_eq!(traffic.calls(), 1);
    assert!(answer.frame().await.unwrap().unwrap().is_data());
    assert!(poll!(pin!(answer.frame())).is_pending());
    draining.cancel();
    let trailers = answer.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "14");
    assert!(answer.frame().await.is_none() && answer.is_end_stream());
    drop(answer);
    assert_eq!(traffic.calls(), 0);
}

#[tokio::test]
async fn a_right_that_is_lost_while_the_body_makes_a_frame_ends_the_answer() {
    let traffic = Traffic::for_tests();
    let (revoke, revoked) = tokio::sync::oneshot::channel();
    let body = stream::once(async move {
        revoke.send(()).unwrap();
        Ok::<_, Status>(Frame::data(Bytes::from_static(b"after the loss")))
    });
    let loss: Loss = Box::pin(async move {
        revoked.await.unwrap();
        Status::permission_denied("lost")
    });
    let (body, watching) = (Body::new(StreamBody::new(Box::pin(body))), (Some(loss), None));
    let mut answer = ResponseBody::new(body, Call::of(&traffic), watching, status);
    let trailers = answer.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "7");
    assert!(answer.frame().await.is_none());
}
