//! Credentials by ClusterProfile.

use std::process::Command;

use credbroker_proto::Reason;
use serde_json::json;
use tokio::task::spawn_blocking;
use tonic::Code;

use super::*;

#[tokio::test]
async fn a_profile_returns_its_credential_and_its_endpoint() {
    let (_hub, plugin, _broker, mut caller) = serve(&["paris"]).await;
    let answer = caller.get("paris").await.unwrap();
    assert_eq!(answer.credential.unwrap().token(), "paris-1");
    assert_eq!(answer.cluster.unwrap().server, "https://paris:6443");
    let info: Value = serde_json::from_str(&plugin.exec_infos()[0]).unwrap();
    assert_eq!(info["spec"]["cluster"]["server"], "https://paris:6443");
    assert_eq!((caller.token("paris").await, plugin.runs()), ("paris-1".to_owned(), 1));
    let held = caller.held().await;
    let held: Vec<_> = held.into_iter().filter_map(|held| held.cluster_profile).collect();
    assert_eq!(held, [pb::ClusterProfileRef { namespace: "fleet".into(), name: "paris".into() }]);
}

#[tokio::test]
async fn each_profile_has_a_separate_run_with_its_variables() {
    let plugin = FakePlugin::builder().token_from_shell("$CLUSTER").expires_in(3600).build();
    let names = ["oslo", "paris", "tokyo"];
    let (_hub, plugin, _broker, mut caller) = Hub::start().serve(&names, plugin, &json!({})).await;
    for _ in 0..2 {
        for name in names {
            let answer = caller.get(name).await.unwrap();
            assert_eq!(answer.credential.unwrap().token(), name);
            assert_eq!(answer.cluster.unwrap().server, format!("https://{name}:6443"));
        }
    }
    assert_eq!(plugin.runs(), 3);
}

#[tokio::test]
async fn a_profile_that_moves_is_sent_with_a_credential_for_the_new_endpoint() {
    let (hub, _plugin, _broker, mut caller) = serve(&["paris"]).await;
    let mut watch = caller.watch("paris").await;
    let message = |token: &str, server: &str| (token.to_owned(), format!("https://{server}:6443"));
    assert_eq!(next(&mut watch).await.unwrap(), message("paris-1", "paris"));
    hub.profile("paris", "new");
    assert_eq!(next(&mut watch).await.unwrap(), message("paris-2", "new"));
    assert_eq!(caller.token("paris").await, "paris-2");
    let held = caller.held().await;
    assert_eq!(held.len(), 1, "the credential for the old server is forgotten");
}

