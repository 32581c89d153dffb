//! The bounds on what a peer can cost, seen from raw frames.

use std::time::Duration;

use credbroker_client::{Client, Error, Socket};
use credbroker_proto::Reason;
use credbroker_test_support::FakePlugin;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_types::StatusExt as _;

use crate::harness::{InProcess, provider, reference};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// One frame: its type, and its payload.
async fn frame(stream: &mut UnixStream) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.unwrap();
    (head[3], payload)
}

#[tokio::test]
async fn every_limit_is_announced() {
    let broker = InProcess::idle();
    let mut stream = UnixStream::connect(broker.socket()).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&EMPTY_SETTINGS).await.unwrap();
    let (kind, payload) = frame(&mut stream).await;
    assert_eq!(kind, 4, "SETTINGS come first");
    let settings: std::collections::BTreeMap<u16, u32> = payload
        .chunks_exact(6)
        .map(|s| (u16::from_be_bytes([s[0], s[1]]), u32::from_be_bytes([s[2], s[3], s[4], s[5]])))
        .collect();
    let (streams, window, frame, headers) = (3, 4, 5, 6);
    assert_eq!(settings.get(&streams), Some(&1024));
    assert_eq!(settings.get(&window), Some(&(256 * 1024)));
    assert_eq!(settings.get(&frame), Some(&(16 * 1024)));
    assert_eq!(settings.get(&headers), Some(&(8 * 1024)));
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_cut_off() {
    let broker = InProcess::idle();
    let mut silent = UnixStream::connect(broker.socket()).await.unwrap();
    let mut halting = UnixStream::connect(broker.socket()).await.unwrap();
    halting.write_all(&PREFACE[..10]).await.unwrap();
    for stream in [&mut silent, &mut halting] {
        let mut rest = Vec::new();
        let ended = timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the deadline is five seconds");
    }
}

#[tokio::test]
async fn malformed_streams_end_the_connection() {
    let broker = InProcess::idle();
    let mut stream = UnixStream::connect(broker.socket()).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&EMPTY_SETTINGS).await.unwrap();
    // HEADERS without pseudo headers, which are not a request: each a stream error, and too many of them a connection error.
    for number in 0..2_000_u32 {
        let id = (2 * number + 1).to_be_bytes();
        let frame = [&[0, 0, 0, 1, 5][..], &id].concat();
        if stream.write_all(&frame).await.is_err() {
            break; // it was closed already
        }
    }
    let goaway = async {
        loop {
            let (kind, payload) = frame(&mut stream).await;
            if kind == 7 {
                return payload;
            }
        }
    };
    let payload = timeout(Duration::from_secs(20), goaway).await.expect("a GOAWAY");
    assert_eq!(payload.get(4..8), Some(&[0, 0, 0, 11][..]), "ENHANCE_YOUR_CALM");
}

#[tokio::test]
async fn one_connection_too_many_is_refused_by_name_and_the_others_are_served() {
    let plugin = FakePlugin::builder().token("t").build();
    let sections = json!({"providers": [provider("cloud", &plugin)], "limits": {"connections": 2}});
    let broker = InProcess::with(sections, &[]);
    let first = broker.client().await;
    let second = broker.client().await;
    assert!(first.credential(&reference("cloud", None, &[])).await.is_ok());
    let third = async {
        Client::connect(&Socket::at(broker.socket())).await?.credential(&reference("cloud", None, &[])).await
    };
    let Err(Error::Failed(failure)) = third.await else { panic!("one connection too many was served") };
    assert_eq!(failure.reason, Some(Reason::Overloaded));
    assert_eq!(failure.limit.as_deref(), Some("limits.connections"));
    assert!(first.credential(&reference("cloud", None, &[])).await.is_ok());
    drop(second);
    let admitted = async {
        while broker.get("cloud").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), admitted).await.expect("the slot was given back");
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused() {
    let plugin = FakePlugin::builder().token("t").build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let large = "x".repeat(300 * 1024);
    let Err(Error::Failed(failure)) = broker.get_with("cloud", None, &[("AWS_PROFILE", &large)]).await else {
        panic!("300 KiB are too much")
    };
    assert_eq!(failure.code, credbroker_client::Code::OutOfRange);
    assert_eq!(plugin.runs(), 0);
}

#[tokio::test]
async fn watches_of_health_and_reflections_count_among_the_watches_of_their_connection() {
    let plugin = FakePlugin::builder().token("t").build();
    let broker = InProcess::start(json!([provider("cloud", &plugin)]));
    let channel = broker.channel().await;
    let watch = || {
        let mut client = HealthClient::new(channel.clone());
        async move { client.watch(HealthCheckRequest::default()).await }
    };
    let reflect = || {
        let questions = tonic::Request::new(tokio_stream::pending());
        let mut client = ServerReflectionClient::new(channel.clone());
        async move { client.server_reflection_info(questions).await }
    };
    let mut watches = Vec::new();
    for _ in 0..1000 {
        watches.push(watch().await.unwrap());
    }
    for refused in [watch().await.unwrap_err(), reflect().await.unwrap_err()] {
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        let info = refused.get_details_error_info().unwrap();
        assert_eq!(Reason::from_name(&info.reason), Some(Reason::Overloaded));
        assert!(refused.message().contains("1000 watches"), "{}", refused.message());
    }
    assert!(HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await.is_ok());
    watches.pop();
    let admitted = async { while reflect().await.is_err() {} };
    timeout(Duration::from_secs(10), admitted).await.expect("the slot was given back");
}
