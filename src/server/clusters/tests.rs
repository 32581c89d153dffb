//! A watch of the fleet under paused time.

#![expect(clippy::disallowed_methods, reason = "tokio's paused clock is the tests' clock")]

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::task::TaskTracker;

use super::*;
use crate::{
    cache::CacheParts,
    clock::SystemClock,
    exec::{RunError, RunOutput},
    plugin::{ClusterProfile, Command, PluginSpec, Providers, Rules, test_provider},
};

/// Nobody asks for anything.
#[derive(Debug)]
struct NoRuns;

impl PluginRunner for NoRuns {
    async fn run(&self, _: Arc<PluginSpec>) -> Result<RunOutput, RunError> {
        std::future::pending().await
    }
}

struct Setup {
    fleet: Arc<Fleet>,
    draining: CancellationToken,
    slots: Arc<Semaphore>,
}

impl Setup {
    fn new() -> Self {
        let providers = Providers::new([test_provider("p", Command::Path("/bin/sh".into()))]);
        let fleet = Arc::new(Fleet::new(Arc::new(providers), Rules::default()));
        Self { fleet, draining: CancellationToken::new(), slots: Arc::new(Semaphore::new(1)) }
    }

    fn watch(&self, namespace: &str) -> Messages {
        let cache = CredentialCache::new(CacheParts::for_tests(
            NoRuns,
            Arc::new(SystemClock),
            &TaskTracker::new(),
            &self.draining,
        ));
        let providers = Arc::new(Providers::new([test_provider("p", Command::Path("/bin/sh".into()))]));
        let resolver = Arc::new(Resolver::new(providers, Some(Arc::clone(&self.fleet))));
        let slot = Arc::clone(&self.slots).try_acquire_owned().unwrap();
        let (fleet, draining) = (Arc::clone(&self.fleet), self.draining.clone());
        follow(fleet, resolver, cache, namespace.to_owned(), draining, slot)
    }

    /// At a server whose authorities are so long.
    fn apply(&self, namespace: &str, name: &str, letters: usize) {
        let cluster =
            json!({"server": "https://a", "certificate-authority-data": "QUJD".repeat(letters / 4)});
        let status = json!({"accessProviders": [{"name": "p", "cluster": cluster}]});
        self.fleet.apply(ClusterProfile::read(ProfileName::new(namespace, name), &Value::Null, &status));
    }

    fn remove(&self, namespace: &str, name: &str) {
        assert!(self.fleet.remove(&ProfileName::new(namespace, name)));
    }
}

/// Changed, removed, and whether all is known.
async fn told(messages: &mut Messages) -> (Vec<String>, Vec<String>, bool) {
    let message = messages.next().await.unwrap().unwrap();
    let changed = message.changed.iter().map(|state| state.cluster_profile.clone().unwrap().name);
    let removed = message.removed.into_iter().map(|gone| gone.name);
    (changed.collect(), removed.collect(), message.complete)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_comes_and_what_goes_in_one_moment_is_told_together_and_at_once() {
    let setup = Setup::new();
    setup.apply("fleet", "a", 0);
    setup.apply("fleet", "b", 0);
    let mut watch = setup.watch("");
    assert_eq!(told(&mut watch).await, (names(&["a", "b"]), names(&[]), true));
    let changing = async {
        sleep(Duration::from_millis(10)).await;
        let changed = Instant::now();
        setup.apply("fleet", "c", 0);
        sleep(GATHER / 2).await;
        setup.remove("fleet", "a");
        changed
    };
    let (news, changed) = tokio::join!(told(&mut watch), changing);
    assert_eq!(news, (names(&["c"]), names(&["a"]), true));
    assert!(changed.elapsed() <= GATHER + Duration::from_millis(1), "{:?}", changed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_hub_alone_is_told_at_once() {
    let setup = Setup::new();
    let mut watch = setup.watch("");
    let first = watch.next().await.unwrap().unwrap();
    assert_eq!((first.complete, first.hub.unwrap().synced), (true, false));
    let changing = async {
        sleep(Duration::from_millis(10)).await;
        setup.fleet.set_hub(HubState { synced: true, problem: Some("away".into()) });
        Instant::now()
    };
    let (news, changed) = tokio::join!(watch.next(), changing);
    let hub = news.unwrap().unwrap().hub.unwrap();
    assert!(hub.synced && hub.problem == "away");
    assert!(changed.elapsed() <= GATHER + Duration::from_millis(1), "{:?}", changed.elapsed());
    let more = tokio::time::timeout(Duration::from_secs(3600), watch.next()).await;
    assert!(more.is_err(), "nothing is said when nothing changed");
}

#[tokio::test(start_paused = true)]
async fn many_come_in_several_messages_of_which_the_last_is_complete_and_those_that_follow() {
    let setup = Setup::new();
    for name in ["a", "b", "c"] {
        setup.apply("fleet", name, MESSAGE);
    }
    let mut watch = setup.watch("");
    assert_eq!(told(&mut watch).await, (names(&["a"]), names(&[]), false));
    setup.remove("fleet", "a");
    assert_eq!(told(&mut watch).await, (names(&["b"]), names(&[]), false));
    assert_eq!(told(&mut watch).await, (names(&["c"]), names(&["a"]), true));
    for name in ["d", "e"] {
        setup.apply("fleet", name, MESSAGE);
    }
    assert_eq!(told(&mut watch).await, (names(&["d"]), names(&[]), true), "all were told once");
    assert_eq!(told(&mut watch).await, (names(&["e"]), names(&[]), true));
}

#[tokio::test(start_paused = true)]
async fn only_the_namespace_that_was_asked_for_is_told() {
    let setup = Setup::new();
    setup.apply("edge", "a", 0);
    setup.apply("fleet", "b", 0);
    let mut watch = setup.watch("fleet");
    assert_eq!(told(&mut watch).await, (names(&["b"]), names(&[]), true));
    setup.remove("edge", "a");
    setup.remove("fleet", "b");
    assert_eq!(told(&mut watch).await, (names(&[]), names(&["b"]), true));
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_broker_and_holds_its_slot_until_then() {
    let setup = Setup::new();
    let mut watch = setup.watch("");
    told(&mut watch).await;
    assert_eq!(setup.slots.available_permits(), 0);
    setup.draining.cancel();
    assert_eq!(watch.next().await.unwrap().unwrap_err().code(), tonic::Code::Unavailable);
    assert!(watch.next().await.is_none());
    assert_eq!(setup.slots.available_permits(), 1);
}
