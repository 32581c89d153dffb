//! The clusters of a fleet, through the broker's life.

use std::time::Duration;

use credbroker_client::{ClusterEvent, ClusterProfileRef, Clusters};
use tokio::time::timeout;

use crate::broker::FakeBroker;

const GENEROUS: Duration = Duration::from_secs(30);

async fn next(clusters: &mut Clusters) -> (&'static str, String) {
    match timeout(GENEROUS, clusters.event()).await.unwrap_or_else(|_| panic!("no event: {clusters:?}")) {
        ClusterEvent::Added(cluster) => ("added", cluster.display_name.clone()),
        ClusterEvent::Changed(cluster) => ("changed", cluster.display_name.clone()),
        ClusterEvent::Removed(cluster) => ("removed", cluster.display_name.clone()),
        other => panic!("{other:?}"),
    }
}

/// Polls a condition that nothing signals.
async fn until(mut reached: impl FnMut() -> bool) {
    let reached = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(GENEROUS, reached).await.unwrap();
}

fn seen(what: &'static str, cluster: &str) -> (&'static str, String) {
    (what, cluster.to_owned())
}

#[tokio::test]
async fn the_fleet_is_followed_through_additions_changes_removals_and_a_restart_of_the_broker() {
    let mut broker = FakeBroker::start();
    broker.hub_is_synced(true);
    broker.display("paris", Some("Paris"));
    let mut clusters = broker.to().clusters();
    clusters.ready().await.unwrap();
    assert_eq!(next(&mut clusters).await, seen("added", "Paris"));
    broker.display("tokyo", Some("Tokyo"));
    assert_eq!(next(&mut clusters).await, seen("added", "Tokyo"));
    broker.display("paris", Some("Paris, France"));
    assert_eq!(next(&mut clusters).await, seen("changed", "Paris, France"));
    broker.display("lima", Some("Lima"));
    broker.display("lima", None);
    broker.display("tokyo", None);
    while next(&mut clusters).await != seen("removed", "Tokyo") {}

    broker.display("tokyo", Some("Tokyo"));
    assert_eq!(next(&mut clusters).await, seen("added", "Tokyo"));
    broker.kill();
    until(|| clusters.failure().is_some()).await;
    // The next broker knows nothing yet, and then that one is gone and one is another.
    broker.hub_is_synced(false);
    broker.display("paris", None);
    broker.display("tokyo", None);
    broker.restart();
    let mut other = clusters.clone();
    tokio::select! {
        event = clusters.event() => panic!("{event:?} of a broker that has not read its hub"),
        () = until(|| !other.hub().synced) => {}
    }
    assert_eq!(other.current().len(), 2, "what is known stays in use");
    broker.display("tokyo", Some("Tokyo, Japan"));
    assert_eq!(next(&mut clusters).await, seen("changed", "Tokyo, Japan"));
    broker.hub_is_synced(true);
    assert_eq!(next(&mut clusters).await, seen("removed", "Paris, France"));
    assert_eq!(next(&mut other).await, seen("removed", "Paris, France"));
    assert!(
        clusters.get(&ClusterProfileRef::new("fleet", "tokyo")).is_some() && clusters.failure().is_none()
    );
}

#[tokio::test]
async fn one_call_returns_every_page_of_the_fleet() {
    let broker = FakeBroker::start();
    let client = broker.client().await;
    assert!(!client.clusters(None).await.unwrap().hub.unwrap().synced);
    broker.hub_is_synced(true);
    for name in ["lima", "paris", "tokyo"] {
        broker.display(name, Some(name));
    }
    let fleet = client.clusters(Some("fleet")).await.unwrap();
    let names: Vec<_> = fleet.clusters.iter().map(|cluster| cluster.display_name.as_str()).collect();
    assert_eq!((names, fleet.hub.unwrap().synced), (vec!["lima", "paris", "tokyo"], true));
}
