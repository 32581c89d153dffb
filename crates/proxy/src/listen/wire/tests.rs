use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{super::connection::http1, Ambiguous, Wire};

/// What is found in `bytes` if they arrive in pieces of that size.
fn found(bytes: &[u8], piece: usize) -> Option<Ambiguous> {
    let mut wire = Wire::default();
    bytes.chunks(piece).find_map(|piece| wire.read(piece))
}

const PLAIN: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
const WITH_BODY: &str =
    "POST /a HTTP/1.1\r\nContent-Length: 40\r\n\r\nGET / HTTP/1.1\r\nTransfer-Encoding: a\r\n\r\n";
const CHUNKED: &str = "POST /a HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n1;a=b\r\n\n\r\nA\r\n0123456789\r\n0\r\na: b\r\n\r\n";
const BOTH: &str = "POST /a HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
const BOTH_REVERSED: &str =
    "POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n";
const TWICE: &str = "POST /a HTTP/1.1\ncontent-length: 1\nContent-Length: 1\n\na";
const FRAGMENT: &str = "GET /a#b HTTP/1.1\r\n\r\n";

#[test]
fn what_hyper_drops_is_found_in_whichever_request_it_is() {
    for ambiguous in [BOTH, BOTH_REVERSED, TWICE, FRAGMENT] {
        for (before, request) in [
            (String::new(), 1),
            (PLAIN.to_owned(), 2),
            (WITH_BODY.to_owned(), 2),
            (format!("\r\n\n{CHUNKED}"), 2),
            (format!("{CHUNKED}{WITH_BODY}\r\n{PLAIN}"), 4),
        ] {
            let bytes = format!("{before}{ambiguous}{PLAIN}");
            for piece in [1, 2, 3, 7, 50, 1000] {
                let found = found(bytes.as_bytes(), piece);
                assert_eq!(found.map(|found| found.request), Some(request), "{piece}: {bytes}");
            }
        }
    }
    assert_eq!(
        found(BOTH.as_bytes(), 1000).unwrap().why,
        "the request has `Transfer-Encoding` and `Content-Length`"
    );
}

#[test]
fn requests_that_have_one_meaning_pass() {
    let bytes = [PLAIN, CHUNKED, WITH_BODY, WITH_BODY, CHUNKED, CHUNKED, PLAIN].concat();
    for piece in 1..100 {
        assert_eq!(found(bytes.as_bytes(), piece), None, "{piece}");
    }
}

#[test]
fn after_what_cannot_be_read_every_request_is_ambiguous() {
    for (bytes, request) in [
        ("GET\r\n\r\n", 1),
        ("POST / HTTP/1.1\r\ncontent-length: 1a\r\n\r\n", 1),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\na\r\n", 2),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: b\n\nGET", 2),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", 2),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n", 2),
    ] {
        assert_eq!(found(bytes.as_bytes(), 1).map(|found| found.request), Some(request), "{bytes}");
    }
}

#[test]
fn what_is_held_is_bounded() {
    for start in ["", "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1;"] {
        let mut wire = Wire::default();
        assert_eq!(wire.read(start.as_bytes()), None);
        let lost = (0..1000).find_map(|_| wire.read(&[b'a'; 1000]));
        assert!(lost.is_some(), "{start}");
        assert!(wire.held.capacity() == 0, "{start}");
    }
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        bytes in prop::collection::vec(
            prop_oneof![
                Just(PLAIN), Just(WITH_BODY), Just(CHUNKED), Just(BOTH), Just(FRAGMENT), Just("\r\n"), Just("a"), Just("0\r\n"),
            ],
            0..6,
        ),
        piece in 1_usize..200,
    ) {
        let bytes = bytes.concat();
        prop_assert_eq!(found(bytes.as_bytes(), piece), found(bytes.as_bytes(), usize::MAX));
    }
}

/// How many requests hyper reads in `bytes`, with their bodies or without.
async fn served(bytes: Vec<u8>) -> usize {
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let service = service_fn(move |request: Request<Incoming>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            let _body = request.into_body().collect().await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let connection = http1().serve_connection(TokioIo::new(server), service);
    let peer = async {
        client.write_all(&bytes).await.unwrap();
        client.shutdown().await.unwrap();
        drop(client.read_to_end(&mut Vec::new()).await);
    };
    drop(tokio::join!(connection, peer));
    count.load(Ordering::Relaxed)
}

/// Lines and bodies that belong together, and others.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let request = prop::sample::select(vec![PLAIN, WITH_BODY, CHUNKED]);
    let piece = prop::sample::select(vec![
        PLAIN,
        WITH_BODY,
        CHUNKED,
        BOTH,
        TWICE,
        FRAGMENT,
        "\r\n",
        "\n",
        "\r",
        " ",
        "0",
        "5",
        "a\r\n",
        "hello",
        "POST / HTTP/1.1\r\n",
        "GET / HTTP/1.1\n",
        "GET / HTTP/1.0\r\n",
        "PRI * HTTP/2.0\r\n",
        "Content-Length: 5\r\n",
        "content-length: +5\r\n",
        "content-length : 0\r\n",
        "content-length:\r\n",
        "Transfer-Encoding: chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked, gzip\r\n",
        "transfer-encoding:\tchunked\n",
        "Upgrade: websocket\r\n",
        "connection: upgrade\r\n",
        "connection: close\r\n",
        "expect: 100-continue\r\n",
        "5\r\nhello\r\n",
        "5;a=\"\r\n",
        "0\r\n\r\n",
        "00\r\n",
        "x: y\r\n",
        " folded\r\n",
        "\u{0}",
    ]);
    let piece = prop_oneof![request, piece];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn no_request_that_hyper_reads_is_overlooked(bytes in pieces()) {
        let mut wire = Wire::default();
        let ambiguous = wire.read(&bytes);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let served = runtime.block_on(served(bytes));
        // Those from the ambiguous one on are refused.
        let passed = ambiguous.map_or(served, |ambiguous| served.min(ambiguous.request - 1));
        prop_assert!(passed <= wire.heads, "{passed} pass of {served}, and {} were read: {ambiguous:?}", wire.heads);
    }
}
