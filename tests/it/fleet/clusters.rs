//! `ListClusters` and `WatchClusters`.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_cluster_is_listed_with_all_its_properties() {
    let (_hub, _plugin, _broker, mut caller) = serve(&["paris"]).await;
    caller.until_known(1).await;
    let ClusterState { cluster, properties, skipped_providers, .. } = caller.list().await.clusters[0].clone();
    assert_eq!(cluster.unwrap().server, "https://paris:6443");
    assert_eq!((properties[0].name.as_str(), properties[0].value.as_str()), ("region", "eu"));
    let skipped: Vec<_> =
        skipped_providers.iter().map(|skipped| (&*skipped.name, &*skipped.message)).collect();
    assert_eq!(skipped, [("elsewhere", "not configured here")]);
    let state = caller.list().await.clusters[0].clone();
    let texts = [state.display_name(), state.cluster_manager(), state.kubernetes_version(), state.provider()];
    assert_eq!(texts, ["The paris", "manager", "v1.35.0", "cloud"]);
    assert_eq!(state.readiness(), Readiness::Idle);
    caller.token("paris").await;
    assert_eq!(readiness(&caller.list().await.clusters, "paris"), Readiness::Ready);
}

#[tokio::test]
async fn a_failed_plugin_and_an_unusable_profile_have_a_reason() {
    let (hub, plugin) = (Hub::start(), FakePlugin::builder().exit_code(3).stderr("no session").build());
    hub.profile("paris", "paris");
    let mut unusable = profile("tokyo", "tokyo");
    unusable["status"]["accessProviders"] = json!([]);
    hub.server.apply_cluster_profile("fleet", "tokyo", unusable);
    let broker = hub.broker(&plugin);
    let mut caller = Caller::of(&broker).await;
    caller.get("paris").await.unwrap_err();
    let clusters = caller
        .until(|clusters, _| readiness(clusters, "paris") == Readiness::Failed && clusters.len() == 2)
        .await;
    let failure = clusters[0].failure.as_ref().unwrap();
    assert_eq!(Reason::from_message(failure.reason()), Some(Reason::PluginExit));
    assert!(failure.message.contains("no session"), "{}", failure.message);
    assert_eq!(
        (clusters[1].readiness(), why(&clusters[1])),
        (Readiness::Unusable, Some(Reason::NoMatchingProvider))
    );
    assert!(clusters[1].cluster.is_none() && clusters[1].provider.is_none());
    assert!(!format!("{clusters:?}").contains("token"), "no secret");
}

#[tokio::test]
async fn clusters_are_unusable_until_their_plugin_is_installed() {
    let (hub, plugin) = (Hub::start(), token_per_cluster_and_run());
    hub.profile("paris", "paris");
    let (there, away) = (plugin.path(), plugin.dir().join("away"));
    std::fs::rename(&there, &away).unwrap();
    let broker = hub.broker(&plugin);
    let mut caller = Caller::of(&broker).await;
    let clusters = caller.until(|clusters, _| readiness(clusters, "paris") == Readiness::Unusable).await;
    assert_eq!((why(&clusters[0]), clusters[0].provider()), (Some(Reason::PluginNotFound), "cloud"));
    std::fs::rename(&away, &there).unwrap();
    caller.until(|clusters, _| readiness(clusters, "paris") == Readiness::Idle).await;
}

#[tokio::test]
async fn a_message_has_only_the_clusters_that_changed() {
    let (hub, plugin) = (Hub::start(), token_per_cluster_and_run());
    for index in 0..20 {
        hub.profile(&format!("c{index:02}"), "old");
    }
    let broker = hub.broker(&plugin);
    let mut caller = Caller::of(&broker).await;
    caller.until_known(20).await;
    let watch = caller.0.watch_clusters(pb::WatchClustersRequest::default()).await.unwrap();
    let mut watch = watch.into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert!(first.complete && first.changed.len() == 20 && first.removed.is_empty());
    hub.profile("c07", "new");
    hub.server.delete_cluster_profile("fleet", "c03");
    hub.profile("c20", "added");
    let (mut changed, mut removed) = (BTreeSet::new(), BTreeSet::new());
    while changed.len() + removed.len() < 3 {
        let message = timeout(AGES, watch.message()).await.expect("news").unwrap().unwrap();
        changed.extend(message.changed.iter().map(|cluster| name_of(cluster).1));
        removed.extend(message.removed.into_iter().map(|gone| gone.name));
    }
    assert_eq!(changed, ["c07", "c20"].map(str::to_owned).into());
    assert_eq!(removed, ["c03"].map(str::to_owned).into());
}

#[tokio::test]
async fn a_fleet_that_is_too_large_for_a_message_is_sent_in_pages() {
    let (hub, plugin) = (Hub::start(), token_per_cluster_and_run());
    // Large authorities: 300 clusters are more than two messages.
    let authorities = "QUJD".repeat(3_000);
    for index in 0..300 {
        let mut body = profile("x", "x");
        body["status"]["accessProviders"][1]["cluster"]["certificate-authority-data"] = json!(authorities);
        hub.server.apply_cluster_profile("fleet", &format!("c{index:03}"), body);
    }
    let broker = hub.broker(&plugin);
    let mut caller = Caller::of(&broker).await;
    assert_eq!(caller.until_known(300).await.len(), 300);
    let (mut names, mut page_token, mut pages) = (Vec::new(), None, 0);
    loop {
        let request =
            pb::ListClustersRequest { namespace: Some("fleet".into()), page_token, ..Default::default() };
        let page = caller.0.list_clusters(request).await.unwrap().into_inner();
        names.extend(page.clusters.iter().map(|cluster| name_of(cluster).1));
        (page_token, pages) = (page.next_page_token, pages + 1);
        if page_token.is_none() {
            break;
        }
    }
    assert_eq!(names, (0..300).map(|index| format!("c{index:03}")).collect::<Vec<_>>());
    assert!(pages > 2, "{pages}");
    let nowhere = pb::ListClustersRequest { namespace: Some("elsewhere".into()), ..Default::default() };
    assert!(caller.0.list_clusters(nowhere).await.unwrap().into_inner().clusters.is_empty());
    let odd = pb::ListClustersRequest { page_token: Some("odd".into()), ..Default::default() };
    assert_eq!(reason(&caller.0.list_clusters(odd).await.unwrap_err()), Some(Reason::InvalidRequest));
}

#[tokio::test]
async fn a_watch_of_the_fleet_counts_among_the_watches_of_its_connection() {
    let (hub, plugin) = (Hub::start(), token_per_cluster_and_run());
    let config = json!({"providers": [cloud(&plugin)], "clusterProfiles": hub.section()});
    let broker = InProcess::with(config, &[]);
    let mut caller = Caller::of(&broker).await;
    let mut watches = Vec::new();
    for _ in 0..1000 {
        watches.push(caller.0.watch_clusters(pb::WatchClustersRequest::default()).await.unwrap());
    }
    let refused = caller.0.watch_clusters(pb::WatchClustersRequest::default()).await.unwrap_err();
    assert_eq!(reason(&refused), Some(Reason::Overloaded));
    drop(watches);
}
