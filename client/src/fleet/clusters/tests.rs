use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::StreamExt as _;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::*;
use crate::{failure::Failure, socket::Socket};

type Item = Result<ClusterChanges, Error>;

/// A broker as the handle sees it. The test opens its watches.
struct Fake {
    clusters: Clusters,
    watches: Arc<Mutex<VecDeque<mpsc::UnboundedReceiver<Item>>>>,
    attempts: Arc<AtomicUsize>,
}

impl Fake {
    fn new() -> Self {
        let watches: Arc<Mutex<VecDeque<mpsc::UnboundedReceiver<Item>>>> = Arc::default();
        let attempts = Arc::new(AtomicUsize::new(0));
        let (opened, counted) = (Arc::clone(&watches), Arc::clone(&attempts));
        let watch = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let next = opened.lock().unwrap().pop_front();
            let lost = || Error::ended(&Socket::at("/s"));
            async move { next.map(UnboundedReceiverStream::new).ok_or_else(lost) }
        };
        Self { clusters: Clusters::start(Some("fleet".into()), watch), watches, attempts }
    }

    /// The next watch receives what the test sends.
    fn broker(&self) -> mpsc::UnboundedSender<Item> {
        let (send, receive) = mpsc::unbounded_channel();
        self.watches.lock().unwrap().push_back(receive);
        send
    }

    async fn next(&mut self) -> (&'static str, String) {
        let event = timeout(HOUR, self.clusters.event()).await.expect("an event");
        match event {
            ClusterEvent::Added(cluster) => ("added", cluster.display_name.clone()),
            ClusterEvent::Changed(cluster) => ("changed", cluster.display_name.clone()),
            ClusterEvent::Removed(cluster) => ("removed", cluster.display_name.clone()),
        }
    }

    async fn is_quiet(&mut self) -> bool {
        timeout(HOUR, self.clusters.event()).await.is_err()
    }
}

const HOUR: Duration = Duration::from_secs(3600);

fn profile(name: &str) -> ClusterProfileRef {
    ClusterProfileRef::new("fleet", name)
}

/// `"a=1"` is the cluster `a` whose display name is `a=1`.
fn message(clusters: &[&str], removed: &[&str], complete: bool, synced: bool) -> ClusterChanges {
    let state = |text: &&str| {
        let mut state = ClusterState::named("fleet", text.split('=').next().unwrap_or_default());
        (*text).clone_into(&mut state.display_name);
        state
    };
    ClusterChanges {
        changed: clusters.iter().map(state).collect(),
        removed: removed.iter().map(|name| profile(name)).collect(),
        complete,
        hub: Some(HubState { synced, ..HubState::default() }),
        contexts: Vec::new(),
        removed_contexts: Vec::new(),
    }
}

fn seen(what: &'static str, cluster: &str) -> (&'static str, String) {
    (what, cluster.to_owned())
}

#[tokio::test(start_paused = true)]
async fn each_handle_gets_every_event() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(message(&["a=1", "b=1"], &[], false, true))).unwrap();
    broker.send(Ok(message(&["c=1"], &[], true, true))).unwrap();
    fake.clusters.ready().await.unwrap();
    assert_eq!(fake.clusters.current().len(), 3);
    for name in ["a=1", "b=1", "c=1"] {
        assert_eq!(fake.next().await, seen("added", name));
    }
    broker.send(Ok(message(&["b=2"], &["a"], false, true))).unwrap();
    assert_eq!(fake.next().await, seen("removed", "a=1"));
    assert_eq!(fake.next().await, seen("changed", "b=2"));
    broker.send(Ok(message(&["b=2"], &["unknown"], false, true))).unwrap();
    assert!(fake.is_quiet().await, "nothing changed");
    assert_eq!(fake.clusters.get(&profile("b")).unwrap().display_name, "b=2");

    let mut clone = Fake { clusters: fake.clusters.clone(), ..Fake::new() };
    broker.send(Ok(message(&[], &["b"], false, true))).unwrap();
    assert_eq!(fake.next().await, seen("removed", "b=2"));
    assert_eq!(clone.next().await, seen("removed", "b=2"));
}

