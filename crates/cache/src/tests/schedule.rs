//! Refresh ahead of expiry.

use tokio::time::sleep;

use super::{Script::*, *};

#[tokio::test(start_paused = true)]
async fn a_used_credential_is_renewed_ahead_of_expiry_off_the_callers_path() {
    let setup = setup(&[Token(mins(60))]);
    assert_eq!(setup.ask().await.unwrap(), "test-1");
    sleep(mins(44)).await;
    assert_eq!((setup.ask().await.unwrap().as_str(), setup.runs()), ("test-1", 1));
    sleep(mins(1) + secs(2)).await; // u = 0.5: 25 % of an hour before its end
    let asked = Instant::now();
    assert_eq!(setup.ask().await.unwrap(), "test-1", "the old one is served while the run is in flight");
    assert_eq!((asked.elapsed(), setup.runs()), (Duration::ZERO, 2));
    sleep(RUN).await;
    assert_eq!((setup.ask().await.unwrap().as_str(), setup.runs()), ("test-2", 2));
}

#[tokio::test(start_paused = true)]
async fn an_unused_key_stops_refreshing() {
    let setup = setup(&[Token(mins(10))]);
    setup.ask().await.unwrap();
    sleep(mins(60)).await;
    assert_eq!(setup.runs(), 2, "one refresh within a lifetime of the last ask, and no more");
    assert!(setup.cache.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_leaves_the_valid_one_until_its_own_expiry_and_never_after() {
    let setup = setup(&[Token(mins(10)), Fail]);
    setup.ask().await.unwrap();
    let fetched = Instant::now();
    while fetched.elapsed() < mins(10) - secs(1) {
        assert_eq!(setup.ask().await.unwrap(), "test-1");
        sleep(secs(1)).await;
    }
    sleep(secs(1)).await;
    assert!(setup.ask().await.is_err(), "expired to the second");
    let renewals = setup.runs() - 1;
    assert!((4..20).contains(&renewals), "it was tried again with growing pauses: {renewals}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_its_checks_leaves_credential_and_expiry_as_they_were() {
    let setup = setup(&[Token(mins(10)), Expired(mins(6))]);
    let before = setup.cache.get(spec("a"), &Request::default()).await.unwrap();
    sleep(mins(9)).await;
    assert!(setup.runs() > 1, "a refresh was refused");
    let after = setup.cache.get(spec("a"), &Request::default()).await.unwrap();
    assert_eq!((&after.generation, after.expires_at), (&before.generation, before.expires_at));
    sleep(mins(1)).await;
    assert!(setup.ask().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_returns_the_same_credential_is_run_less_often() {
    let setup = setup(&[Same(mins(60))]);
    let first = setup.cache.get(spec("a"), &Request::default()).await.unwrap();
    let mut runs = Vec::new();
    for minute in 1..58 {
        sleep(mins(1)).await;
        let now = setup.cache.get(spec("a"), &Request::default()).await.unwrap();
        assert_eq!(
            (&now.generation, now.expires_at),
            (&first.generation, first.expires_at),
            "minute {minute}"
        );
        runs.push(setup.runs());
    }
    assert_eq!(runs[43], 1, "not before a quarter is left");
    let retries = runs.last().unwrap() - 1;
    assert!((3..=12).contains(&retries), "a third of what is left, at most five minutes: {retries}");
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_had_just_expired_is_served_for_ten_seconds() {
    let setup = setup(&[Expired(secs(30))]);
    let lent = setup.cache.get(spec("a"), &Request::default()).await.unwrap();
    assert_eq!(lent.bound, credbroker_credential::LifetimeBound::ClockSkew);
    for _ in 0..9 {
        sleep(secs(1)).await;
        assert_eq!(setup.ask().await.unwrap(), "test-1");
    }
    assert_eq!(setup.runs(), 1);
    sleep(secs(1)).await;
    assert_eq!((setup.ask().await.unwrap().as_str(), setup.runs()), ("test-2", 2));
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_expired_long_ago_is_refused_and_held() {
    let setup = setup(&[Expired(mins(6))]);
    let failed = setup.ask().await.unwrap_err();
    assert!(matches!(failed.error, crate::CacheError::Lifetime(..)), "{failed:?}");
    assert_eq!((setup.ask().await.is_err(), setup.runs()), (true, 1));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_takes_the_turns_of_the_uid_that_used_the_credential_last() {
    const OTHERS: usize = 50;
    let mut script = vec![Token(mins(10)); OTHERS + 1];
    script.push(Late(secs(10)));
    let mut setup = setup(&script);
    let Setup { runner, clock, tasks, draining, .. } = &setup;
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let parts = CacheParts::for_tests(Arc::clone(runner), Arc::clone(&clock), tasks, draining);
    setup.cache = CredentialCache::new(CacheParts { scheduler: Scheduler::new(1, clock, || 0.5), ..parts });
    let keeper = setup.cache.clone();
    setup.tasks.spawn(async move { keeper.keep_fresh(credbroker_observe::clock::Beat::start()).await });
    let of_uid = |uid: u64| {
        let caller = Caller { peer: uid << 32 | 1, ..Caller::default() };
        Request { caller, ..Request::default() }
    };
    let mut expires = SystemTime::UNIX_EPOCH;
    for number in 0..OTHERS {
        let spec = spec(&format!("other {number}"));
        expires = setup.cache.get(spec, &of_uid(3)).await.unwrap().expires_at;
    }
    setup.cache.get(spec("held"), &of_uid(2)).await.unwrap();
    while setup.clock.now().wall < expires + secs(30) {
        sleep(secs(1)).await;
        let asked = Instant::now();
        setup.cache.get(spec("held"), &of_uid(2)).await.unwrap();
        assert_eq!(asked.elapsed(), Duration::ZERO, "it was refreshed in time");
    }
    assert!(setup.runs() < 2 * OTHERS, "runs of the other uid still wait");
}
