use super::*;

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
    let mut requests: Vec<_> = (0..8).map(|_| Unfinished::new(&traffic)).collect();
    assert!(requests.iter_mut().all(|request| request.grow_to(UNFINISHED / 8).is_ok()));
    let mut more = Unfinished::new(&traffic);
    assert!(more.grow_to(1).unwrap_err().message().contains("Unfinished"));
    drop((requests.pop(), more));
    assert!(Unfinished::new(&traffic).grow_to(UNFINISHED / 8).is_ok());
}
