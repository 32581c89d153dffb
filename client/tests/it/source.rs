use std::{ops::Range, time::Duration};

use credbroker_client::{CredentialRef, CredentialSource};
use tokio::{runtime::Handle, task::yield_now, time::timeout};

use crate::broker::{FakeBroker, token};

const GENEROUS: Duration = Duration::from_secs(30);

fn generation(source: &CredentialSource) -> Option<String> {
    source.current().map(|credential| credential.generation().to_owned())
}

async fn until(source: &mut CredentialSource, wanted: &str) {
    let reached = async {
        while generation(source).as_deref() != Some(wanted) {
            source.changed().await;
        }
    };
    timeout(GENEROUS, reached).await.unwrap_or_else(|_| panic!("{wanted} never came: {source:?}"));
}

#[tokio::test]
async fn a_source_follows_rotations_rejections_and_a_restart_of_the_broker() {
    let mut broker = FakeBroker::start();
    broker.issue("gke", token("1"));
    let mut source = broker.source("gke").await;
    assert_eq!(generation(&source).as_deref(), Some("1"));

    broker.issue("gke", token("2"));
    until(&mut source, "2").await;

    broker.issue_on_report("2", token("3"));
    let replacement = source.replace("2").await.unwrap();
    assert_eq!((replacement.generation(), broker.reports()), ("3", vec!["2".to_owned()]));

    broker.kill();
    assert_eq!(generation(&source).as_deref(), Some("3"), "the last valid one is kept");
    broker.issue("gke", token("4"));
    broker.restart();
    until(&mut source, "4").await;
}

#[tokio::test]
async fn a_thousand_sources_share_a_connection_and_are_current_again_after_a_crash() {
    let mut broker = FakeBroker::start();
    broker.issue("gke", token("1"));
    let followed = broker.to();
    let reference = |number: usize| CredentialRef::provider("gke").env("NUMBER", number.to_string());
    let mut sources: Vec<_> = (0..1000).map(|number| followed.source(reference(number))).collect();
    for source in &mut sources {
        until(source, "1").await;
    }
    assert_eq!(broker.connections(), 1);

    broker.kill();
    broker.issue("gke", token("2"));
    broker.restart();
    for source in &mut sources {
        until(source, "2").await;
    }
    assert!(broker.connections() <= 30, "{} connections", broker.connections());
}

#[tokio::test]
async fn sources_of_equal_references_are_one_watch_that_ends_with_the_last_of_them() {
    let broker = FakeBroker::start();
    broker.issue("gke", token("1"));
    let followed = broker.to();
    let sources: Vec<_> = (0..1000).map(|_| followed.source(CredentialRef::provider("gke"))).collect();
    for source in &sources {
        source.ready().await.unwrap();
    }
    assert_eq!((broker.connections(), broker.watching("gke")), (1, 1));
    let last = followed.source(CredentialRef::provider("gke"));
    assert_eq!(generation(&last).as_deref(), Some("1"), "it is known already");
    drop(sources);
    assert_eq!(broker.watching("gke"), 1);
    drop(last);
    let ended = async {
        while broker.watching("gke") > 0 {
            yield_now().await;
        }
    };
    timeout(GENEROUS, ended).await.expect("the watch ends");
}

#[tokio::test]
async fn a_thousand_clusters_that_come_and_go_leave_nothing() {
    let broker = FakeBroker::start();
    let followed = broker.to();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    // Some at a time, as a fleet changes.
    let come_and_go = async |numbers: Range<usize>| {
        let names = numbers.map(|number| format!("c{number}"));
        let sources: Vec<_> = names
            .map(|name| {
                broker.issue(&format!("fleet/{name}"), token("1"));
                followed.source(CredentialRef::cluster_profile("fleet", name))
            })
            .collect();
        for source in &sources {
            source.ready().await.unwrap();
        }
        drop(sources);
        broker.until_watched(0).await;
    };
    come_and_go(0..1).await;
    let before = tasks();
    for hundred in 0..10 {
        come_and_go(hundred * 100..(hundred + 1) * 100).await;
    }
    let ended = async {
        while tasks() > before {
            yield_now().await;
        }
    };
    timeout(GENEROUS, ended).await.unwrap_or_else(|_| panic!("{} tasks, {before} before", tasks()));
}
