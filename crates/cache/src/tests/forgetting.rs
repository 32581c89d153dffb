//! A ClusterProfile changes or is deleted: no credential for its old target is served again.

use tokio::time::sleep;

use super::{Script::*, profile_name as name, *};
use crate::{CacheError, Holding};

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
async fn credentials_of_the_current_target_and_of_other_profiles_stay() {
    let setup = setup(&[Token(mins(60))]);
    ask(&setup, "paris", "old").await.unwrap();
    let kept = ask(&setup, "paris", "new").await.unwrap();
    let others = ask(&setup, "tokyo", "old").await.unwrap();
    let by_provider = setup.ask().await.unwrap();
    // An equal target.
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
async fn the_secret_is_freed() {
    let setup = setup(&[Token(mins(60))]);
    let issued = setup.cache.get(spec_at("paris", "old"), &Request::default()).await.unwrap();
    let mut watch = setup.cache.watch(spec_at("paris", "old"), Caller::default()).unwrap();
    drop(watch.next().await.unwrap());
    let material = Arc::downgrade(&issued);
    drop(issued);
    assert!(material.upgrade().is_some());
    setup.cache.forget(&name("paris"), None);
    assert!(material.upgrade().is_none(), "an open watch keeps no copy");
    assert!(setup.cache.is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_the_callers_that_wait_for_a_run_in_flight_get_its_outcome() {
    let setup = setup(&[Token(mins(60))]);
    let (waited, asked) = tokio::join!(ask(&setup, "paris", "old"), async {
        sleep(secs(1)).await;
        setup.cache.forget(&name("paris"), None);
        ask(&setup, "paris", "old").await
    });
    assert_eq!((waited.unwrap().as_str(), asked.unwrap().as_str()), ("test-1", "test-2"));
    assert_eq!(ask(&setup, "paris", "old").await.unwrap(), "test-2", "the old run changed nothing");
    assert_eq!((setup.runs(), setup.cache.len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn the_failure_of_a_run_in_flight_goes_to_the_callers_that_wait_and_is_not_held() {
    let setup = setup(&[Fail, Token(mins(60))]);
    let (waited, ()) = tokio::join!(ask(&setup, "paris", "old"), async {
        sleep(secs(1)).await;
        setup.cache.forget(&name("paris"), None);
    });
    assert!(matches!(waited.unwrap_err().error, CacheError::Run(_)));
    assert!(setup.cache.is_empty(), "the end of the run restores nothing");
    assert_eq!(ask(&setup, "paris", "old").await.unwrap(), "test-1", "generations count credentials");
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_held_failure_is_forgotten_too() {
    let setup = setup(&[Fail, Token(mins(60))]);
    let mut watch = setup.cache.watch(spec_at("paris", "old"), Caller::default()).unwrap();
    watch.next().await.unwrap_err();
    assert!(ask(&setup, "paris", "old").await.is_err());
    assert_eq!(setup.runs(), 1, "it is held");
    setup.cache.forget(&name("paris"), None);
    let (asked, watched) = tokio::join!(ask(&setup, "paris", "old"), watch.next());
    assert!(asked.is_ok() && watched.is_ok(), "an open watch does not get it either");
    assert_eq!(setup.runs(), 3);
}

/// The server opens a new watch when the profile changes.
#[tokio::test(start_paused = true)]
async fn a_new_watch_of_a_profile_that_returns_has_the_served_credential() {
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
    assert!(second.is_valid_at(setup.clock.now()), "refreshed before its expiry");
    assert_eq!((third.generation.to_string().as_str(), setup.runs()), ("test-3", 3));
    assert_eq!(setup.cache.list(&Selector::All, None, usize::MAX)[0].watchers, 1);
}
