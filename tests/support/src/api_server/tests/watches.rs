use super::hub::*;
use super::*;
use serde_json::json;

async fn revision_now(server: &ApiServer) -> u64 {
    revision(&read(server, PROFILES).await.1)
}

#[tokio::test]
async fn a_watch_replays_what_happened_and_goes_on() {
    let server = hub();
    server.apply_cluster_profile("fleet", "before", profile("1"));
    let from = revision_now(&server).await;
    server.apply_cluster_profile("fleet", "a", profile("1"));
    server.apply_cluster_profile("fleet", "a", profile("2"));
    server.apply_cluster_profile("other", "b", profile("1"));
    server.delete_cluster_profile("fleet", "a");

    let mut all = Events::of(&server, &format!("{PROFILES}?watch=true&resourceVersion={from}")).await;
    let mut seen = vec![from];
    for expected in ["ADDED", "MODIFIED", "ADDED", "DELETED"] {
        let event = all.next().await.unwrap();
        assert_eq!(event["type"], expected);
        assert_eq!(event["object"]["kind"], "ClusterProfile");
        seen.push(revision(&event["object"]));
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    let mut one = Events::of(&server, &format!("{OF_FLEET}?watch=1&resourceVersion={from}")).await;
    assert_eq!(one.events(3).await, ["ADDED a", "MODIFIED a", "DELETED a"]);

    server.until_watched(Collection::ClusterProfiles, 2).await;
    server.apply_cluster_profile("fleet", "before", profile("1"));
    server.apply_cluster_profile("fleet", "c", profile("1"));
    assert_eq!(all.events(1).await, ["ADDED c"], "a change without effect has no event");
    assert_eq!(one.events(1).await, ["ADDED c"]);
    assert_eq!(server.watches(Collection::ClusterProfiles), 2);

    drop(all);
    server.until_watched(Collection::ClusterProfiles, 1).await;
    drop(one);
    server.until_watched(Collection::ClusterProfiles, 0).await;
}

#[tokio::test]
async fn a_watch_without_a_revision_begins_with_everything() {
    let server = hub();
    server.apply(Collection::ConfigMaps, "fleet", "a", json!({"data": {"x": "1"}}));
    let mut events = Events::of(&server, "/api/v1/configmaps?watch=true").await;
    server.apply(Collection::ConfigMaps, "fleet", "a", json!({"data": {"x": "2"}}));
    server.delete(Collection::ConfigMaps, "fleet", "a");
    assert_eq!(events.events(3).await, ["ADDED a", "MODIFIED a", "DELETED a"]);

    server.apply_cluster_profile("fleet", "p", profile("1"));
    let query =
        "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut events = Events::of(&server, &format!("{PROFILES}?{query}")).await;
    assert_eq!(events.events(1).await, ["ADDED p"]);
    let end = events.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout_with_a_bookmark() {
    let server = hub();
    let query = "watch=true&timeoutSeconds=1&allowWatchBookmarks=true";
    let mut events = Events::of(&server, &format!("{PROFILES}?{query}")).await;
    assert_eq!(events.events(1).await, ["BOOKMARK -"]);
    assert_eq!(events.next().await, None);
    server.until_watched(Collection::ClusterProfiles, 0).await;
}

#[tokio::test]
async fn a_revision_that_was_compacted_is_gone() {
    let server = hub();
    server.apply_cluster_profile("fleet", "a", profile("1"));
    let old = revision_now(&server).await;
    let path = |revision: u64| format!("{PROFILES}?watch=true&resourceVersion={revision}");
    let mut running = Events::of(&server, &path(old)).await;
    server.compact();
    let mut late = Events::of(&server, &path(old)).await;
    let event = late.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(late.next().await, None);
    server.compact_by_status();
    let (status, gone) = read(&server, &path(old)).await;
    assert_eq!((status, &gone["kind"], &gone["reason"]), (410, &json!("Status"), &json!("Expired")));

    server.apply_cluster_profile("fleet", "b", profile("1"));
    assert_eq!(running.events(1).await, ["ADDED b"], "a running watch keeps its place");
    let mut fresh = Events::of(&server, &path(revision_now(&server).await)).await;
    server.apply_cluster_profile("fleet", "c", profile("1"));
    assert_eq!(fresh.events(1).await, ["ADDED c"]);
    assert_eq!(read(&server, &path(old + 1000)).await.0, 504);
}

#[tokio::test]
async fn a_running_watch_ends_when_its_revision_expires() {
    let server = hub();
    let mut events = Events::of(&server, &format!("{PROFILES}?watch=true")).await;
    server.expire_watches();
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events.next().await, None);
    let mut again = Events::of(&server, &format!("{PROFILES}?watch=true")).await;
    server.apply_cluster_profile("fleet", "a", profile("1"));
    assert_eq!(again.events(1).await, ["ADDED a"]);
}

#[tokio::test]
async fn a_fleet_of_two_thousand_is_listed_and_followed() {
    let server = hub();
    let fleet =
        |text: &'static str| (0..2000).map(move |n| ("fleet".to_owned(), format!("c-{n:04}"), profile(text)));
    server.apply_cluster_profiles(fleet("first"));
    let (_, list) = read(&server, PROFILES).await;
    assert_eq!(names(&list).len(), 2000);
    let query = format!("watch=true&resourceVersion={}", revision(&list));
    let mut events = Events::of(&server, &format!("{PROFILES}?{query}")).await;
    server.apply_cluster_profiles(fleet("second"));
    for (namespace, name, body) in fleet("third") {
        server.apply_cluster_profile(&namespace, &name, body);
    }
    let first = revision(&list) + 1;
    for expected in first..first + 4000 {
        let event = events.next().await.unwrap();
        assert_eq!((&event["type"], revision(&event["object"])), (&json!("MODIFIED"), expected));
    }
}
