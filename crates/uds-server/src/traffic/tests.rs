use super::*;
use crate::stream::Noted;

impl Traffic {
    /// A connection without a peer.
    pub(crate) fn for_tests() -> Arc<Self> {
        Self::for_tests_until(CancellationToken::new())
    }

    pub(crate) fn for_tests_until(end: CancellationToken) -> Arc<Self> {
        Self::new(end, Arc::default(), Duration::ZERO)
    }

    pub(crate) fn unsent(&self) -> usize {
        self.unsent.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn room_is_made_by_the_peer_and_passed_on() {
    let traffic = Traffic::for_tests();
    let mut answer = Unsent::new(Bytes::from(vec![0; UNSENT]), &traffic);
    let [mut first, mut second] = [(); 2].map(|()| Box::pin(Arc::clone(&traffic).room()));
    assert!(!traffic.has_room());
    assert!(futures_util::poll!(&mut first).is_pending() && futures_util::poll!(&mut second).is_pending());
    answer.advance(1);
    assert!(futures_util::poll!(&mut second).is_pending(), "one at a time");
    assert!(traffic.has_room() && futures_util::poll!(&mut first).is_ready());
    assert!(futures_util::poll!(&mut second).is_ready(), "it was passed on");
}

#[test]
fn unfinished_requests_share_one_limit() {
    let traffic = Traffic::for_tests();
    let mut requests: Vec<_> = (0..8).map(|_| Charge::unfinished(&traffic)).collect();
    assert!(requests.iter().all(|request| request.receive(UNFINISHED / 8).is_ok()));
    let more = Charge::unfinished(&traffic);
    let full = Full { limit: Limit::Unfinished, who: Who::Connection, most: UNFINISHED };
    assert_eq!(more.receive(1), Err(Refusal::Full(full)));
    assert_eq!(Charge::new(&traffic).charge(1), Ok(()), "other bytes do not count for it");
    drop((requests.pop(), more));
    assert!(Charge::unfinished(&traffic).receive(UNFINISHED / 8).is_ok());
}

#[test]
fn what_the_peer_sends_ahead_counts_while_calls_wait_for_room() {
    let traffic = Traffic::for_tests();
    let before = traffic.used();
    // Bytes that another one holds too count for no one.
    let bytes = Bytes::from(vec![0; UNSENT]);
    let answer = Unsent::new(bytes.clone(), &traffic);
    assert_eq!(traffic.used() - before, WINDOW as usize);
    drop(answer);
    assert_eq!(traffic.used(), before);
}

#[test]
fn a_refused_call_is_noted() {
    let account = Arc::new(Account { most: 4 * CONNECTION, ..Account::default() });
    let traffic = Traffic::new(CancellationToken::new(), account, Duration::ZERO);
    let mut call = Call::of(&traffic);
    assert_eq!(call.charge().charge(4 * CONNECTION), Ok(()));
    assert!(!traffic.refused.load(Ordering::Relaxed));
    assert!(call.charge().charge(STEP).is_err() && traffic.refused.load(Ordering::Relaxed));
}

fn watched() -> (Served, Arc<Traffic>) {
    let traffic = Traffic::for_tests();
    (Served::new(&traffic), traffic)
}

fn looks(served: &mut Served, times: u32) {
    for _ in 0..times {
        served.look(Duration::ZERO);
    }
}

#[test]
fn a_peer_that_takes_nothing_is_cut_off_and_one_that_takes_a_little_is_not() {
    let (mut served, traffic) = watched();
    let mut answer = Unsent::new(Bytes::from_static(b"answer"), &traffic);
    looks(&mut served, LOOKS);
    answer.advance(1);
    looks(&mut served, LOOKS);
    assert!(!traffic.stalled.load(Ordering::Relaxed), "it took a byte");
    looks(&mut served, 1);
    assert!(traffic.stalled.load(Ordering::Relaxed) && traffic.end.is_cancelled());
}

#[test]
fn a_peer_without_a_call_is_cut_off_and_one_that_has_made_one_is_not() {
    let [silent, calls, called] = [(); 3].map(|()| Traffic::for_tests());
    let mut served = [&silent, &calls, &called].map(Served::new);
    let mut look = |now| served.each_mut().map(|served| served.look(now));
    drop(Call::of(&called));
    let _call = Call::of(&calls);
    look(FIRST_CALL / 2);
    assert!(!silent.end.is_cancelled(), "its call may still come");
    look(FIRST_CALL);
    assert!(silent.end.is_cancelled() && !silent.stalled.load(Ordering::Relaxed));
    look(FIRST_CALL * 10);
    assert!(!calls.end.is_cancelled() && !called.end.is_cancelled());
}

#[test]
fn a_peer_for_which_nothing_waits_may_be_silent() {
    let (mut served, traffic) = watched();
    drop(Unsent::new(Bytes::from_static(b"answer"), &traffic));
    looks(&mut served, 4 * LOOKS);
    assert!(!traffic.stalled.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_socket_that_takes_nothing_is_noticed() {
    use tokio::io::AsyncWriteExt as _;
    let (mut served, traffic) = watched();
    let (ours, theirs) = tokio::io::duplex(4);
    traffic.uncork();
    let mut ours = Noted::new(ours, &traffic);
    let mut write = Box::pin(ours.write_all(b"more than four"));
    assert!(futures_util::poll!(&mut write).is_pending());
    looks(&mut served, LOOKS);
    assert!(!traffic.stalled.load(Ordering::Relaxed));
    looks(&mut served, 1);
    assert!(traffic.stalled.load(Ordering::Relaxed));
    drop(theirs);
    assert!(write.await.is_err());
}
