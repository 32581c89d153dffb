use std::{io::Write as _, os::unix::net::UnixStream as StdStream, path::Path};

use super::*;
use crate::testing::Nothing;
use tokio::{io::AsyncReadExt as _, time::timeout};

/// A connection whose peer has sent its preface, SETTINGS and `more`.
fn connect(path: &Path, more: &[u8]) -> UnixStream {
    let mut stream = StdStream::connect(path).unwrap();
    let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(&[hello, more].concat()).unwrap();
    stream.set_nonblocking(true).unwrap();
    UnixStream::from_std(stream).unwrap()
}

fn acceptor(draining: &CancellationToken) -> Acceptor<Nothing> {
    Acceptor::new(Arc::new(Nothing), Limits::for_tests(10), TaskTracker::new(), draining.clone())
}

async fn gets_settings(peer: &mut UnixStream) {
    let mut settings = [0; 9];
    let read = peer.read_exact(&mut settings);
    timeout(Duration::from_secs(20), read).await.expect("SETTINGS in time").unwrap();
    assert_eq!(settings[3], 4, "SETTINGS");
}

#[tokio::test]
async fn settings_do_not_wait_for_an_answer_that_takes_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let draining = CancellationToken::new();
    let acceptor = acceptor(&draining);
    let listeners = watch::Sender::new(Arc::new(UnixListener::bind(&path).unwrap()));
    // The first call of a connection: POST http /, without its body.
    let call = b"\0\0\x03\x01\x04\0\0\0\x01\x83\x86\x84";
    let peers = [connect(&path, call), connect(&path, &call[..10])];
    let served = async {
        for mut peer in peers {
            gets_settings(&mut peer).await;
        }
        draining.cancel();
    };
    tokio::join!(acceptor.run(0, listeners.subscribe()), served);
}

#[tokio::test]
async fn those_that_wait_at_a_listener_that_is_replaced_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
    let draining = CancellationToken::new();
    let acceptor = acceptor(&draining);
    let listeners = watch::Sender::new(Arc::new(UnixListener::bind(&old).unwrap()));
    let mut accepting = Box::pin(acceptor.run(0, listeners.subscribe()));
    assert!(futures_util::poll!(&mut accepting).is_pending());
    let waiting = connect(&old, &[]);
    listeners.send_replace(Arc::new(UnixListener::bind(&new).unwrap()));
    let late = connect(&new, &[]);
    let served = async {
        for mut peer in [waiting, late] {
            gets_settings(&mut peer).await;
        }
        draining.cancel();
    };
    tokio::join!(accepting, served);
    assert!(StdStream::connect(&old).is_err(), "the old listener is closed");
}
