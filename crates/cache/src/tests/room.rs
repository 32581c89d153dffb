//! A full cache: what callers select with their variables gives way first, and what callers use never does.

use super::{Script::*, *};
use crate::CacheError;

/// The run that the variable `V` with that value selects.
fn variant(value: &str) -> PluginSpec {
    PluginSpec { caller_env: BTreeMap::from([("V".to_owned(), value.to_owned())]), ..spec(value) }
}

/// A caller in that process of that uid.
fn of(uid: u32, process: u64) -> Request {
    let peer = u64::from(uid) << 32 | process;
    Request { caller: Caller { peer, ..Caller::default() }, ..Request::default() }
}

async fn fill(setup: &Setup, name: &str, count: usize, request: &Request) {
    for number in 0..count {
        setup.cache.get(variant(&format!("{name}{number}")), request).await.unwrap();
    }
}

/// The first error that the runs of `count` variants lead to, of which each is watched.
fn watch(
    setup: &Setup,
    count: usize,
    request: &Request,
) -> (Vec<super::super::CredentialWatch<FakeRunner>>, Option<CacheError>) {
    let mut watches = Vec::new();
    for number in 0..count {
        match setup.cache.watch(variant(&format!("w{number}")), request.caller) {
            Ok(watch) => watches.push(watch),
            Err(failed) => return (watches, Some(failed.error)),
        }
    }
    (watches, None)
}

