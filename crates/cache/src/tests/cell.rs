//! One run for all callers that wait, also if it fails.

use tokio::time::sleep;

use super::{Script::*, *};
use crate::CacheError;

#[tokio::test(start_paused = true)]
async fn a_thousand_concurrent_misses_are_one_run() {
    let setup = setup(&[Token(mins(10))]);
    let asks = (0..1000).map(|_| {
        let cache = setup.cache.clone();
        setup.tasks.spawn(async move {
            cache.get(spec("a"), &Request::default()).await.unwrap().generation.to_string()
        })
    });
    let asks: Vec<_> = asks.collect();
    for ask in asks {
        assert_eq!(ask.await.unwrap(), "test-1");
    }
    assert_eq!(setup.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn different_keys_run_side_by_side() {
    let setup = setup(&[Token(mins(10))]);
    let started = Instant::now();
    let request = Request::default();
    let (a, b) = tokio::join!(setup.cache.get(spec("a"), &request), setup.cache.get(spec("b"), &request));
    assert_ne!(a.unwrap().generation, b.unwrap().generation);
    assert_eq!((setup.runs(), started.elapsed()), (2, RUN));
}

#[tokio::test(start_paused = true)]
async fn the_caller_that_started_a_run_leaves_and_the_others_still_get_its_outcome() {
    let setup = setup(&[Token(mins(10))]);
    let cache = setup.cache.clone();
    let first = setup.tasks.spawn(async move { cache.get(spec("a"), &Request::default()).await });
    sleep(secs(1)).await; // its run is in flight
    let (second, hangs_up) = (setup.ask(), async {
        first.abort();
    });
    let (second, ()) = tokio::join!(second, hangs_up);
    assert_eq!((second.unwrap().as_str(), setup.runs()), ("test-1", 1));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_callers_have_left_fills_the_cache() {
    let setup = setup(&[Token(mins(10))]);
    assert!(tokio::time::timeout(secs(1), setup.ask()).await.is_err());
    sleep(RUN).await;
    assert_eq!((setup.ask().await.unwrap().as_str(), setup.runs()), ("test-1", 1));
}

#[tokio::test(start_paused = true)]
async fn a_bug_after_the_run_is_a_failure_and_not_a_hang() {
    static BUG: AtomicUsize = AtomicUsize::new(0);
    let jitter = || {
        assert!(BUG.fetch_add(1, Ordering::SeqCst) > 0, "a bug in what judges the answer");
        0.5
    };
    let mut setup = setup(&[Token(mins(10))]);
    let Setup { runner, clock, tasks, draining, .. } = &setup;
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let parts = CacheParts::for_tests(Arc::clone(runner), clock, tasks, draining);
    setup.cache = CredentialCache::new(CacheParts { jitter, ..parts });
    let failed = tokio::time::timeout(mins(1), setup.ask()).await.expect("an answer").unwrap_err();
    assert!(
        matches!(failed.error, CacheError::Run(RunError { kind: RunErrorKind::Panicked, .. })),
        "{failed:?}"
    );
    sleep(failed.retry_after).await;
    assert_eq!(setup.ask().await.unwrap(), "test-1");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_shared_and_held_until_its_back_off_ends() {
    let setup = setup(&[Fail]);
    let (a, b) = tokio::join!(setup.ask(), setup.ask());
    assert!(matches!(a.unwrap_err().error, CacheError::Run(RunError { kind: RunErrorKind::Exit(1), .. })));
    assert_eq!(b.unwrap_err().retry_after, secs(1), "u = 0.5 of up to 2 s");
    assert_eq!(setup.runs(), 1);
    sleep(secs(1) - Duration::from_millis(1)).await;
    assert_eq!(setup.ask().await.unwrap_err().retry_after, Duration::from_millis(1));
    assert_eq!(setup.runs(), 1);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(setup.ask().await.unwrap_err().retry_after, secs(2), "the second in a row is held longer");
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_success_resets_the_back_off() {
    let setup = setup(&[Fail, Fail, Expired(secs(30)), Fail]);
    for held in [secs(1), secs(2)] {
        assert_eq!(setup.ask().await.unwrap_err().retry_after, held);
        sleep(held).await;
    }
    setup.ask().await.unwrap();
    sleep(secs(10)).await; // the end of the ten seconds
    assert_eq!(setup.ask().await.unwrap_err().retry_after, secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_bug_in_a_run_is_a_failure_and_not_a_hang() {
    let setup = setup(&[Panic, Token(mins(10))]);
    let failed = setup.ask().await.unwrap_err();
    assert!(
        matches!(failed.error, CacheError::Run(RunError { kind: RunErrorKind::Panicked, .. })),
        "{failed:?}"
    );
    sleep(failed.retry_after).await;
    assert_eq!(setup.ask().await.unwrap(), "test-1");
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_fails_ends_the_task_that_keeps_credentials_fresh() {
    #[derive(Debug)]
    struct Broken;
    impl Clock for Broken {
        fn now(&self) -> Now {
            panic!("broken on purpose")
        }
    }
    let Setup { runner, clock, tasks, draining, .. } = setup(&[Token(mins(10))]);
    let parts = CacheParts::<FakeRunner>::for_tests(runner, clock as Arc<dyn Clock>, &tasks, &draining);
    let scheduler = Scheduler::new(1, Arc::new(Broken), || 0.5);
    let cache = CredentialCache::new(CacheParts { scheduler, ..parts });
    let keeper =
        tokio::spawn(async move { cache.keep_fresh(credbroker_observe::clock::Beat::start()).await });
    assert!(keeper.await.unwrap_err().is_panic());
}

#[tokio::test(start_paused = true)]
async fn draining_ends_the_runs_and_answers_the_callers_that_wait() {
    let setup = setup(&[Token(mins(10))]);
    let draining = setup.draining.clone();
    let (answer, ()) = tokio::join!(setup.ask(), async move {
        sleep(secs(1)).await;
        draining.cancel();
    });
    assert!(matches!(answer.unwrap_err().error, CacheError::Draining));
    setup.tasks.close();
    setup.tasks.wait().await; // the maintenance has ended too
}

#[tokio::test(start_paused = true)]
async fn a_full_cache_forgets_the_key_that_was_idle_longest_and_never_one_in_use() {
    let setup = setup_with(2, &[Token(mins(10))]);
    setup.cache.get(spec("a"), &Request::default()).await.unwrap();
    setup.cache.get(spec("b"), &Request::default()).await.unwrap();
    let failed = setup.cache.get(spec("c"), &Request::default()).await.unwrap_err();
    assert!(matches!(failed.error, CacheError::Full(Full::Entries(2))), "{failed:?}");
    sleep(secs(50)).await;
    setup.cache.get(spec("a"), &Request::default()).await.unwrap();
    sleep(secs(20)).await; // `b` is idle for more than a minute, `a` is not
    setup.cache.get(spec("c"), &Request::default()).await.unwrap();
    assert_eq!(setup.runs(), 3);
    setup.cache.get(spec("a"), &Request::default()).await.unwrap();
    assert_eq!((setup.runs(), setup.cache.len()), (3, 2), "`a` was kept");
}

#[tokio::test(start_paused = true)]
async fn an_idle_entry_is_dropped_and_its_secret_with_it() {
    let setup = setup(&[Token(mins(1))]);
    let material = Arc::downgrade(&setup.cache.get(spec("a"), &Request::default()).await.unwrap());
    assert!(material.upgrade().is_some());
    sleep(mins(7)).await;
    assert!(setup.cache.is_empty());
    assert!(material.upgrade().is_none(), "the last copy is gone, and a `SecretString` wipes itself");
}
