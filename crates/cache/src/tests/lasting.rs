//! Callers that need a credential to live for some time.

use tokio::time::{sleep, timeout};

use super::{Script::*, *};
use crate::{CacheError, ReportOutcome};

fn need(min_lifetime: Duration) -> Request {
    Request { min_lifetime, ..Request::default() }
}

/// What a caller gets that needs a credential for `min_lifetime`: its generation, and whether it is short.
async fn ask(setup: &Setup, min_lifetime: Duration) -> (String, bool) {
    let issued = setup.cache.get(spec("a"), &need(min_lifetime)).await.unwrap();
    (issued.generation.to_string(), setup.cache.is_short(&issued, min_lifetime))
}

/// The same, without waiting. `None`: memory has no answer.
fn look(setup: &Setup, min_lifetime: Duration) -> Option<(String, bool)> {
    let issued = setup.cache.lookup(&spec("a").key, &Caller::default(), min_lifetime)?;
    Some((issued.generation.to_string(), setup.cache.is_short(&issued, min_lifetime)))
}

fn long(number: u64) -> (String, bool) {
    (format!("test-{number}"), false)
}

fn short(number: u64) -> (String, bool) {
    (format!("test-{number}"), true)
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_lives_long_enough_is_served_and_another_one_is_replaced() {
    let setup = setup(&[Token(mins(10))]);
    assert_eq!(ask(&setup, mins(10)).await, long(1));
    sleep(mins(2)).await;
    assert_eq!(look(&setup, mins(8)), Some(long(1)), "it lives exactly as long");
    assert_eq!((ask(&setup, mins(8)).await, setup.runs()), (long(1), 1));
    assert_eq!(look(&setup, secs(481)), None);
    assert_eq!((ask(&setup, secs(481)).await, setup.runs()), (long(2), 2));
    assert_eq!(look(&setup, mins(10)), Some(long(2)), "all callers get the new one");
}

#[tokio::test(start_paused = true)]
async fn callers_at_the_same_time_share_one_run() {
    for held in [false, true] {
        let setup = setup(&[Token(mins(10))]);
        if held {
            setup.ask().await.unwrap();
            sleep(mins(5)).await;
        }
        let before = setup.runs();
        let ask = |min: u64| {
            let (cache, request) = (setup.cache.clone(), need(secs(301 + min * 60)));
            setup.tasks.spawn(async move {
                let issued = cache.get(spec("a"), &request).await.unwrap();
                (issued.generation.number(), cache.is_short(&issued, request.min_lifetime))
            })
        };
        let answers: Vec<_> = (0..50).map(ask).collect();
        if held {
            let others = timeout(Duration::from_millis(1), setup.ask()).await;
            assert_eq!(others.unwrap().unwrap(), "test-1", "other callers do not wait");
        }
        for (min, answer) in answers.into_iter().enumerate() {
            let is_short = 301 + min * 60 > 600;
            assert_eq!(answer.await.unwrap(), (u64::from(held) + 1, is_short), "{min}");
        }
        assert_eq!(setup.runs(), before + 1);
        assert_eq!(ask(49).await.unwrap(), (u64::from(held) + 1, true));
        assert_eq!(setup.runs(), before + 1, "that run counts for later callers too");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_did_no_better_runs_again_after_a_third_of_the_time_that_is_left() {
    for (lifetime, pause) in [(180, 60), (24, 10)] {
        let setup = setup(&[Token(secs(lifetime))]);
        assert_eq!(ask(&setup, mins(10)).await, short(1));
        sleep(secs(pause) - Duration::from_millis(1)).await;
        for more in [mins(10), mins(20), Duration::MAX] {
            assert_eq!(look(&setup, more), Some(short(1)), "any caller");
            assert_eq!((ask(&setup, more).await, setup.runs()), (short(1), 1));
        }
        sleep(Duration::from_millis(1)).await;
        assert_eq!(look(&setup, mins(10)), None);
        assert_eq!((ask(&setup, mins(10)).await, setup.runs()), (short(2), 2));
    }
}

/// Callers need nearly all the time for which the plugin issues credentials.
#[tokio::test(start_paused = true)]
async fn a_plugin_that_can_do_better_runs_at_most_once_in_ten_seconds() {
    let setup = setup(&[Token(mins(60))]);
    assert_eq!(ask(&setup, mins(60)).await, long(1));
    for second in 1..10 {
        sleep(secs(1)).await;
        assert_eq!((ask(&setup, mins(60)).await, setup.runs()), (short(1), 1), "{second}");
    }
    sleep(secs(1)).await;
    assert_eq!((ask(&setup, mins(60)).await, setup.runs()), (long(2), 2));
}

/// A plugin with its own cache.
#[tokio::test(start_paused = true)]
async fn the_same_credential_again_is_neither_due_earlier_nor_replaced() {
    let setup = setup(&[Same(mins(60))]);
    setup.ask().await.unwrap();
    sleep(mins(20)).await;
    assert_eq!((ask(&setup, mins(50)).await, setup.runs()), (short(1), 2));
    for _ in 0..12 {
        sleep(mins(1)).await;
        assert_eq!((ask(&setup, mins(50)).await, setup.runs()), (short(1), 2));
    }
    sleep(mins(2)).await;
    assert_eq!((ask(&setup, mins(50)).await, setup.runs()), (short(1), 3), "40 min / 3 = 13 min 20 s");
}

#[tokio::test(start_paused = true)]
async fn what_lives_longest_is_kept_unless_it_was_rejected() {
    let setup = setup(&[Token(mins(60)), Token(mins(10))]);
    setup.ask().await.unwrap();
    sleep(mins(5)).await;
    assert_eq!((ask(&setup, mins(58)).await, setup.runs()), (short(1), 2));
    assert_eq!(look(&setup, Duration::ZERO), Some(long(1)), "for all callers");
    sleep(mins(20)).await;
    // A report comes while the plugin runs for a longer lifetime.
    let waits = setup.tasks.spawn({
        let cache = setup.cache.clone();
        async move { cache.get(spec("a"), &need(mins(58))).await.unwrap() }
    });
    sleep(secs(1)).await;
    let reported = setup.cache.report(spec("a"), "test-1", &Request::default()).await.unwrap();
    assert_eq!((reported.outcome, setup.runs()), (ReportOutcome::Replaced, 3));
    assert_eq!(waits.await.unwrap().generation, reported.issued.generation);
    assert_eq!(look(&setup, Duration::ZERO), Some(long(2)));
}

#[tokio::test(start_paused = true)]
async fn a_replaced_plugin_replaces_what_lives_longer() {
    let setup = setup(&[Token(mins(60)), Token(mins(10))]);
    let spec = || PluginSpec { file: Arc::clone(&setup.file), ..spec("a") };
    setup.cache.get(spec(), &Request::default()).await.unwrap();
    sleep(mins(5)).await;
    setup.file.replace();
    let issued = setup.cache.get(spec(), &need(mins(58))).await.unwrap();
    assert_eq!(issued.generation.to_string(), "test-2");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_leaves_what_is_held_and_its_back_off_holds() {
    let setup = setup(&[Token(mins(10)), Fail]);
    setup.ask().await.unwrap();
    sleep(mins(5)).await;
    assert_eq!((ask(&setup, mins(8)).await, setup.runs()), (short(1), 2));
    assert_eq!(look(&setup, mins(8)), Some(short(1)));
    let at_terminal = Caller { at_terminal: true, ..Caller::default() };
    let user = Request { caller: at_terminal, ..need(mins(8)) };
    setup.cache.get(spec("a"), &user).await.unwrap();
    assert_eq!(setup.runs(), 2, "not even for a user at a terminal");
    sleep(mins(1)).await;
    assert_eq!((ask(&setup, mins(8)).await, setup.runs()), (short(1), 3));
}

#[tokio::test(start_paused = true)]
async fn an_expired_credential_is_not_the_answer_to_a_run_that_fails() {
    let setup = setup(&[Token(mins(10)), Fail]);
    setup.ask().await.unwrap();
    sleep(mins(5)).await;
    let (cache, clock) = (setup.cache.clone(), Arc::clone(&setup.clock));
    let waits = setup.tasks.spawn(async move { cache.get(spec("a"), &need(mins(8))).await });
    sleep(secs(1)).await;
    clock.suspend(mins(5));
    let failed = waits.await.unwrap().unwrap_err();
    assert!(matches!(failed.error, CacheError::Run(_)), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_deadline_passes_gets_what_is_held() {
    let setup = setup(&[Token(mins(10)), Late(mins(1))]);
    setup.ask().await.unwrap();
    sleep(mins(5)).await;
    let request = Request { deadline: Some(secs(3)), ..need(mins(8)) };
    let asked = Instant::now();
    let issued = setup.cache.get(spec("a"), &request).await.unwrap();
    assert_eq!((issued.generation.number(), asked.elapsed()), (1, secs(3)));
    sleep(secs(58)).await;
    assert_eq!((look(&setup, mins(8)), setup.runs()), (Some(long(2)), 2), "the run continues");
}

#[tokio::test(start_paused = true)]
async fn a_paused_key_or_issuer_is_left_alone() {
    let setup = setup(&[Token(mins(10)), Throttle(secs(40))]);
    setup.ask().await.unwrap();
    sleep(mins(5)).await;
    assert_eq!((ask(&setup, mins(8)).await, setup.runs()), (short(1), 2), "its run is throttled");
    assert_eq!((look(&setup, mins(8)), ask(&setup, mins(8)).await), (Some(short(1)), short(1)));
    assert_eq!(setup.runs(), 2, "and its key paused");

    let setup = self::setup(&[Token(mins(10)), Throttle(secs(40))]);
    setup.ask().await.unwrap();
    sleep(mins(5)).await;
    for key in ["b", "c"] {
        setup.cache.get(spec(key), &Request::default()).await.unwrap_err();
    }
    let asked = Instant::now();
    assert_eq!((ask(&setup, mins(8)).await, setup.runs()), (short(1), 3), "its issuer is paused");
    assert_eq!(asked.elapsed(), Duration::ZERO, "it does not wait for the end of the pause");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_drains_serves_what_it_holds() {
    let setup = setup(&[Token(mins(10))]);
    setup.ask().await.unwrap();
    sleep(mins(5)).await;
    setup.draining.cancel();
    assert_eq!((ask(&setup, mins(8)).await, setup.runs()), (short(1), 1));
}

/// All slots are taken.
#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_slot_causes_no_error() {
    let setup = setup(&[Token(mins(10)), Late(mins(30))]);
    let one = |key: &str| {
        let one = NonZeroUsize::MIN;
        let issuer = Arc::new(Issuer { name: "one".into(), runs_per_second: one, concurrency: one });
        let named = test_provider("one", Command::Path("/fake".into()));
        PluginSpec { provider: Arc::new(Provider { issuer, ..named }), ..spec(key) }
    };
    setup.cache.get(one("a"), &Request::default()).await.unwrap();
    sleep(mins(5)).await;
    let (cache, other) = (setup.cache.clone(), one("b"));
    setup.tasks.spawn(async move { cache.get(other, &Request::default()).await });
    sleep(secs(1)).await;
    let request = Request { deadline: Some(secs(3)), ..need(mins(8)) };
    let issued = setup.cache.get(one("a"), &request).await.unwrap();
    assert_eq!((issued.generation.number(), setup.runs()), (1, 2));
}
