//! Watches return each rotation, and skip to the newest.

use tokio::time::{sleep, timeout};

use super::{Script::*, *};
use crate::CacheError;

/// The generation of the next value.
async fn next(watch: &mut super::super::CredentialWatch<FakeRunner>) -> Result<String, Failed> {
    watch.next().await.map(|issued| issued.generation.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_watch_returns_the_current_credential_and_then_each_rotation() {
    let setup = setup(&[Token(mins(60))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    let started = Instant::now();
    assert_eq!(next(&mut watch).await.unwrap(), "test-1");
    for generation in 2..6 {
        assert_eq!(next(&mut watch).await.unwrap(), format!("test-{generation}"));
    }
    assert!(started.elapsed() > mins(4 * 44), "each at its refresh point: the key is kept fresh");
    assert_eq!(setup.runs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_watch_returns_nothing_while_nothing_changes() {
    let setup = setup(&[Same(mins(60))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    next(&mut watch).await.unwrap();
    assert!(timeout(mins(55), next(&mut watch)).await.is_err());
    assert!(setup.runs() > 3, "the plugin was asked, and had nothing new");
}

#[tokio::test(start_paused = true)]
async fn a_watch_returns_the_same_credential_again_with_a_later_expiry() {
    let setup = setup(&[Same(mins(10)), Same(mins(30))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    let first = watch.next().await.unwrap();
    let second = watch.next().await.unwrap();
    assert_eq!(first.generation, second.generation);
    assert!(second.expires_at > first.expires_at);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_the_newest_and_delays_no_other() {
    let setup = setup(&[Token(mins(10))]);
    let (mut slow, mut quick) = (
        setup.cache.watch(spec("a"), Caller::default()).unwrap(),
        setup.cache.watch(spec("a"), Caller::default()).unwrap(),
    );
    assert_eq!(next(&mut slow).await.unwrap(), "test-1");
    for generation in 1..5 {
        assert_eq!(next(&mut quick).await.unwrap(), format!("test-{generation}"));
    }
    assert_eq!(next(&mut slow).await.unwrap(), "test-4");
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_ends_without_another_ends_the_watch_with_the_reason() {
    let setup = setup(&[Token(mins(10)), Fail]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    let started = Instant::now();
    next(&mut watch).await.unwrap();
    let failed = next(&mut watch).await.unwrap_err();
    assert!(matches!(failed.error, CacheError::Run(_)), "{failed:?}");
    assert!(started.elapsed() >= mins(10) && started.elapsed() < mins(11), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_forgotten_only_when_its_last_watch_is_gone() {
    let setup = setup(&[Token(mins(10))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    next(&mut watch).await.unwrap();
    sleep(mins(60)).await;
    assert_eq!(setup.cache.list(&Selector::All, None, usize::MAX)[0].watchers, 1);
    assert!(setup.runs() > 5);
    drop(watch);
    sleep(mins(60)).await;
    assert!(setup.cache.is_empty());
}

fn is_evicted(answer: &Result<String, Failed>) -> bool {
    matches!(answer, Err(Failed { error: CacheError::Evicted, .. }))
}

#[tokio::test(start_paused = true)]
async fn an_evicted_credential_is_wiped_and_its_watch_ends() {
    let setup = setup(&[Token(mins(60))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    let first = watch.next().await.unwrap();
    let material = Arc::downgrade(&first);
    drop(first);
    assert_eq!(setup.cache.evict(&of("another")), 0);
    let started = Instant::now();
    let (ended, ()) = tokio::join!(next(&mut watch), async {
        sleep(secs(1)).await;
        assert_eq!(setup.cache.evict(&Selector::All), 1);
    });
    assert!(is_evicted(&ended));
    assert_eq!(started.elapsed(), secs(1), "immediately, before the next credential");
    assert!(material.upgrade().is_none(), "no copy is left");
    let mut again = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    assert_eq!(next(&mut again).await.unwrap(), "test-2");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_a_watch_learns_of_an_eviction_before_it_gets_a_later_credential() {
    let setup = setup(&[Token(mins(60))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    assert_eq!(next(&mut watch).await.unwrap(), "test-1");
    setup.cache.evict(&Selector::All);
    assert_eq!(setup.ask().await.unwrap(), "test-2");
    assert!(is_evicted(&next(&mut watch).await));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_no_credential_outlives_an_eviction() {
    let setup = setup(&[Token(mins(60))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    setup.cache.evict(&Selector::All);
    assert_eq!(next(&mut watch).await.unwrap(), "test-1");
    assert!(timeout(mins(30), next(&mut watch)).await.is_err(), "what follows an eviction is not evicted");
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_has_expired_cannot_be_evicted() {
    let setup = setup(&[Token(mins(10)), Fail, Token(mins(10))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    assert_eq!(next(&mut watch).await.unwrap(), "test-1");
    setup.clock.step(20 * 60 * 1_000);
    setup.cache.evict(&Selector::All);
    assert!(!is_evicted(&next(&mut watch).await));
}

#[tokio::test(start_paused = true)]
async fn a_credential_of_a_run_from_before_an_eviction_is_taken_back() {
    let setup = setup(&[Token(mins(60))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    let (first, ()) = tokio::join!(next(&mut watch), async {
        sleep(secs(1)).await; // the run is in flight
        setup.cache.evict(&Selector::All);
    });
    assert_eq!(first.unwrap(), "test-1");
    assert!(is_evicted(&next(&mut watch).await));
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_run_from_before_an_eviction_goes_only_to_the_callers_that_wait() {
    let setup = setup(&[Token(mins(60))]);
    let (waited, asked) = tokio::join!(setup.ask(), async {
        sleep(secs(1)).await; // the run is in flight, perhaps for the account that was left
        assert_eq!(setup.cache.evict(&Selector::All), 1);
        setup.ask().await
    });
    assert_eq!((waited.unwrap().as_str(), asked.unwrap().as_str()), ("test-1", "test-2"));
    for _ in 0..60 {
        assert_eq!(setup.ask().await.unwrap(), "test-2");
        sleep(secs(1)).await;
    }
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_from_before_an_eviction_is_ended() {
    let setup = setup(&[Token(mins(60))]);
    setup.ask().await.unwrap();
    let fake = of("fake");
    let refresh = setup.cache.refresh(&fake);
    let evict = async {
        sleep(secs(1)).await;
        setup.cache.evict(&fake);
    };
    tokio::join!(refresh, evict);
    sleep(RUN).await;
    assert!(setup.cache.list(&Selector::All, None, 1).iter().all(|held| held.issued.is_none()));
    assert_eq!(setup.ask().await.unwrap(), "test-2");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_runs_now_and_a_failing_one_keeps_the_credential() {
    let setup = setup(&[Token(mins(60)), Token(mins(60)), Fail]);
    setup.ask().await.unwrap();
    setup.cache.refresh(&of("fake")).await;
    assert_eq!(setup.ask().await.unwrap(), "test-2");
    setup.cache.refresh(&of("fake")).await;
    assert_eq!((setup.ask().await.unwrap().as_str(), setup.runs()), ("test-2", 3));
    let held = setup.cache.list(&of("fake"), None, usize::MAX);
    assert_eq!((held[0].holding, held[0].runs), (crate::Holding::Refreshing, 3));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_a_run_from_before_an_eviction_gets_the_outcome_of_a_faster_later_run() {
    let setup = setup(&[Late(secs(25)), Token(mins(60))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    let later = async {
        sleep(secs(1)).await;
        setup.cache.evict(&Selector::All);
        setup.ask().await.unwrap()
    };
    let asked = Instant::now();
    let (waited, watched, asked_later) = tokio::join!(setup.ask(), watch.next(), later);
    assert_eq!(
        (waited.unwrap(), watched.unwrap().generation.to_string()),
        (asked_later.clone(), asked_later)
    );
    assert_eq!(asked.elapsed(), secs(1) + RUN);
    assert!(timeout(mins(30), watch.next()).await.is_err(), "that run began after the eviction");
}