fn holds(setup: &Setup, spec: &PluginSpec) -> bool {
    setup.cache.lookup(&spec.key, &Caller::default(), Duration::ZERO).is_some()
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_keys_of_one_process_refuse_no_other() {
    let setup = setup_with(100, &[Token(mins(60))]);
    setup.cache.get(spec("before"), &of(1, 2)).await.unwrap();
    fill(&setup, "old", 5, &of(2, 2)).await;
    fill(&setup, "flood", 1000, &of(1, 1)).await;
    assert_eq!(setup.cache.len(), 100);
    setup.cache.get(spec("first ask"), &of(1, 3)).await.unwrap();
    setup.cache.get(variant("another"), &of(2, 4)).await.unwrap();
    assert!(holds(&setup, &spec("before")), "no variable selected it");
    assert!((0..5).all(|number| holds(&setup, &variant(&format!("old{number}")))), "of a uid with few");
    assert!(!holds(&setup, &variant("flood0")) && holds(&setup, &variant("flood999")), "the oldest went");
}

#[tokio::test(start_paused = true)]
async fn idle_entries_of_processes_that_have_exited_lock_out_neither_their_uid_nor_another() {
    let limits = EntryLimits { bytes: 10 * 100, ..EntryLimits::for_tests(20) };
    let setup = setup_within(limits, &[Token(mins(60))]);
    for number in 0..50_u64 {
        setup.cache.get(large(&format!("a{number}"), 80), &of(1, number)).await.unwrap();
    }
    // All of uid 1, used in the last minute, and idle.
    setup.cache.get(large("b", 80), &of(2, 1)).await.unwrap();
    assert!(holds(&setup, &large("b", 80)) && holds(&setup, &large("a49", 80)));
    for number in 50..200_u64 {
        setup.cache.get(large(&format!("a{number}"), 80), &of(1, number)).await.unwrap();
        assert!(holds(&setup, &large("b", 80)), "it is below its fair part");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_that_no_caller_waits_for_gives_way_and_never_starts() {
    let setup = setup_with(10, &[Token(mins(60))]);
    setup.runner.script.lock().unwrap().push_back(Token(mins(60)));
    // The callers leave immediately. Runs that start at all start now.
    let flood = (0..50).map(|number| {
        let (cache, request) = (setup.cache.clone(), Request { deadline: Some(Duration::ZERO), ..of(1, 1) });
        async move { cache.get(variant_of_busy(number), &request).await.is_err() }
    });
    for asked in flood {
        assert!(asked.await);
    }
    setup.cache.get(spec("first ask"), &of(1, 2)).await.unwrap();
    assert!(setup.cache.len() <= 10);
    sleep_until_idle(&setup).await;
    assert!(setup.runs() <= 11, "{} runs", setup.runs());
}

/// A variant of a provider whose issuer starts one run at a time.
fn variant_of_busy(number: usize) -> PluginSpec {
    let one = NonZeroUsize::MIN;
    let issuer = Arc::new(Issuer { name: "busy".into(), runs_per_second: one, concurrency: one });
    let busy = test_provider("busy", Command::Path("/fake".into()));
    PluginSpec { provider: Arc::new(Provider { issuer, ..busy }), ..variant(&format!("b{number}")) }
}

async fn sleep_until_idle(setup: &Setup) {
    tokio::time::sleep(mins(5)).await;
    assert!(setup.cache.list(&Selector::All, None, usize::MAX).iter().all(|key| key.failure.is_none()));
}

#[tokio::test(start_paused = true)]
async fn what_is_watched_or_waited_for_never_gives_way() {
    let setup = setup_with(10, &[Token(mins(60))]);
    let (watches, refused) = watch(&setup, 10, &of(1, 1));
    assert!(refused.is_none());
    for spec in [variant("one more"), spec("of another")] {
        let failed = setup.cache.get(spec, &of(1, 2)).await.unwrap_err();
        assert!(matches!(failed.error, CacheError::Full(Full::Entries(10))), "{failed:?}");
    }
    drop(watches);
    setup.cache.get(spec("of another"), &of(1, 2)).await.unwrap();
    assert_eq!(setup.cache.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_watches_of_one_process_fit() {
    let setup = setup_with(10_000, &[Token(mins(60))]);
    let (watches, refused) = watch(&setup, 10_000, &of(1, 1));
    assert!(watches.len() == 10_000 && refused.is_none());
}

#[tokio::test(start_paused = true)]
async fn variables_and_credentials_have_a_bound_in_bytes() {
    let credential = {
        let setup = setup(&[Token(mins(60))]);
        setup.cache.get(spec("any"), &of(1, 1)).await.unwrap().encoded.frame.len()
    };
    assert!(credential > 0);
    let limits = EntryLimits { bytes: 2 * (401 + credential), ..EntryLimits::for_tests(100) };
    let setup = setup_within(limits, &[Token(mins(60))]);
    for name in ["a", "b", "c"] {
        setup.cache.get(large(name, 400), &of(1, 1)).await.unwrap();
    }
    let held = ["a", "b", "c"].map(|name| holds(&setup, &large(name, 400)));
    assert_eq!(held, [false, true, true]);
    let failed = setup.cache.get(large("huge", limits.bytes + 1), &of(1, 1)).await.unwrap_err();
    assert!(matches!(failed.error, CacheError::Full(Full::Bytes(_))), "{failed:?}");
    setup.cache.evict(&Selector::All);
    // A credential that has arrived counts: none of the three is in use.
    for name in ["d", "e", "f"] {
        setup.cache.get(large(name, 400 + credential / 2), &of(1, 1)).await.unwrap();
    }
    assert_eq!(setup.cache.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn fewer_entries_after_a_reload_forget_what_is_idle() {
    let setup = setup_with(10, &[Token(mins(60))]);
    let (watches, _) = watch(&setup, 3, &of(1, 1));
    fill(&setup, "idle", 7, &of(1, 1)).await;
    setup.cache.set_limits(EntryLimits::for_tests(2));
    assert_eq!(setup.cache.len(), 3, "those in use stay");
    drop(watches);
    setup.cache.get(variant("new"), &of(1, 1)).await.unwrap();
    assert_eq!(setup.cache.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_runs_of_the_broker_are_not_those_of_root() {
    let mut setup = setup(&[Late(secs(30))]);
    let Setup { runner, clock, tasks, draining, .. } = &setup;
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let parts = CacheParts::for_tests(Arc::clone(runner), Arc::clone(&clock), tasks, draining);
    setup.cache = CredentialCache::new(CacheParts { scheduler: Scheduler::new(1, clock, || 0.5), ..parts });
    // A process of root that the kernel does not show has many runs in the queue.
    for key in ["1", "2", "3", "4", "5"] {
        let (cache, root) = (setup.cache.clone(), of(0, 0));
        tokio::spawn(async move { cache.get(variant(key), &root).await.map(drop) });
    }
    tokio::time::sleep(secs(1)).await;
    let mut watch = setup.cache.watch(spec("hub"), Caller::default()).unwrap();
    tokio::time::timeout(secs(3 * 30), watch.next()).await.unwrap().unwrap();
}

/// A run whose variable has so many bytes.
fn large(name: &str, bytes: usize) -> PluginSpec {
    PluginSpec { caller_env: BTreeMap::from([("V".to_owned(), "x".repeat(bytes))]), ..spec(name) }
}
