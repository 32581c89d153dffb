//! What callers can rely on under load and during failures.

use tokio::time::{sleep, timeout};

use super::{Script::*, *};
use crate::{CacheError, Holding, KeyStatus};

/// A key of a provider whose issuer allows `runs` at a time, and as many starts in a second as it takes.
fn spec_of(setup: &Setup, provider: &str, key: &str, runs: usize) -> PluginSpec {
    let count = |count| NonZeroUsize::new(count).unwrap();
    let issuer = Issuer { name: provider.into(), runs_per_second: count(10_000), concurrency: count(runs) };
    let spec = spec(&format!("{provider} {key}"));
    let named = test_provider(provider, Command::Path("/fake".into()));
    let (provider, file) =
        (Arc::new(Provider { issuer: Arc::new(issuer), ..named }), Arc::clone(&setup.file));
    PluginSpec { provider, file, ..spec }
}

/// A caller in that process.
fn peer(peer: u64) -> Request {
    Request { caller: Caller { peer, ..Caller::default() }, ..Request::default() }
}

async fn hold(setup: &Setup, provider: &str, keys: usize, runs: usize) {
    let ahead = (0..keys).map(|key| {
        let (cache, spec) = (setup.cache.clone(), spec_of(setup, provider, &key.to_string(), runs));
        setup.tasks.spawn(async move { cache.fetch_ahead(spec).await.unwrap() })
    });
    for fetched in ahead.collect::<Vec<_>>() {
        fetched.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn two_thousand_due_keys_delay_no_caller_and_lose_no_credential() {
    let setup = setup_with(10_000, &[Token(mins(60))]);
    // 2,000 runs of 2 s, four at a time, take a thousand seconds.
    hold(&setup, "busy", 2000, 4).await;
    setup.file.replace();
    sleep(secs(5)).await; // all are due now, and four of them run
    let asked = Instant::now();
    setup.cache.get(spec_of(&setup, "other", "cold", 4), &Request::default()).await.unwrap();
    assert!(asked.elapsed() <= 2 * RUN, "{:?}", asked.elapsed());
    let asked = Instant::now();
    setup.cache.get(spec_of(&setup, "busy", "cold", 4), &Request::default()).await.unwrap();
    assert!(asked.elapsed() <= 2 * RUN, "of the same provider: {:?}", asked.elapsed());
    for key in 0..2000 {
        setup.cache.get(spec_of(&setup, "busy", &key.to_string(), 4), &Request::default()).await.unwrap();
    }
    let held = setup.cache.list(&of("busy"), None, usize::MAX);
    assert!(held.iter().all(|held| held.issued.is_some() && held.failure.is_none()));
}

#[tokio::test(start_paused = true)]
async fn replacing_the_plugin_under_held_credentials_fails_no_request() {
    let setup = setup_with(3000, &[Token(mins(60)), Fail]);
    let mut keys = Vec::new();
    *setup.runner.script.lock().unwrap() = [Token(mins(60))].into();
    hold(&setup, "p", 500, 100).await;
    *setup.runner.script.lock().unwrap() = [Fail].into();
    setup.file.replace();
    for second in 0..60 {
        for key in (second..500).step_by(60) {
            let spec = spec_of(&setup, "p", &key.to_string(), 100);
            keys.push(setup.cache.get(spec, &Request::default()).await.unwrap().generation.clone());
        }
        sleep(secs(1)).await;
    }
    assert!(setup.runs() > 500, "the new file was tried");
    *setup.runner.script.lock().unwrap() = [Token(mins(60))].into();
    sleep(mins(3)).await;
    let issued = setup.cache.get(spec_of(&setup, "p", "0", 100), &Request::default()).await.unwrap();
    assert!(!keys.contains(&issued.generation), "and replaced the old credential once it worked");
}

#[tokio::test(start_paused = true)]
async fn a_watch_has_a_new_credential_soon_after_a_suspend_or_a_step_past_the_expiry() {
    for suspended in [true, false] {
        let setup = setup(&[Token(mins(30))]);
        let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
        watch.next().await.unwrap();
        if suspended {
            setup.clock.suspend(mins(31));
        } else {
            setup.clock.step(31 * 60_000);
        }
        let next = timeout(secs(1) + RUN, watch.next()).await;
        assert_eq!(next.expect("within the second and a run").unwrap().generation.to_string(), "test-2");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_learns_what_it_waits_for_at_its_deadline() {
    let setup = setup(&[Token(mins(60))]);
    let within = |deadline| Request { deadline: Some(deadline), ..Request::default() };
    let failed = setup.cache.get(spec("a"), &within(secs(1))).await.unwrap_err();
    assert!(matches!(failed.error, CacheError::Pending(_)), "{failed:?}");
    assert_eq!(failed.to_string(), "the plugin has been running for 1 s; try again, the run continues");
    setup.cache.get(spec("a"), &within(secs(2))).await.unwrap();
    assert_eq!(setup.runs(), 1, "the run went on");
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_a_deadline_waits_a_minute() {
    let setup = setup_with(1000, &[Token(mins(60))]);
    let asked = Instant::now();
    let spec = |key: &str| spec_of(&setup, "slow", key, 1);
    let first: Vec<_> =
        (0..100).map(|key| setup.cache.watch(spec(&key.to_string()), Caller::default()).unwrap()).collect();
    let waiting =
        first.into_iter().map(|mut watch| setup.tasks.spawn(async move { watch.next().await.is_ok() }));
    let _waiting: Vec<_> = waiting.collect();
    tokio::task::yield_now().await;
    let failed = setup.cache.get(spec("last"), &Request::default()).await.unwrap_err();
    assert!(matches!(failed.error, CacheError::Pending(_)), "{failed:?}");
    assert!(failed.to_string().starts_with("the plugin run is queued: "), "{failed}");
    assert_eq!(asked.elapsed(), mins(1));
}

#[tokio::test(start_paused = true)]
async fn after_a_login_it_works_at_once() {
    let setup = setup(&[Fail]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    assert!(watch.next().await.is_err());
    sleep(mins(10)).await; // its refreshes fail, with a growing back-off
    assert!(setup.runs() > 5);
    *setup.runner.script.lock().unwrap() = [Token(mins(60))].into();
    let at_terminal = Caller { at_terminal: true, ..Caller::default() };
    let person = Request { caller: at_terminal, ..Request::default() };
    let asked = Instant::now();
    while setup.cache.get(spec("a"), &person).await.is_err() {
        sleep(Duration::from_millis(100)).await;
    }
    assert!(asked.elapsed() <= secs(3) + RUN, "{:?}", asked.elapsed());
}

/// kubectl runs its plugin again and again, and its user runs kubectl again.
#[tokio::test(start_paused = true)]
async fn a_failure_is_the_answer_to_the_command_that_got_it_and_not_to_the_next_one() {
    let setup = setup(&[Fail]);
    let command = |name, at_terminal| Request {
        caller: Caller { name, at_terminal, ..Caller::default() },
        ..Request::default()
    };
    let fails = async |request: &Request| setup.cache.get(spec("a"), request).await.unwrap_err();
    let (first, second, program) = (command(7, true), command(8, true), command(9, false));
    assert_eq!(fails(&first).await.retry_after, Duration::ZERO);
    assert!(!fails(&program).await.retry_after.is_zero());
    for _ in 0..5 {
        fails(&first).await;
    }
    assert_eq!(setup.runs(), 1);
    let together = tokio::join!(fails(&second), fails(&first));
    assert_eq!(setup.runs(), 2, "{together:?}");
    tokio::join!(fails(&second), fails(&first));
    assert_eq!(setup.runs(), 2, "it was the failure of both");
    sleep(secs(10)).await;
    fails(&first).await;
    assert_eq!(setup.runs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_a_command_did_not_get_does_not_answer_it() {
    let setup = setup(&[Token(mins(10)), Fail, Token(mins(10))]);
    let caller = Caller { name: 7, at_terminal: true, ..Caller::default() };
    let request = Request { caller, min_lifetime: mins(8), ..Request::default() };
    let ask = async || setup.cache.get(spec("a"), &request).await.unwrap().generation.to_string();
    assert_eq!(ask().await, "test-1");
    sleep(mins(3)).await;
    assert_eq!((ask().await.as_str(), setup.runs()), ("test-1", 2), "its run fails, and what is held serves");
    setup.clock.step(3_600_000);
    assert_eq!((ask().await.as_str(), setup.runs()), ("test-2", 3));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_not_tried_again_and_again() {
    let setup = setup(&[Fail]);
    for _ in 0..600 {
        assert!(setup.ask().await.is_err());
        sleep(secs(1)).await;
    }
    assert!(setup.runs() < 30, "{}", setup.runs());
}

#[tokio::test(start_paused = true)]
async fn a_queued_refresh_that_is_no_longer_needed_is_abandoned() {
    let setup = setup(&[Token(mins(5))]);
    let watch = setup.cache.watch(spec_of(&setup, "p", "blocks", 1), Caller::default());
    hold(&setup, "p", 2, 1).await;
    drop(watch);
    let before = setup.tasks.len();
    sleep(mins(30)).await;
    assert!(setup.tasks.len() <= before);
    assert!(setup.cache.is_empty(), "idle keys are forgotten, queued or not");
}

#[tokio::test(start_paused = true)]
async fn pages_list_every_key_once_in_order() {
    let setup = setup_with(1000, &[Token(mins(60))]);
    hold(&setup, "b", 30, 100).await;
    hold(&setup, "a", 20, 100).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = setup.cache.list(&Selector::All, after.as_ref(), 7);
        let Some(last) = page.last() else { break };
        after = Some(last.position());
        assert!(page.iter().all(|held| held.holding == Holding::Valid));
        seen.extend(page.iter().map(KeyStatus::position));
    }
    assert_eq!(seen.len(), 50);
    assert!(seen.is_sorted());
    assert_eq!(setup.cache.list(&of("a"), None, usize::MAX).len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_that_a_process_at_its_share_joins_starts_in_its_first_turn() {
    // With a pause, the second caller comes when the run is queued already.
    for (joins_first, pauses) in [(false, true), (true, true), (false, false), (true, false)] {
        let long = || Late(secs(100));
        let mut setup = setup(&[long(), long(), long(), Late(secs(10)), Token(mins(60))]);
        let Setup { runner, clock, tasks, draining, .. } = &setup;
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let parts = CacheParts::for_tests(Arc::clone(runner), Arc::clone(&clock), tasks, draining);
        let scheduler = Scheduler::new(4, clock, || 0.5);
        setup.cache = CredentialCache::new(CacheParts { scheduler, ..parts });
        let ask = |key: &str, process| {
            let (cache, spec) = (setup.cache.clone(), spec(key));
            setup.tasks.spawn(async move { cache.get(spec, &peer(process)).await.map(drop) })
        };
        // Three quarters: its share while another process waits.
        let busy = ["one", "two", "three"].map(|key| ask(key, 1));
        tokio::task::yield_now().await;
        let other = ask("four", 3);
        tokio::task::yield_now().await;
        let asked = Instant::now();
        let mut waiting = Vec::new();
        for process in if joins_first { [1, 2] } else { [2, 1] } {
            waiting.push(ask("joined", process));
            if pauses {
                tokio::task::yield_now().await;
            }
        }
        other.await.unwrap().unwrap();
        for waits in waiting {
            waits.await.unwrap().unwrap();
        }
        assert_eq!(asked.elapsed(), secs(10) + RUN, "{joins_first} {pauses}");
        drop(busy);
    }
}
