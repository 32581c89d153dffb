use bytes::{Buf as _, Bytes};

use super::*;
use crate::{
    stream::Noted,
    traffic::{Call, Unsent},
};

fn watched() -> (Watchdog, Arc<Traffic>) {
    let (watchdog, traffic) = (Watchdog::default(), Traffic::for_tests());
    watchdog.watch(&traffic);
    (watchdog, traffic)
}

fn looks(watchdog: &Watchdog, times: u8) {
    for _ in 0..times {
        watchdog.look(Duration::ZERO);
    }
}

#[test]
fn a_peer_that_takes_nothing_is_cut_off_and_one_that_takes_a_little_is_not() {
    let (watchdog, traffic) = watched();
    let mut answer = Unsent::new(Bytes::from_static(b"answer"), &traffic);
    looks(&watchdog, LOOKS);
    answer.advance(1);
    looks(&watchdog, LOOKS);
    assert!(!traffic.is_stalled(), "it took a byte");
    looks(&watchdog, 1);
    assert!(traffic.is_stalled() && traffic.end().is_cancelled());
}

#[test]
fn a_peer_without_a_call_is_cut_off_and_one_that_has_made_one_is_not() {
    let watchdog = Watchdog::default();
    let [silent, calls, called] = [(); 3].map(|()| Traffic::for_tests());
    for traffic in [&silent, &calls, &called] {
        watchdog.watch(traffic);
    }
    drop(Call::of(&called));
    let _call = Call::of(&calls);
    watchdog.look(FIRST_CALL / 2);
    assert!(!silent.end().is_cancelled(), "its call may still come");
    watchdog.look(FIRST_CALL);
    assert!(silent.end().is_cancelled() && !silent.is_stalled());
    watchdog.look(FIRST_CALL * 10);
    assert!(!calls.end().is_cancelled() && !called.end().is_cancelled());
}

#[test]
fn a_peer_for_which_nothing_waits_may_be_silent() {
    let (watchdog, traffic) = watched();
    drop(Unsent::new(Bytes::from_static(b"answer"), &traffic));
    looks(&watchdog, 4 * LOOKS);
    assert!(!traffic.is_stalled());
    drop(traffic);
    looks(&watchdog, 1);
    assert!(watchdog.watched.lock().unwrap().is_empty(), "what ended is no longer watched");
}

#[tokio::test]
async fn a_socket_that_takes_nothing_is_noticed() {
    use tokio::io::AsyncWriteExt as _;
    let (watchdog, traffic) = watched();
    let (ours, theirs) = tokio::io::duplex(4);
    traffic.uncork();
    let mut ours = Noted::new(ours, &traffic);
    let mut write = Box::pin(ours.write_all(b"more than four"));
    assert!(futures_util::poll!(&mut write).is_pending());
    looks(&watchdog, LOOKS);
    assert!(!traffic.is_stalled());
    looks(&watchdog, 1);
    assert!(traffic.is_stalled());
    drop(theirs);
    assert!(write.await.is_err());
}
