//! What is said and heard before the first call.

use std::{convert::Infallible, pin::pin, sync::Arc};

use futures_util::poll;
use http::{Request, Response};
use hyper::{body::Incoming, client::conn::http2 as client, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{DuplexStream, duplex};
use tokio_util::task::TaskTracker;
use tonic::body::Body;

use super::*;
use crate::{settings::http2, traffic::Traffic};

/// A preface and a SETTINGS frame of six bytes.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64";
const ACKNOWLEDGEMENT: &[u8] = &[0, 0, 0, 4, 1, 0, 0, 0, 0];

/// hyper's side of a connection, which answers every call with nothing.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S) {
    let service = service_fn(async |_: Request<Incoming>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let _ended = http2(TaskTracker::new()).serve_connection(TokioIo::new(stream), service).await;
}

#[tokio::test]
async fn hyper_begins_with_what_the_peer_was_sent() {
    let (mut peer, ours) = duplex(1024);
    peer.write_all(HELLO).await.unwrap();
    let mut serving = pin!(serve(ours));
    assert!(poll!(&mut serving).is_pending());
    let mut said = vec![0; SAID.len()];
    peer.read_exact(&mut said).await.unwrap();
    assert_eq!(said, *SAID);
    let mut more = [0];
    assert!(poll!(pin!(peer.read(&mut more))).is_pending(), "nothing else");
}

#[tokio::test]
async fn a_client_is_served_whether_it_calls_at_once_or_later() {
    for calls_at_once in [true, false] {
        let (theirs, mut ours) = duplex(64 * 1024);
        let traffic = Traffic::for_tests();
        let serving = async {
            let greeting = greet(&mut ours).await.unwrap();
            assert_eq!(greeting.said.len() < SAID.len(), calls_at_once);
            serve(Greeted::new(ours, greeting, &traffic)).await;
        };
        let calling = async {
            let io = TokioIo::new(theirs);
            let (mut sender, connection) = client::handshake(TokioExecutor::new(), io).await.unwrap();
            let mut connection = pin!(connection);
            if !calls_at_once {
                for _ in 0..10 {
                    assert!(poll!(&mut connection).is_pending());
                    tokio::task::yield_now().await;
                }
            }
            for _ in 0..2 {
                let call =
                    sender.send_request(Request::post("http://localhost/x").body(Body::empty()).unwrap());
                tokio::select! {
                    answer = call => assert!(answer.unwrap().status().is_success()),
                    ended = &mut connection => panic!("{ended:?}"),
                }
            }
        };
        tokio::select! {
            () = calling => {}
            () = serving => panic!("it ended"),
        }
    }
}

fn of_stream(mut frame: Vec<u8>) -> Vec<u8> {
    frame[8] = 1;
    frame
}

/// hyper's side of a connection whose peer has sent `hello` and a call before the broker looked, and the peer.
async fn called_at_once(hello: &[u8], traffic: &Arc<Traffic>) -> (DuplexStream, impl Future<Output = ()>) {
    let (mut peer, mut ours) = duplex(1024);
    let call = of_stream(frame(HEADERS, 5, &[0x83, 0x86, 0x84])); // POST http /
    peer.write_all(&[hello, &call].concat()).await.unwrap();
    let greeting = greet(&mut ours).await.unwrap();
    assert!(greeting.is_held_back);
    (peer, serve(Greeted::new(ours, greeting, traffic)))
}

#[tokio::test]
async fn the_first_frames_wait_for_the_first_answer_until_they_are_let_go() {
    for waits in [true, false] {
        let traffic = Traffic::for_tests();
        let (mut peer, serving) = called_at_once(HELLO, &traffic).await;
        let mut serving = pin!(serving);
        assert!(poll!(&mut serving).is_pending());
        let mut said = [0; 1024];
        assert!(poll!(pin!(peer.read(&mut said))).is_pending(), "held back");
        let mut count = 0;
        if !waits {
            traffic.let_go();
            assert!(poll!(&mut serving).is_pending());
            count = peer.read(&mut said).await.unwrap();
            assert_eq!(said[..count], **SAID);
        }
        while count == 0 || !waits && count == SAID.len() {
            tokio::select! {
                read = peer.read(&mut said[count..]) => count += read.unwrap(),
                () = &mut serving => panic!("it ended"),
            }
        }
        assert_eq!(said[..SAID.len()], **SAID);
        assert_eq!(said[SAID.len() + 3], HEADERS, "the answer follows");
    }
}

#[tokio::test]
async fn what_hyper_sends_instead_is_what_the_peer_gets() {
    let bad = [PREFACE.as_slice(), &frame(SETTINGS, 0, &[0, 2, 0, 0, 0, 2])].concat(); // ENABLE_PUSH is 0 or 1
    let traffic = Traffic::for_tests();
    let (mut peer, serving) = called_at_once(&bad, &traffic).await;
    serving.await;
    let mut said = Vec::new();
    peer.read_to_end(&mut said).await.unwrap();
    let (settings, rest) = said.split_at(OWN_SETTINGS);
    assert_eq!(*settings, SAID[..OWN_SETTINGS]);
    assert_eq!(rest[3], 7, "GOAWAY");
}

#[test]
fn only_what_needs_no_answer_is_not_a_call() {
    let window = frame(8, 0, &[0; 4]);
    let (headers, ping) = (of_stream(frame(1, 4, &[0; 9])), frame(6, 0, &[0; 8]));
    for length in 0..HELLO.len() {
        assert_eq!(judge(&HELLO[..length]), Heard::Part, "{length}");
    }
    let table: [(&[&[u8]], Heard); 13] = [
        (&[HELLO], Heard::Hello),
        (&[HELLO, ACKNOWLEDGEMENT, &window, &window], Heard::Hello),
        (&[HELLO, &window[..5]], Heard::Hello),
        (&[HELLO, &headers[..8]], Heard::Hello),
        (&[HELLO, &headers[..9]], Heard::Call),
        (&[HELLO, &window, &headers], Heard::Call),
        (&[PREFACE, &headers], Heard::More),
        (&[HELLO, &ping], Heard::More),
        (&[HELLO, &HELLO[24..]], Heard::More),
        (&[HELLO, &of_stream(window.clone())], Heard::More),
        (&[PREFACE, ACKNOWLEDGEMENT], Heard::More),
        (&[PREFACE, &[0, 0x40, 1, 4, 0, 0, 0, 0, 0]], Heard::More),
        (&[b"GET / HTTP/1.1"], Heard::More),
    ];
    for (number, (heard, expected)) in table.into_iter().enumerate() {
        assert_eq!(judge(&heard.concat()), expected, "{number}");
    }
    assert_eq!(judge(&[HELLO, &window.repeat(HELD / window.len())].concat()), Heard::More, "too much of it");
}

/// Whether the greeting of a peer that sends this ends after `limit` at the latest, and with what.
async fn ends_within(limit: Duration, said: &[u8]) -> Option<io::Result<Greeting>> {
    let (mut peer, mut ours): (DuplexStream, _) = duplex(1024);
    peer.write_all(said).await.unwrap();
    timeout(limit, greet(&mut ours)).await.ok()
}

#[tokio::test(start_paused = true)]
async fn a_silent_or_halting_peer_is_cut_off_in_time() {
    for said in [0, 10, 24, 33, HELLO.len() - 1] {
        let error = ends_within(HANDSHAKE, &HELLO[..said]).await.expect("the deadline ends it").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_finished_its_greeting_may_be_silent() {
    assert!(ends_within(HANDSHAKE * 10, HELLO).await.is_none(), "still open and silent");
}

#[tokio::test]
async fn other_frames_of_hyper_are_an_error() {
    let (_peer, ours) = duplex(1024);
    let greeting = Greeting { heard: Vec::new(), said: &SAID, is_held_back: false };
    let mut greeted = Greeted::new(ours, greeting, &Traffic::for_tests());
    greeted.write_all(&SAID[..40]).await.unwrap();
    assert!(greeted.write_all(b"something else").await.is_err());
}
