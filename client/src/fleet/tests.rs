use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::*;
use crate::Socket;

type Item = Result<WatchClustersResponse, Error>;

/// A broker as the handle sees it: a watch opens when the test gives one.
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
        Self { clusters: Clusters::start("fleet".into(), watch), watches, attempts }
    }

    /// The next watch finds a broker that sends what the test sends.
    fn broker(&self) -> mpsc::UnboundedSender<Item> {
        let (send, receive) = mpsc::unbounded_channel();
        self.watches.lock().unwrap().push_back(receive);
        send
    }

    async fn next(&mut self) -> (&'static str, String) {
        let event = timeout(HOUR, self.clusters.event()).await.expect("an event");
        match event {
            ClusterEvent::Appeared(cluster) => ("new", cluster.display_name.clone()),
            ClusterEvent::Changed(cluster) => ("changed", cluster.display_name.clone()),
            ClusterEvent::Gone(cluster) => ("gone", cluster.display_name.clone()),
        }
    }

    async fn is_quiet(&mut self) -> bool {
        timeout(HOUR, self.clusters.event()).await.is_err()
    }
}

const HOUR: Duration = Duration::from_secs(3600);

fn profile(name: &str) -> ClusterProfileRef {
    ClusterProfileRef { namespace: "fleet".into(), name: name.into() }
}

/// `name` and what it says: `"a=1"` is the cluster `a` that is displayed as `a=1`.
fn message(clusters: &[&str], removed: &[&str], complete: bool, synced: bool) -> WatchClustersResponse {
    let state = |text: &&str| ClusterState {
        cluster_profile: Some(profile(text.split('=').next().unwrap_or_default())),
        display_name: (*text).to_owned(),
        ..ClusterState::default()
    };
    WatchClustersResponse {
        changed: clusters.iter().map(state).collect(),
        removed: removed.iter().map(|name| profile(name)).collect(),
        complete,
        hub: Some(HubState { synced, ..HubState::default() }),
    }
}

fn told(what: &'static str, cluster: &str) -> (&'static str, String) {
    (what, cluster.to_owned())
}

#[tokio::test(start_paused = true)]
async fn each_handle_is_told_what_appears_changes_and_goes() {
    let mut fake = Fake::new();
    let broker = fake.broker();
    broker.send(Ok(message(&["a=1", "b=1"], &[], false, true))).unwrap();
    broker.send(Ok(message(&["c=1"], &[], true, true))).unwrap();
    fake.clusters.ready().await.unwrap();
    assert_eq!(fake.clusters.current().len(), 3);
    for name in ["a=1", "b=1", "c=1"] {
        assert_eq!(fake.next().await, told("new", name));
    }
    broker.send(Ok(message(&["b=2"], &["a"], false, true))).unwrap();
    assert_eq!(fake.next().await, told("gone", "a=1"));
    assert_eq!(fake.next().await, told("changed", "b=2"));
    broker.send(Ok(message(&["b=2"], &["unknown"], false, true))).unwrap();
    assert!(fake.is_quiet().await, "nothing changed");
    assert_eq!(fake.clusters.get("fleet", "b").unwrap().display_name, "b=2");

    let mut clone = Fake { clusters: fake.clusters.clone(), ..Fake::new() };
    broker.send(Ok(message(&[], &["b"], false, true))).unwrap();
    assert_eq!(fake.next().await, told("gone", "b=2"));
    assert_eq!(clone.next().await, told("gone", "b=2"));
}

#[tokio::test(start_paused = true)]
async fn what_a_returning_broker_does_not_name_is_gone_once_it_has_read_its_hub_and_not_before() {
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
    assert_eq!(fake.next().await, told("changed", "b=2"));
    broker.send(Ok(message(&["d=1"], &[], false, true))).unwrap();
    assert_eq!(fake.next().await, told("gone", "c=1"));
    assert_eq!(fake.next().await, told("new", "d=1"));
    assert!(fake.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_before_it_named_all_takes_nothing_away() {
    let mut fake = Fake::new();
    fake.broker().send(Ok(message(&["a=1", "b=1"], &[], true, true))).unwrap();
    for _ in 0..2 {
        fake.next().await;
    }
    fake.broker().send(Ok(message(&["a=1"], &[], false, true))).unwrap();
    assert!(fake.is_quiet().await);
    let broker = fake.broker();
    broker.send(Ok(message(&["b=1"], &[], true, true))).unwrap();
    assert_eq!(fake.next().await, told("gone", "a=1"), "what another watch named does not count");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_fleet_outlasts_a_start_but_not_an_absence_nor_a_no() {
    let fake = Fake::new();
    assert!(matches!(fake.clusters.ready().await, Err(Error::Unreachable { .. })));
    let broker = fake.broker();
    broker.send(Ok(message(&["a=1"], &[], false, true))).unwrap();
    assert!(timeout(HOUR, fake.clusters.ready()).await.is_err(), "not all of it was sent");
    let denied = || Error::Failed {
        code: credbroker_proto::Code::Unimplemented,
        reason: None,
        limit: None,
        message: "no".into(),
        retry_after: None,
    };
    broker.send(Err(denied())).unwrap();
    for _ in 0..1000 {
        fake.broker().send(Err(denied())).unwrap();
    }
    assert!(matches!(fake.clusters.ready().await, Err(Error::Failed { .. })));
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
