//! A ClusterProfile leads elsewhere or is gone: nothing that was held for the old place is handed out again.

use tokio::time::sleep;

use super::{Script::*, profile_name as name, *};
use crate::cache::{CacheError, Holding};

/// The run for `fleet/PROFILE` at that server.
fn spec_at(profile: &str, server: &str) -> PluginSpec {
    PluginSpec { target: Some(target(profile, server)), ..spec(&format!("{profile} at {server}")) }
}

async fn ask(setup: &Setup, profile: &str, server: &str) -> Result<String, Failed> {
    setup
        .cache
        .get(spec_at(profile, server), &Request::default())
        .await
        .map(|issued| issued.generation.to_string())
}

#[tokio::test(start_paused = true)]
async fn what_leads_to_the_place_of_now_and_what_is_anybody_elses_stays() {
    let setup = setup(&[Token(mins(60))]);
    ask(&setup, "paris", "old").await.unwrap();
    let kept = ask(&setup, "paris", "new").await.unwrap();
    let others = ask(&setup, "tokyo", "old").await.unwrap();
    let by_provider = setup.ask().await.unwrap();
    // Another value, that leads to the same place.
    setup.cache.forget(&name("paris"), Some(&target("paris", "new")));
    assert_eq!(setup.cache.len(), 3);
    assert_eq!(ask(&setup, "paris", "new").await.unwrap(), kept);
    assert_eq!(ask(&setup, "tokyo", "old").await.unwrap(), others);
    assert_eq!((setup.ask().await.unwrap(), setup.runs()), (by_provider, 4));
    setup.cache.forget(&name("paris"), None);
    let held = setup.cache.profile_states();
    let held: Vec<_> = held.into_iter().map(|(profile, holding, _)| (profile, holding)).collect();
    assert_eq!(held, [(name("tokyo"), Holding::Valid)]);
}

#[tokio::test(start_paused = true)]
async fn the_secret_goes_with_it() {
    let setup = setup(&[Token(mins(60))]);
    let issued = setup.cache.get(spec_at("paris", "old"), &Request::default()).await.unwrap();
    let mut watch = setup.cache.watch(spec_at("paris", "old"), Caller::default()).unwrap();
    drop(watch.next().await.unwrap());
    let material = Arc::downgrade(&issued);
    drop(issued);
    assert!(material.upgrade().is_some());
    setup.cache.forget(&name("paris"), None);
    assert!(material.upgrade().is_none(), "a watch that is still open holds no copy");
    assert!(setup.cache.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_run_in_flight_gets_its_outcome_and_nobody_else_does() {
    let setup = setup(&[Token(mins(60))]);
    let (waited, asked) = tokio::join!(ask(&setup, "paris", "old"), async {
        sleep(secs(1)).await;
        setup.cache.forget(&name("paris"), None);
        ask(&setup, "paris", "old").await
    });
    assert_eq!((waited.unwrap().as_str(), asked.unwrap().as_str()), ("test-1", "test-2"));
    assert_eq!(ask(&setup, "paris", "old").await.unwrap(), "test-2", "the old run brought it nothing");
    assert_eq!((setup.runs(), setup.cache.len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_run_in_flight_that_fails_is_told_to_those_who_wait_and_not_held_against_the_next() {
    let setup = setup(&[Fail, Token(mins(60))]);
    let (waited, ()) = tokio::join!(ask(&setup, "paris", "old"), async {
        sleep(secs(1)).await;
        setup.cache.forget(&name("paris"), None);
    });
    assert!(matches!(waited.unwrap_err().error, CacheError::Run(_)));
    assert!(setup.cache.is_empty(), "the end of the run brings nothing back");
    assert_eq!(ask(&setup, "paris", "old").await.unwrap(), "test-1", "generations count credentials");
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_held_is_forgotten_too() {
    let setup = setup(&[Fail, Token(mins(60))]);
    let mut watch = setup.cache.watch(spec_at("paris", "old"), Caller::default()).unwrap();
    watch.next().await.unwrap_err();
    assert!(ask(&setup, "paris", "old").await.is_err());
    assert_eq!(setup.runs(), 1, "it is held");
    setup.cache.forget(&name("paris"), None);
    let (asked, watched) = tokio::join!(ask(&setup, "paris", "old"), watch.next());
    assert!(asked.is_ok() && watched.is_ok(), "nor is it held against a watch that was open before");
    assert_eq!(setup.runs(), 3);
}

/// Whoever watches a profile is told of the change before, and watches anew.
#[tokio::test(start_paused = true)]
async fn a_watch_of_what_comes_back_is_of_what_everybody_else_is_served() {
    let setup = setup(&[Token(mins(60))]);
    let mut old = setup.cache.watch(spec_at("paris", "old"), Caller::default()).unwrap();
    let first = old.next().await.unwrap();
    setup.cache.forget(&name("paris"), None);
    let mut watch = setup.cache.watch(spec_at("paris", "old"), Caller::default()).unwrap();
    watch.succeeds(&old);
    drop(old);
    let second = watch.next().await.unwrap();
    assert_ne!(second.generation, first.generation);
    assert_eq!(ask(&setup, "paris", "old").await.unwrap(), second.generation.to_string());
    let third = watch.next().await.unwrap();
    assert!(second.is_valid_at(setup.clock.now()), "renewed ahead of its end");
    assert_eq!((third.generation.to_string().as_str(), setup.runs()), ("test-3", 3));
    assert_eq!(setup.cache.list(&Selector::All, None, usize::MAX)[0].watchers, 1);
}