#[tokio::test]
async fn a_watch_of_a_profile_that_is_recreated_shares_the_credential_of_other_callers() {
    let (hub, _plugin, _broker, mut caller) = serve(&["paris"]).await;
    let mut watch = caller.watch("paris").await;
    assert_eq!(next(&mut watch).await.unwrap().0, "paris-1");
    let there_and_back = ["elsewhere", "paris"].map(|server| ("fleet", "paris", profile("paris", server)));
    hub.server.apply_cluster_profiles(there_and_back);
    let (watched, _) = next(&mut watch).await.unwrap();
    assert_eq!(caller.token("paris").await, watched);
    let held = caller.held().await;
    assert_eq!(held.iter().map(|held| held.watches).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn refresh_and_evict_select_the_credentials_of_one_cluster() {
    let (_hub, plugin, broker, mut caller) = serve(&["oslo", "paris"]).await;
    for name in ["oslo", "paris"] {
        assert_eq!(caller.token(name).await, format!("{name}-{}", plugin.runs()));
    }
    let run = async |command: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_credbroker"));
        program.args([command, "--cluster-profile", "fleet/paris", "--socket"]).arg(broker.socket());
        let output = spawn_blocking(move || program.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let refreshed = run("refresh").await;
    assert!(refreshed.contains("paris") && !refreshed.contains("oslo"), "{refreshed}");
    assert_eq!((plugin.runs(), caller.token("paris").await), (3, "paris-3".to_owned()));
    assert_eq!(caller.token("oslo").await, "oslo-1");

    assert_eq!(run("evict").await, "evicted 1 credential\n");
    let held = caller.held().await;
    let held: Vec<_> = held.into_iter().filter_map(|held| held.cluster_profile).collect();
    assert_eq!(held, [pb::ClusterProfileRef { namespace: "fleet".into(), name: "oslo".into() }]);
}

#[tokio::test]
async fn the_endpoint_is_returned_for_a_plugin_that_does_not_get_it_too() {
    let (hub, plugin) = (Hub::start(), token_per_cluster_and_run());
    hub.profile("paris", "paris");
    let mut cloud = cloud(&plugin);
    cloud["execConfig"]["provideClusterInfo"] = json!(false);
    let broker = InProcess::with(json!({"providers": [cloud], "clusterProfiles": hub.section()}), &[]);
    let answer = Caller::of(&broker).await.get("paris").await.unwrap();
    assert_eq!(answer.cluster.unwrap().server, "https://paris:6443");
}

#[tokio::test]
async fn a_change_of_descriptive_fields_runs_nothing() {
    let (hub, plugin, _broker, mut caller) = serve(&["paris"]).await;
    let mut watch = caller.watch("paris").await;
    next(&mut watch).await.unwrap();
    let mut changed = profile("paris", "paris");
    changed["spec"]["displayName"] = json!("Lutetia");
    hub.server.apply_cluster_profile("fleet", "paris", changed);
    caller.until(|clusters, _| clusters[0].display_name() == "Lutetia").await;
    assert_eq!((caller.token("paris").await, plugin.runs()), ("paris-1".to_owned(), 1));
    hub.profile("paris", "new");
    assert_eq!(next(&mut watch).await.unwrap().0, "paris-2", "nor was it sent to watches");
}

#[tokio::test]
async fn a_deleted_profile_ends_its_watches_and_is_forgotten() {
    let (hub, _plugin, _broker, mut caller) = serve(&["paris", "tokyo"]).await;
    let (mut watch, mut other) = (caller.watch("paris").await, caller.watch("tokyo").await);
    next(&mut watch).await.unwrap();
    next(&mut other).await.unwrap();
    hub.server.delete_cluster_profile("fleet", "paris");
    let ended = next(&mut watch).await.unwrap_err();
    assert_eq!((ended.code(), reason(&ended)), (Code::NotFound, Some(Reason::UnknownClusterProfile)));
    let refused = caller.get("paris").await.unwrap_err();
    assert_eq!(reason(&refused), Some(Reason::UnknownClusterProfile));
    caller.until_known(1).await;
    let held = caller.held().await;
    let held: Vec<_> = held.into_iter().map(|held| held.cluster_profile.unwrap().name).collect();
    assert_eq!(held, ["tokyo"]);
}

#[tokio::test]
async fn a_profile_that_becomes_unusable_ends_its_watches_with_the_reason() {
    let (hub, _plugin, _broker, mut caller) = serve(&["paris"]).await;
    let mut watch = caller.watch("paris").await;
    next(&mut watch).await.unwrap();
    let mut unusable = profile("paris", "paris");
    unusable["status"]["accessProviders"][1]["cluster"]["server"] = json!("http://paris");
    hub.server.apply_cluster_profile("fleet", "paris", unusable);
    let ended = next(&mut watch).await.unwrap_err();
    assert_eq!(
        (ended.code(), reason(&ended)),
        (Code::FailedPrecondition, Some(Reason::ClusterProfileInvalid))
    );
    assert!(ended.message().contains("allowHttp"), "{}", ended.message());
    let mut foreign = profile("paris", "paris");
    foreign["status"]["accessProviders"][1]["name"] = json!("foreign");
    hub.server.apply_cluster_profile("fleet", "paris", foreign);
    caller.until(|clusters, _| why(&clusters[0]) == Some(Reason::NoMatchingProvider)).await;
    let refused = caller.get("paris").await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::NotFound, Some(Reason::NoMatchingProvider)));
    hub.profile("paris", "paris");
    caller.until(|clusters, _| clusters[0].provider() == "cloud").await;
    assert_eq!(caller.token("paris").await, "paris-2");
}

/// `tests/interop/real/fleet.rs` has the label selector.
#[tokio::test]
async fn only_the_namespaces_that_are_configured_are_read() {
    let (hub, plugin) = (Hub::start(), token_per_cluster_and_run());
    for namespace in ["fleet", "edge", "other"] {
        hub.server.apply_cluster_profile(namespace, "paris", profile("paris", "paris"));
    }
    let broker = hub.broker_with(&plugin, &json!({"namespaces": ["fleet", "edge"]}));
    let mut caller = Caller::of(&broker).await;
    let known: Vec<_> = caller.until_known(2).await.iter().map(name_of).collect();
    assert_eq!(known, [("edge".to_owned(), "paris".to_owned()), ("fleet".to_owned(), "paris".to_owned())]);
    hub.server.delete_cluster_profile("fleet", "paris");
    caller.until_known(1).await;
    assert_eq!(reason(&caller.get("paris").await.unwrap_err()), Some(Reason::UnknownClusterProfile));
}

#[tokio::test]
async fn without_a_hub_the_error_names_the_remedy() {
    let broker = InProcess::idle();
    let mut caller = Caller::of(&broker).await;
    let refused = caller.get("paris").await.unwrap_err();
    assert_eq!(reason(&refused), Some(Reason::HubNotConfigured));
    assert!(refused.message().contains("add `clusterProfiles`"), "{}", refused.message());
    let refused = caller.0.list_clusters(pb::ListClustersRequest::default()).await.unwrap_err();
    assert_eq!(reason(&refused), Some(Reason::HubNotConfigured));
}
