//! Runs for targets that a ClusterProfile no longer has.

use tokio::time::{sleep, timeout};

use super::{Script::*, *};

fn paris() -> ProfileName {
    profile_name("paris")
}

/// A key of the profile.
fn spec_for_paris() -> PluginSpec {
    PluginSpec { target: Some(target("paris", "paris")), ..spec("paris") }
}

#[tokio::test(start_paused = true)]
async fn a_run_for_an_old_target_ends_if_no_caller_waits_for_it() {
    let setup = setup(&[Token(mins(10))]);
    let started = timeout(secs(1), setup.cache.get(spec_for_paris(), &Request::default())).await;
    assert!(started.is_err(), "it is in flight, and its caller has left");
    let idle = setup.tasks.len() - 1;
    setup.cache.forget(&paris(), None);
    sleep(Duration::from_millis(1)).await;
    assert_eq!((setup.tasks.len(), setup.cache.len()), (idle, 0));
    setup.cache.get(spec_for_paris(), &Request::default()).await.unwrap();
    assert_eq!(setup.runs(), 2, "the profile is back");
}

#[tokio::test(start_paused = true)]
async fn only_the_callers_that_wait_for_such_a_run_get_its_outcome() {
    let setup = setup(&[Token(mins(10))]);
    let waits = async {
        setup.cache.get(spec_for_paris(), &Request::default()).await.unwrap().generation.to_string()
    };
    let moves = async {
        sleep(secs(1)).await;
        setup.cache.forget(&paris(), None);
    };
    let (generation, ()) = tokio::join!(waits, moves);
    assert_eq!((generation.as_str(), setup.runs()), ("test-1", 1));
    let later = setup.cache.get(spec_for_paris(), &Request::default()).await.unwrap();
    assert_eq!((later.generation.to_string().as_str(), setup.runs()), ("test-2", 2));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_moves_on_leaves_no_run_behind() {
    let setup = setup(&[Token(mins(10))]);
    let mut watch = setup.cache.watch(spec_for_paris(), Caller::default()).unwrap();
    assert!(timeout(secs(1), watch.next()).await.is_err());
    let idle = setup.tasks.len() - 1;
    setup.cache.forget(&paris(), None);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(setup.tasks.len(), idle, "it does not wait at the moment");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_a_request_with_an_answer_leaves_behind_ends_with_its_target() {
    let mut setup = setup(&[Token(mins(60)), Late(secs(10))]);
    let Setup { runner, clock, tasks, draining, .. } = &setup;
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let parts = CacheParts::for_tests(Arc::clone(runner), Arc::clone(&clock), tasks, draining);
    setup.cache = CredentialCache::new(CacheParts { scheduler: Scheduler::new(1, clock, || 0.5), ..parts });
    let get = || {
        let spec = PluginSpec { file: Arc::clone(&setup.file), ..spec_for_paris() };
        let caller = Caller { name: 7, without_exec_info: true, ..Caller::default() };
        let (cache, request) = (setup.cache.clone(), Request { caller, ..Request::default() });
        async move { cache.get(spec, &request).await.unwrap() }
    };
    get().await;
    setup.file.replace();
    tokio::join!(setup.ask(), async {
        sleep(secs(1)).await; // the only slot is taken
        get().await;
        sleep(secs(1)).await;
        setup.cache.forget(&paris(), None);
    })
    .0
    .unwrap();
    sleep(secs(30)).await;
    assert_eq!(setup.runs(), 2, "its refresh has not started");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_begins_for_an_old_target_ends_when_its_caller_leaves() {
    let mut setup = setup(&[Fail, Late(secs(10))]);
    let Setup { runner, clock, tasks, draining, .. } = &setup;
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let parts = CacheParts::for_tests(Arc::clone(runner), Arc::clone(&clock), tasks, draining);
    setup.cache = CredentialCache::new(CacheParts { scheduler: Scheduler::new(1, clock, || 0.5), ..parts });
    let mut watch = setup.cache.watch(spec_for_paris(), Caller::default()).unwrap();
    setup.cache.forget(&paris(), None);
    assert!(watch.next().await.is_err());
    sleep(secs(5)).await; // the failure is held no longer
    let (other, ()) = tokio::join!(setup.ask(), async {
        sleep(secs(1)).await; // the only slot is taken
        assert!(timeout(secs(1), watch.next()).await.is_err());
        drop(watch);
    });
    other.unwrap();
    sleep(secs(30)).await;
    assert_eq!(setup.runs(), 2, "the queued run has not started");
}
