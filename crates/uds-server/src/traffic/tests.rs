use super::*;

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
