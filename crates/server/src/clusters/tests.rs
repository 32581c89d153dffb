//! Watches of the fleet under paused time.

#![expect(clippy::disallowed_methods, reason = "tokio's paused clock is the tests' clock")]

use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{snapshot::MESSAGE, *};
use crate::preencoded::{Preencoded, tests::messages};
use credbroker_cache::{CacheParts, Request};
use credbroker_fleet::resolver::{CredentialRequest, Source};
use credbroker_observe::clock::{Now, SystemClock};
use credbroker_plugin::{
    Command, PluginSpec, Providers,
    access::{Grant, Peers, Policy, ProfileGlobs, Rule, Verb},
    cluster_profile::{ClusterProfile, EndpointRules},
    testing::provider as test_provider,
};
use credbroker_runner::{Attendance, RunError, RunOutput};
use credbroker_uds_server::WatchSlots;

/// A runner whose runs never end.
#[derive(Debug)]
struct NoRuns;

impl PluginRunner for NoRuns {
    async fn run(&self, _: Arc<PluginSpec>, _: Arc<Attendance>) -> Result<RunOutput, RunError> {
        std::future::pending().await
    }
}

/// Tokio's clock.
#[derive(Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Now {
        Now { wall: SystemClock.now().wall, boot: self.0.elapsed() }
    }
}

fn asked(namespace: Option<&str>) -> pb::WatchClustersRequest {
    pb::WatchClustersRequest { namespace: namespace.map(str::to_owned), include_contexts: false }
}

type Watch = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

struct Setup {
    fleet: Arc<Fleet>,
    clusters: Arc<Clusters<NoRuns>>,
    slots: WatchSlots,
}

impl Setup {
    fn new() -> Self {
        let providers = || Arc::new(Providers::new([test_provider("p", Command::Path("/bin/sh".into()))]));
        let fleet = Arc::new(Fleet::new(providers(), EndpointRules::default()));
        let cache = CredentialCache::new(CacheParts::for_tests(
            NoRuns,
            Arc::new(SystemClock),
            &TaskTracker::new(),
            &CancellationToken::new(),
        ));
        let resolver = Arc::new(Resolver::new(providers(), Some(Arc::clone(&fleet))));
        let clock = Arc::new(TokioClock(Instant::now()));
        let clusters = Arc::new(Clusters::new(Arc::clone(&fleet), resolver, cache, clock));
        let running = Arc::clone(&clusters);
        tokio::spawn(async move { running.run().await });
        Self { fleet, clusters, slots: WatchSlots::new(CancellationToken::new()) }
    }

    async fn watch(&self, namespace: Option<&str>) -> Watch {
        let slot = self.slots.acquire().unwrap();
        let mut response = self.clusters.follow(asked(namespace), Access::of_the_owner(), slot).await;
        let frames = messages(response.extensions_mut().remove::<Preencoded>().unwrap().into_body().unwrap());
        frames.map(Result::unwrap).boxed()
    }

    async fn list(&self, token: Option<String>) -> (Vec<String>, Option<String>) {
        let page = {
            let request = pb::ListClustersRequest { page_token: token, ..Default::default() };
            self.clusters.page(request, Arc::new(Rights::all())).await.unwrap()
        };
        let names = page.clusters.into_iter().map(|cluster| cluster.cluster_profile.unwrap().name);
        (names.collect(), page.next_page_token)
    }