#[tokio::test(start_paused = true)]
async fn its_events_are_a_stream_that_begins_with_the_clusters_that_exist() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(message(&["a=1"], &[], true, true))).unwrap();
    assert_eq!(fake.next().await, seen("added", "a=1"));
    let mut events = fake.clusters.events();
    let Some(ClusterEvent::Added(added)) = events.next().await else { panic!("the cluster is new to it") };
    assert_eq!(added.profile, profile("a"));
    broker.send(Ok(message(&[], &["a"], true, true))).unwrap();
    assert!(matches!(events.next().await, Some(ClusterEvent::Removed(_))));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_a_restarted_broker_does_not_list_is_removed_only_after_it_has_read_its_hub() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(message(&["a=1", "b=1", "c=1"], &[], true, true))).unwrap();
    for _ in 0..3 {
        fake.next().await;
    }
    drop(broker);
    assert!(fake.is_quiet().await, "what is known stays");
    assert_eq!(fake.clusters.current().len(), 3);
    assert!(matches!(fake.clusters.failure(), Some(Error::Unreachable { .. })));

    let broker = fake.broker();
    broker.send(Ok(message(&[], &[], true, false))).unwrap();
    assert!(fake.is_quiet().await, "it has not read its hub");
    assert!(!fake.clusters.hub().synced && fake.clusters.failure().is_none());
    broker.send(Ok(message(&["a=1", "b=2"], &[], false, false))).unwrap();
    assert_eq!(fake.next().await, seen("changed", "b=2"));
    broker.send(Ok(message(&["d=1"], &[], false, true))).unwrap();
    assert_eq!(fake.next().await, seen("removed", "c=1"));
    assert_eq!(fake.next().await, seen("added", "d=1"));
    assert!(fake.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_before_its_list_is_complete_removes_nothing() {
    let mut fake = Fake::new();
    fake.broker().send(Ok(message(&["a=1", "b=1"], &[], true, true))).unwrap();
    for _ in 0..2 {
        fake.next().await;
    }
    fake.broker().send(Ok(message(&["a=1"], &[], false, true))).unwrap();
    assert!(fake.is_quiet().await);
    let broker = fake.broker();
    broker.send(Ok(message(&["b=1"], &[], true, true))).unwrap();
    assert_eq!(fake.next().await, seen("removed", "a=1"), "the list of an earlier watch does not count");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_fleet_outlasts_a_start_but_not_an_absence_or_a_refusal() {
    let fake = Fake::new();
    assert!(matches!(fake.clusters.ready().await, Err(Error::Unreachable { .. })));
    let broker = fake.broker();
    broker.send(Ok(message(&["a=1"], &[], false, true))).unwrap();
    assert!(timeout(HOUR, fake.clusters.ready()).await.is_err(), "not all of it was sent");
    let denied = || Error::from(Failure::new(credbroker_proto::Code::Unimplemented, "no"));
    broker.send(Err(denied())).unwrap();
    for _ in 0..1000 {
        fake.broker().send(Err(denied())).unwrap();
    }
    assert!(matches!(fake.clusters.ready().await, Err(Error::Failed(_))));
    let before = fake.attempts.load(Ordering::SeqCst);
    sleep(HOUR).await;
    let attempts = fake.attempts.load(Ordering::SeqCst) - before;
    assert!((100..=260).contains(&attempts), "{attempts} attempts in an hour");
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_ends_the_task() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(message(&["a=1"], &[], true, true))).unwrap();
    fake.next().await;
    let clone = fake.clusters.clone();
    drop(fake);
    assert!(timeout(HOUR, broker.closed()).await.is_err(), "a clone still reads it");
    drop(clone);
    broker.closed().await;
}

#[tokio::test(start_paused = true)]
async fn contexts_stay_while_the_broker_is_away_and_leave_with_its_next_complete_list() {
    let mut fake = Fake::new();
    let with = |contexts: &[&str], removed: &[&str], complete| {
        let state = |digest: &&str| {
            let context = credbroker_proto::v1::ContextRef { digest: (*digest).into(), name: "prod".into() };
            let message = credbroker_proto::v1::ClusterState { context: Some(context), ..Default::default() };
            crate::cluster_state::ContextState::from_message(message).unwrap()
        };
        ClusterChanges {
            contexts: contexts.iter().map(state).collect(),
            removed_contexts: removed.iter().map(|digest| (*digest).to_owned()).collect(),
            hub: None,
            ..message(&[], &[], complete, false)
        }
    };
    let known = |fake: &Fake| fake.clusters.contexts().keys().cloned().collect::<Vec<_>>();
    assert!(fake.clusters.may_be_incomplete());
    let broker = fake.broker();
    broker.send(Ok(with(&["a", "b"], &[], false))).unwrap();
    fake.clusters.changed().await;
    assert!(fake.clusters.may_be_incomplete(), "not all of it was sent");
    broker.send(Ok(with(&["c"], &["a"], true))).unwrap();
    fake.clusters.changed().await;
    assert_eq!(known(&fake), ["b", "c"]);
    assert!(!fake.clusters.may_be_incomplete(), "there is not a hub to read");
    drop(broker);
    fake.clusters.changed().await;
    assert_eq!(known(&fake), ["b", "c"]);
    let broker = fake.broker();
    broker.send(Ok(with(&["c"], &[], false))).unwrap();
    fake.clusters.changed().await;
    assert_eq!(known(&fake), ["b", "c"]);
    broker.send(Ok(with(&["d"], &[], true))).unwrap();
    fake.clusters.changed().await;
    assert_eq!(known(&fake), ["c", "d"]);
}
