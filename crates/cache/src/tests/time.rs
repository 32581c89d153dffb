//! Steps of the clock and suspend: nothing expired is served, and no storm starts.

use tokio::time::sleep;

use super::{Script::*, *};

/// Milliseconds in an hour.
const HOUR: i64 = 3_600_000;

#[tokio::test(start_paused = true)]
async fn a_step_forward_serves_nothing_expired_and_is_one_run() {
    let setup = setup(&[Token(mins(30))]);
    setup.ask().await.unwrap();
    setup.clock.step(HOUR);
    let (a, b, c) = tokio::join!(setup.ask(), setup.ask(), setup.ask());
    assert_eq!([a.unwrap(), b.unwrap(), c.unwrap()], ["test-2"; 3]);
    sleep(mins(5)).await;
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_step_back_extends_nothing_and_starts_nothing() {
    let setup = setup(&[Token(mins(30))]);
    setup.ask().await.unwrap();
    setup.clock.step(-24 * HOUR);
    sleep(mins(5)).await;
    assert_eq!((setup.ask().await.unwrap().as_str(), setup.runs()), ("test-1", 1));
    sleep(mins(20)).await;
    assert_eq!(setup.runs(), 2, "refreshed before its expiry, by the time since boot");
    sleep(mins(5)).await;
    assert_eq!(setup.ask().await.unwrap(), "test-2");
}

#[tokio::test(start_paused = true)]
async fn after_a_step_forward_a_due_key_is_renewed_within_a_second() {
    let setup = setup(&[Token(mins(60))]);
    setup.ask().await.unwrap();
    setup.clock.step(HOUR * 50 / 60);
    sleep(secs(1) + Duration::from_millis(1)).await;
    assert_eq!(setup.runs(), 2, "without a request");
    sleep(RUN).await;
    assert_eq!(setup.ask().await.unwrap(), "test-2");
}

#[tokio::test(start_paused = true)]
async fn a_step_back_does_not_hold_a_failure_longer() {
    let setup = setup(&[Fail, Token(mins(10))]);
    let held = setup.ask().await.unwrap_err().retry_after;
    setup.clock.step(-HOUR);
    sleep(held).await;
    setup.ask().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_a_suspend_nothing_expired_is_served() {
    let setup = setup(&[Token(mins(30))]);
    setup.ask().await.unwrap();
    setup.clock.suspend(mins(31));
    assert_eq!((setup.ask().await.unwrap().as_str(), setup.runs()), ("test-2", 2));
}

#[tokio::test(start_paused = true)]
async fn a_suspend_with_the_wall_clock_set_back_is_seen_by_the_time_since_boot() {
    let setup = setup(&[Token(mins(30))]);
    setup.ask().await.unwrap();
    setup.clock.suspend(mins(31));
    setup.clock.step(-HOUR);
    assert_eq!(setup.ask().await.unwrap(), "test-2");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_keys_after_a_step_run_once_each() {
    let setup = setup_with(1000, &[Token(mins(30))]);
    let keys: Vec<_> = (0..1000).map(|key| key.to_string()).collect();
    let ask_all = || async {
        let asks = keys.iter().map(|key| {
            let (cache, spec) = (setup.cache.clone(), spec(key));
            setup.tasks.spawn(async move { cache.get(spec, &Request::default()).await.unwrap() })
        });
        for ask in asks.collect::<Vec<_>>() {
            ask.await.unwrap();
        }
    };
    ask_all().await;
    setup.clock.step(HOUR);
    ask_all().await;
    sleep(mins(1)).await;
    assert_eq!(setup.runs(), 2000);
}

#[tokio::test(start_paused = true)]
async fn after_a_step_back_the_same_credential_again_is_due_before_its_end() {
    let setup = setup(&[Same(mins(4))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    watch.next().await.unwrap();
    sleep(mins(2)).await;
    setup.clock.step(-HOUR);
    sleep(mins(2) - 2 * RUN).await; // it was due after three minutes, and still ends after four
    assert!((3..=5).contains(&setup.runs()), "{}", setup.runs());
}