    /// Applies a profile whose certificate authorities have this many base64 letters.
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

async fn message(watch: &mut Watch) -> pb::WatchClustersResponse {
    let frame = watch.next().await.unwrap();
    let length = u32::from_be_bytes(frame[1..5].try_into().unwrap());
    assert_eq!((frame[0], length as usize), (0, frame.len() - 5), "one message, not compressed");
    pb::WatchClustersResponse::decode(&frame[5..]).unwrap()
}

/// The changed names, the removed names, and whether the list is complete.
async fn news(watch: &mut Watch) -> (Vec<String>, Vec<String>, bool) {
    let message = message(watch).await;
    let changed = message.changed.iter().map(|state| state.cluster_profile.clone().unwrap().name);
    let removed = message.removed.into_iter().map(|gone| gone.name);
    (changed.collect(), removed.collect(), message.complete)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn additions_and_removals_of_one_moment_are_sent_together_and_at_once() {
    let setup = Setup::new();
    setup.apply("fleet", "a", 0);
    setup.apply("fleet", "b", 0);
    let mut watch = setup.watch(None).await;
    assert_eq!(news(&mut watch).await, (names(&["a", "b"]), names(&[]), true));
    let changing = async {
        sleep(Duration::from_millis(10)).await;
        let changed = Instant::now();
        setup.apply("fleet", "c", 0);
        sleep(GATHER / 2).await;
        setup.remove("fleet", "a");
        changed
    };
    let (news, changed) = tokio::join!(news(&mut watch), changing);
    assert_eq!(news, (names(&["c"]), names(&["a"]), true));
    assert!(changed.elapsed() <= GATHER + Duration::from_millis(1), "{:?}", changed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_hub_alone_is_sent_at_once() {
    let setup = Setup::new();
    let mut watch = setup.watch(None).await;
    let first = message(&mut watch).await;
    assert_eq!((first.complete, first.hub.unwrap().synced), (true, false));
    let changing = async {
        sleep(Duration::from_millis(10)).await;
        setup.fleet.set_hub(true, Some("away".into()));
        Instant::now()
    };
    let (news, changed) = tokio::join!(message(&mut watch), changing);
    let hub = news.hub.unwrap();
    assert!(hub.synced && hub.failure.unwrap().message == "away");
    assert!(changed.elapsed() <= GATHER + Duration::from_millis(1), "{:?}", changed.elapsed());
    let more = timeout(Duration::from_secs(60), watch.next()).await;
    assert!(more.is_err(), "nothing is said when nothing changed");
}

#[tokio::test(start_paused = true)]
async fn many_come_in_several_messages_of_which_the_last_is_complete_and_those_that_follow() {
    let setup = Setup::new();
    for name in ["a", "b", "c"] {
        setup.apply("fleet", name, MESSAGE);
    }
    let mut watch = setup.watch(None).await;
    assert_eq!(news(&mut watch).await, (names(&["a"]), names(&[]), false));
    setup.remove("fleet", "a");
    assert_eq!(news(&mut watch).await, (names(&["b"]), names(&[]), false));
    assert_eq!(news(&mut watch).await, (names(&["c"]), names(&[]), true));
    assert_eq!(news(&mut watch).await, (names(&[]), names(&["a"]), true), "what changed meanwhile");
    for name in ["d", "e"] {
        setup.apply("fleet", name, MESSAGE);
    }
    assert_eq!(news(&mut watch).await, (names(&["d"]), names(&[]), true), "all were sent once");
    assert_eq!(news(&mut watch).await, (names(&["e"]), names(&[]), true));
}

#[tokio::test(start_paused = true)]
async fn only_the_namespace_that_was_asked_for_is_news() {
    let setup = Setup::new();
    setup.apply("edge", "a", 0);
    setup.apply("fleet", "b", 0);
    let mut watch = setup.watch(Some("fleet")).await;
    assert_eq!(news(&mut watch).await, (names(&["b"]), names(&[]), true));
    setup.remove("edge", "a");
    setup.remove("fleet", "b");
    assert_eq!(news(&mut watch).await, (names(&[]), names(&["b"]), true));
}

#[tokio::test(start_paused = true)]
async fn watches_share_the_bytes_that_they_are_sent() {
    let setup = Setup::new();
    setup.apply("fleet", "a", 0);
    let (mut one, mut other) = (setup.watch(None).await, setup.watch(None).await);
    for change in ["b", "c"] {
        let (one, other) = (one.next().await.unwrap(), other.next().await.unwrap());
        assert_eq!(one.as_ptr(), other.as_ptr());
        setup.apply("fleet", change, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_slow_is_sent_what_it_lacks_and_nothing_twice() {
    let setup = Setup::new();
    for name in ["a", "b"] {
        setup.apply("fleet", name, 0);
    }
    let (mut slow, mut quick) = (setup.watch(None).await, setup.watch(None).await);
    news(&mut slow).await;
    news(&mut quick).await;
    for (name, length) in [("c", 0), ("b", 4), ("d", 0)] {
        setup.apply("fleet", name, length);
        assert_eq!(news(&mut quick).await, (names(&[name]), names(&[]), true));
    }
    setup.remove("fleet", "a");
    setup.remove("fleet", "d");
    assert_eq!(news(&mut quick).await, (names(&[]), names(&["a", "d"]), true));
    assert_eq!(news(&mut slow).await, (names(&["b", "c"]), names(&["a"]), true));
}

#[tokio::test(start_paused = true)]
async fn it_holds_its_slot_and_the_shared_messages_until_it_ends() {
    let setup = Setup::new();
    setup.apply("fleet", "a", 0);
    let mut watch = setup.watch(None).await;
    let frame = watch.next().await.unwrap();
    assert_eq!(setup.slots.open(), 1);
    drop(watch);
    assert_eq!(setup.slots.open(), 0);
    sleep(LOOK_EVERY * 2).await;
    assert!(frame.is_unique(), "without watches nothing encoded is kept");
    assert_eq!(
        news(&mut setup.watch(None).await).await,
        (names(&["a"]), names(&[]), true),
        "all, to the next one"
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_begins_with_how_it_is_now_and_comes_in_pages() {
    let setup = Setup::new();
    for name in ["a", "b"] {
        setup.apply("fleet", name, MESSAGE);
    }
    let (first, token) = setup.list(None).await;
    assert_eq!(first, names(&["a"]));
    assert!(token.as_ref().is_some_and(|token| token.ends_with(r#".[false,"fleet","a"]"#)), "{token:?}");
    assert_eq!(setup.list(token).await, (names(&["b"]), None));
    setup.apply("fleet", "0", 0);
    assert_eq!(setup.list(None).await.0, names(&["0", "a"]), "as it is now");
}

#[tokio::test(start_paused = true)]
async fn lists_share_a_snapshot_until_something_changes() {
    let setup = Setup::new();
    // The task that keeps the watched snapshot first drops what no one watches.
    tokio::task::yield_now().await;
    setup.apply("fleet", "a", 0);
    setup.list(None).await;
    let newest = || Arc::clone(&setup.clusters.snapshots.borrow());
    let before = newest();
    for _ in 0..1_000 {
        setup.list(None).await;
    }
    assert!(Arc::ptr_eq(&before, &newest()), "nothing has changed");
    setup.apply("fleet", "b", 0);
    let (started, lists) = (Instant::now(), (0..100).map(|_| setup.list(None)));
    for (listed, _) in futures_util::future::join_all(lists).await {
        assert_eq!(listed, names(&["a", "b"]));
    }
    assert!(started.elapsed() <= GATHER, "one for all");
    setup.fleet.set_hub(true, None);
    let page =
        setup.clusters.page(pb::ListClustersRequest::default(), Arc::new(Rights::all())).await.unwrap();
    assert!(page.hub.unwrap().synced);
    let before = newest();
    sleep(LOOK_EVERY * 2).await;
    setup.list(None).await;
    assert!(!Arc::ptr_eq(&before, &newest()), "time may have changed something");
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_what_the_cache_holds_at_the_call() {
    let setup = Setup::new();
    tokio::task::yield_now().await;
    setup.apply("fleet", "a", 0);
    let Clusters { cache, resolver, .. } = &*setup.clusters;
    let readiness = async || {
        let page = setup.clusters.page(pb::ListClustersRequest::default(), Arc::new(Rights::all())).await;
        page.unwrap().clusters[0].readiness()
    };
    assert_eq!(readiness().await, pb::cluster_state::Readiness::Idle);
    let profile = ProfileName::new("fleet", "a");
    let source = Source::ClusterProfile(profile.clone());
    let spec = resolver.resolve(CredentialRequest { source, ..CredentialRequest::default() }).unwrap();
    let request = Request::default();
    let mut get = std::pin::pin!(cache.get(spec, &request));
    assert!(futures_util::poll!(get.as_mut()).is_pending());
    assert_eq!(readiness().await, pb::cluster_state::Readiness::Fetching);
    cache.forget(&profile, None);
    assert_eq!(readiness().await, pb::cluster_state::Readiness::Idle);
}

#[tokio::test(start_paused = true)]
async fn lists_of_a_fleet_that_changes_all_the_time_make_few_snapshots() {
    let setup = Setup::new();
    setup.list(None).await;
    let started = Instant::now();
    for number in 0..100 {
        setup.apply("fleet", &format!("c{number:02}"), 0);
        assert_eq!(setup.list(None).await.0.len(), number + 1, "a change before the call is shown");
    }
    assert!(started.elapsed() >= GATHER * 99, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn messages_are_encoded_a_few_at_a_time_and_no_other_task_waits_for_that() {
    let setup = Setup::new();
    setup.apply("fleet", "a", 0);
    let encoders = Arc::clone(&setup.clusters.snapshots.borrow().encoders);
    let busy = encoders.acquire_many(u32::try_from(encoders.available_permits()).unwrap()).await.unwrap();
    let (mut one, mut other) = (setup.watch(None).await, setup.watch(None).await);
    let mut elsewhere = setup.watch(Some("fleet")).await;
    for watch in [&mut one, &mut other, &mut elsewhere] {
        assert!(timeout(LOOK_EVERY, watch.next()).await.is_err(), "no thread is free");
    }
    assert_eq!(setup.list(None).await.0, names(&["a"]));
    drop(busy);
    let (one, other) = tokio::join!(one.next(), other.next());
    assert_eq!(one.unwrap().as_ptr(), other.unwrap().as_ptr());
    assert_eq!(news(&mut elsewhere).await, (names(&["a"]), names(&[]), true));
}

/// A policy that allows to list these profiles.
fn listing(profiles: &[&str]) -> Arc<Policy> {
    let verbs = [Verb::List].into_iter().collect();
    let cluster_profiles = ProfileGlobs::new(profiles.iter().copied());
    let allow = Grant { cluster_profiles, verbs, ..Grant::default() };
    let peers = Peers { uids: vec![7], ..Peers::default() };
    Arc::new(Policy::new([Rule { name: "r".into(), peers, allow }]))
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_only_what_the_peer_may_see_and_follows_the_rules() {
    let setup = Setup::new();
    for (namespace, name) in [("fleet", "a"), ("fleet", "b"), ("other", "c")] {
        setup.apply(namespace, name, 0);
    }
    let policies = watch::Sender::new(listing(&["fleet/*"]));
    let access = Access::of_uid(7, policies.subscribe());
    let slot = setup.slots.acquire().unwrap();
    let mut response = setup.clusters.follow(asked(None), Arc::clone(&access), slot).await;
    let mut frames = messages(response.extensions_mut().remove::<Preencoded>().unwrap().into_body().unwrap());
    let mut seen = async || {
        let message = crate::preencoded::message(&frames.next().await.unwrap()?).unwrap();
        let message = pb::WatchClustersResponse::decode(message).unwrap();
        let changed = message.changed.into_iter().map(|state| state.cluster_profile.unwrap().name);
        let removed = message.removed.into_iter().map(|gone| gone.name);
        Ok::<_, Status>((changed.collect::<Vec<_>>(), removed.collect::<Vec<_>>()))
    };
    assert_eq!(seen().await.unwrap(), (names(&["a", "b"]), names(&[])));
    setup.apply("other", "d", 0);
    policies.send_replace(listing(&["fleet/b", "other/*"]));
    let (mut changed, mut removed) = (Vec::new(), Vec::new());
    while changed.len() < 2 {
        let (more, gone) = seen().await.unwrap();
        changed.extend(more);
        removed.extend(gone);
    }
    assert_eq!((changed, removed), (names(&["c", "d"]), names(&["a"])));
    let rights = access.rights();
    let page = setup.clusters.page(pb::ListClustersRequest::default(), rights).await.unwrap();
    let listed = page.clusters.into_iter().map(|cluster| cluster.cluster_profile.unwrap().name);
    assert_eq!(listed.collect::<Vec<_>>(), names(&["b", "c", "d"]));
    policies.send_replace(Arc::new(Policy::new([])));
    assert_eq!(seen().await.unwrap_err().code(), tonic::Code::PermissionDenied);
}
