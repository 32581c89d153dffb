#![expect(clippy::disallowed_methods, reason = "tests read the paused clock and start the other end")]

use tokio::io::duplex;

use super::*;
use crate::admin::{Selector, client::REFRESH};

fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// A listener that accepts every connection and sends nothing.
fn mute() -> (tempfile::TempDir, Socket, tokio::net::UnixListener) {
    use std::os::unix::fs::PermissionsExt as _;
    let private = std::fs::Permissions::from_mode(0o700);
    let directory = tempfile::Builder::new().permissions(private).tempdir().unwrap();
    let path = directory.path().join("broker.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    (directory, Socket::at(path), listener)
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_accepts_and_sends_nothing_costs_five_seconds_and_no_more() {
    let (_directory, socket, _listener) = mute();
    let begun = now();
    let error = Client::connect(&socket).await.unwrap_err();
    assert_eq!(now() - begun, HANDSHAKE);
    assert!(error.is_silence(), "{error:?}");
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(text.ends_with(": it accepted the connection and sent nothing for 5s"), "{text}");
}

#[tokio::test]
async fn the_connection_to_a_silent_peer_is_closed() {
    let (ours, mut theirs) = duplex(64 * 1024);
    let transport = timeout(Duration::from_millis(10), Transport::over(ours)).await;
    assert!(transport.is_err());
    let mut said = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut theirs, &mut said).await.unwrap();
    assert!(said.starts_with(b"PRI * HTTP/2.0"));
}

/// Sends SETTINGS and acknowledges ours, and pings too if it is to; answers no request.
async fn begins_and_stops(mut stream: tokio::io::DuplexStream, pings: bool) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut preface = [0; 24];
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    stream.read_exact(&mut preface).await.unwrap();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        let (kind, acknowledged) = (head[3], head[4] & 1 == 1);
        let settings = kind == 4 && !acknowledged;
        let ping = kind == 6 && !acknowledged && pings;
        if settings {
            stream.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).await.unwrap();
        } else if ping {
            stream.write_all(&[0, 0, 8, 6, 1, 0, 0, 0, 0]).await.unwrap();
            stream.write_all(&payload).await.unwrap();
        }
    }
}

async fn stuck(pings: bool) -> Client {
    let (ours, theirs) = duplex(64 * 1024);
    tokio::spawn(begins_and_stops(theirs, pings));
    Client::over(ours, &Socket::at("/s")).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_call_ends_at_its_deadline() {
    let limit = Duration::from_secs(7);
    let reference = CredentialRef::provider("p");
    let default = stuck(true).await;
    for (client, expected) in [(default.clone(), ANSWER), (default.timeout(limit), limit)] {
        macro_rules! late {
            ($call:expr, $limit:expr) => {
                let begun = now();
                let Err(error) = $call.await else { panic!("an answer") };
                assert!(
                    matches!(error, Error::Timeout { limit } if limit == $limit),
                    "{}: {error:?}",
                    stringify!($call)
                );
                assert_eq!(now() - begun, $limit);
            };
        }
        late!(client.credential(&reference), expected);
        late!(client.clusters(None), expected);
        late!(client.watch(&reference), expected);
        late!(client.watch_clusters(None), expected);
        late!(client.report_rejected(&reference, "1"), expected);
        let admin = client.admin();
        late!(admin.credentials(&Selector::All), expected);
        late!(admin.providers(), expected);
        late!(admin.broker_info(), expected);
        late!(admin.evict(&Selector::All), expected);
        let refresh = client.limit.unwrap_or(REFRESH);
        late!(admin.refresh(&Selector::All), refresh);
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_answering_pings_is_lost_long_before_a_generous_deadline() {
    let admin = stuck(false).await.admin();
    let begun = now();
    let error = admin.refresh(&Selector::All).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(now() - begun <= Duration::from_secs(46), "{:?}", now() - begun);
}
