//! A full cache: what callers select with their variables gives way first, and what callers use never does.

use super::{Script::*, *};
use crate::{CacheError, Lookup};

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
) -> (Vec<super::super::CredentialWatch<Arc<FakeRunner>>>, Option<CacheError>) {
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
    matches!(setup.cache.lookup(&spec.key, &Caller::default()), Lookup::Served(_))
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_keys_of_one_process_refuse_no_other() {
    let setup = setup_with(100, &[Token(mins(60))]);
    setup.cache.get(spec("before"), &of(1, 2)).await.unwrap();
    fill(&setup, "old", 5, &of(1, 2)).await;
    fill(&setup, "flood", 1000, &of(1, 1)).await;
    assert_eq!(setup.cache.len(), 100);
    setup.cache.get(spec("first ask"), &of(1, 3)).await.unwrap();
    setup.cache.get(variant("another"), &of(2, 4)).await.unwrap();
    assert!(holds(&setup, &spec("before")), "no variable selected it");
    assert!((0..5).all(|number| holds(&setup, &variant(&format!("old{number}")))), "of a process with few");
    assert!(!holds(&setup, &variant("flood0")) && holds(&setup, &variant("flood999")), "the oldest went");
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_that_no_caller_waits_for_gives_way_and_never_starts() {
    let setup = setup_with(10, &[Token(mins(60))]);
    setup.runner.script.lock().unwrap().push_back(Token(mins(60)));
    // The callers leave at once. Runs that start at all start now.
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
    let failed = setup.cache.get(variant("one more"), &of(1, 1)).await.unwrap_err();
    assert!(matches!(failed.error, CacheError::Full(Room::OfProcess { limit: 10 })), "{failed:?}");
    let failed = setup.cache.get(spec("of another"), &of(1, 2)).await.unwrap_err();
    assert!(matches!(failed.error, CacheError::Full(Room::Entries { limit: 10 })), "{failed:?}");
    drop(watches);
    tokio::time::sleep(secs(1)).await; // the next search
    setup.cache.get(spec("of another"), &of(1, 2)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_process_and_a_uid_use_their_share_of_the_keys_and_no_more() {
    let limits = EntryLimits { in_use_per_process: 5, in_use_per_uid: 7, ..EntryLimits::for_tests(10) };
    let setup = setup_within(limits, &[Token(mins(60))]);
    let (first, refused) = watch(&setup, 10, &of(1, 1));
    assert!(matches!(refused, Some(CacheError::Full(Room::OfProcess { limit: 5 }))), "{refused:?}");
    let by_sibling = |name| setup.cache.watch(variant(name), of(1, 2).caller);
    let second = [by_sibling("x").unwrap(), by_sibling("y").unwrap()];
    let refused = by_sibling("z").unwrap_err().error;
    assert!(matches!(refused, CacheError::Full(Room::OfUid { limit: 7 })), "{refused:?}");
    assert!(by_sibling("w0").is_ok(), "a key that is in use is counted once");
    assert!(setup.cache.watch(spec("no variable"), of(1, 1).caller).is_ok());
    assert!(setup.cache.watch(variant("z"), of(2, 3).caller).is_ok(), "another uid");
    drop((first, second));
    let (_again, refused) = watch(&setup, 5, &of(1, 1));
    assert!(refused.is_none(), "their use is no longer counted");
}

#[tokio::test(start_paused = true)]
async fn the_variables_of_a_process_have_a_limit_in_bytes() {
    let limits = EntryLimits { bytes_per_process: 1000, ..EntryLimits::for_tests(100) };
    let setup = setup_within(limits, &[Token(mins(60))]);
    let large = |name: &str| PluginSpec {
        caller_env: BTreeMap::from([("V".to_owned(), "x".repeat(400))]),
        ..spec(name)
    };
    for name in ["a", "b", "c"] {
        setup.cache.get(large(name), &of(1, 1)).await.unwrap();
    }
    assert!(!holds(&setup, &large("a")) && holds(&setup, &large("b")) && holds(&setup, &large("c")));
    setup.cache.get(large("d"), &of(1, 2)).await.unwrap();
    assert_eq!(setup.cache.len(), 3);
    let huge =
        PluginSpec { caller_env: BTreeMap::from([("V".to_owned(), "x".repeat(1000))]), ..spec("huge") };
    let failed = setup.cache.get(huge, &of(1, 1)).await.unwrap_err();
    assert!(matches!(failed.error, CacheError::Full(Room::BytesOfProcess { limit: 1000 })), "{failed:?}");
}
