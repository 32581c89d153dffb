//! A newer configuration retires a provider: nothing of its old definition is served, run or kept.

use tokio::time::sleep;

use super::{Script::*, *};
use crate::{CacheError, ReportOutcome};
use credbroker_plugin::{ProviderUpdate, Retirement};

/// The key `a` of one definition of the provider `name`. Requests share its state, as they do in a broker.
struct Defined(Provider);

impl Defined {
    fn new(name: &str) -> Self {
        Self(Provider { name: name.into(), ..(*spec("a").provider).clone() })
    }

    fn spec(&self, key: &str) -> PluginSpec {
        PluginSpec { provider: Arc::new(self.0.clone()), ..spec(key) }
    }

    /// As a reload does, when a newer configuration is active.
    fn retire(&self, setup: &Setup) -> usize {
        let old = Providers::new([self.0.clone()]);
        ProviderUpdate::of(Providers::new([]), &old).commit();
        setup.cache.forget_retired()
    }
}

async fn ask(setup: &Setup, spec: PluginSpec) -> Result<String, Failed> {
    setup.cache.get(spec, &Request::default()).await.map(|issued| issued.generation.to_string())
}

fn is_retired(failed: &Failed) -> bool {
    matches!(failed.error, CacheError::Retired(Retirement::Removed))
}

#[tokio::test(start_paused = true)]
async fn a_new_definition_with_the_same_key_starts_cold_and_others_stay() {
    let setup = setup(&[Token(mins(60))]);
    let (old, new, other) = (Defined::new("p"), Defined::new("p"), Defined::new("q"));
    assert_eq!(ask(&setup, old.spec("a")).await.unwrap(), "test-1");
    assert_eq!(ask(&setup, other.spec("b")).await.unwrap(), "test-2");
    assert_eq!(old.retire(&setup), 1);
    assert!(setup.cache.lookup(&spec("a").key, &Caller::default(), Duration::ZERO).is_none());
    assert_eq!(ask(&setup, new.spec("a")).await.unwrap(), "test-3");
    assert_eq!(ask(&setup, other.spec("b")).await.unwrap(), "test-2");
    assert_eq!((setup.runs(), setup.cache.len()), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_resolved_before_is_refused_and_leaves_nothing() {
    let setup = setup(&[Token(mins(60))]);
    let old = Defined::new("p");
    let late = old.spec("a");
    assert_eq!(old.retire(&setup), 0);
    assert!(is_retired(&ask(&setup, late).await.unwrap_err()));
    assert!(is_retired(&setup.cache.watch(old.spec("a"), Caller::default()).unwrap_err()));
    assert!(is_retired(&setup.cache.fetch_ahead(old.spec("a")).await.unwrap_err()));
    assert_eq!((setup.runs(), setup.cache.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn callers_that_wait_and_watches_get_the_reason_at_once_and_the_run_ends() {
    let setup = setup(&[Late(secs(600))]);
    let (old, started) = (Defined::new("p"), Instant::now());
    let mut watch = setup.cache.watch(old.spec("a"), Caller::default()).unwrap();
    let (asked, watched, ()) = tokio::join!(ask(&setup, old.spec("a")), watch.next(), async {
        sleep(secs(1)).await;
        old.retire(&setup);
    });
    assert!(is_retired(&asked.unwrap_err()) && is_retired(&watched.unwrap_err()));
    assert_eq!(started.elapsed(), secs(1));
    setup.draining.cancel();
    setup.tasks.close();
    setup.tasks.wait().await;
    assert_eq!((started.elapsed(), setup.runs()), (secs(1), 1), "the run has ended, and no other began");
}

#[tokio::test(start_paused = true)]
async fn a_run_for_a_target_that_its_profile_no_longer_has_brings_no_retired_credential() {
    let setup = setup(&[Late(secs(10))]);
    let old = Defined::new("p");
    let (asked, ()) = tokio::join!(
        ask(&setup, PluginSpec { target: Some(target("paris", "paris")), ..old.spec("a") }),
        async {
            sleep(secs(1)).await;
            setup.cache.forget(&profile_name("paris"), None);
            old.retire(&setup);
        }
    );
    assert!(is_retired(&asked.unwrap_err()));
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_that_an_eviction_left_to_its_callers_does_not_start() {
    let mut setup = setup(&[Late(secs(10))]);
    let Setup { runner, clock, tasks, draining, .. } = &setup;
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let parts = CacheParts::for_tests(Arc::clone(runner), Arc::clone(&clock), tasks, draining);
    setup.cache = CredentialCache::new(CacheParts { scheduler: Scheduler::new(1, clock, || 0.5), ..parts });
    let (old, other) = (Defined::new("p"), Defined::new("q"));
    let started = Instant::now();
    let queued = async {
        let answer = ask(&setup, old.spec("a")).await;
        assert_eq!(started.elapsed(), secs(1), "immediately");
        answer
    };
    let (first, queued, ()) = tokio::join!(ask(&setup, other.spec("b")), queued, async {
        sleep(secs(1)).await;
        setup.cache.evict(&of("p"));
        old.retire(&setup);
    });
    first.unwrap();
    assert!(is_retired(&queued.unwrap_err()));
    assert_eq!(setup.runs(), 1, "only the other one");
}

#[tokio::test(start_paused = true)]
async fn an_open_watch_that_has_its_credential_ends_and_holds_no_secret() {
    let setup = setup(&[Token(mins(60))]);
    let old = Defined::new("p");
    let mut watch = setup.cache.watch(old.spec("a"), Caller::default()).unwrap();
    let material = Arc::downgrade(&watch.next().await.unwrap());
    let (ended, ()) = tokio::join!(watch.next(), async {
        sleep(secs(1)).await;
        old.retire(&setup);
    });
    assert!(is_retired(&ended.unwrap_err()));
    assert!(material.upgrade().is_none());
    assert!(is_retired(&watch.next().await.unwrap_err()), "it never works again");
    sleep(mins(60)).await;
    assert_eq!((setup.runs(), setup.cache.len()), (1, 0), "the maintenance does not refresh it");
}

#[tokio::test(start_paused = true)]
async fn a_report_about_the_old_definition_names_a_generation_that_the_new_one_does_not_know() {
    let setup = setup(&[Token(mins(60))]);
    let (old, new) = (Defined::new("p"), Defined::new("p"));
    let generation = ask(&setup, old.spec("a")).await.unwrap();
    old.retire(&setup);
    let reported = setup.cache.report(new.spec("a"), &generation, &Request::default()).await.unwrap();
    assert_eq!(reported.outcome, ReportOutcome::UnknownGeneration);
    assert_eq!((reported.issued.generation.to_string().as_str(), setup.runs()), ("test-2", 2));
}

#[tokio::test(start_paused = true)]
async fn a_smaller_limit_applies_to_the_next_key() {
    let setup = setup(&[Token(mins(60))]);
    for key in ["a", "b"] {
        ask(&setup, spec(key)).await.unwrap();
    }
    setup.cache.set_limits(EntryLimits::for_tests(1));
    let full = ask(&setup, spec("c")).await.unwrap_err();
    assert!(matches!(full.error, CacheError::Full(Full::Entries(1))), "{full}");
    assert_eq!(setup.cache.len(), 2, "keys in use stay");
    setup.cache.set_limits(EntryLimits::for_tests(3));
    ask(&setup, spec("c")).await.unwrap();
}
