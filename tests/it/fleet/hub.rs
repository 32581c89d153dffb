//! If the hub is not available, the known profiles remain in use.

use std::sync::Arc;

use credbroker::app::Drained;
use credbroker_client::admin::Selector;
use credbroker_observe::clock::Clock;
use credbroker_proto::Reason;
use credbroker_test_support::Collection;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::*;
use crate::harness::Ahead;

/// A broker with three profiles and their credentials, each after one run.
async fn warm(hub: Hub) -> Served {
    let names = ["oslo", "paris", "tokyo"];
    let (hub, plugin, broker, mut caller) = hub.serve(&names, token_per_cluster_and_run(), &json!({})).await;
    for name in names {
        caller.token(name).await;
    }
    hub.server.until_watched(Collection::ClusterProfiles, 1).await;
    (hub, plugin, broker, caller)
}

/// All three credentials are served without another run, and the broker sees a new profile.
async fn is_well(hub: &Hub, plugin: &FakePlugin, caller: &mut Caller) {
    hub.profile("added", "added");
    caller.until(|clusters, hub| clusters.len() == 4 && hub.synced && problem(hub).is_empty()).await;
    for name in ["oslo", "paris", "tokyo"] {
        assert!(caller.token(name).await.starts_with(name));
    }
    assert_eq!(plugin.runs(), 3, "no storm");
}

async fn hub_health(broker: &InProcess) -> ServingStatus {
    let request = HealthCheckRequest { service: "hub".into() };
    let mut health = HealthClient::new(broker.channel().await);
    health.check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn a_hub_that_disappears_leaves_the_known_profiles_in_use_and_is_followed_when_it_returns() {
    let (hub, plugin, broker, mut caller) = warm(Hub::start()).await;
    assert_eq!(hub_health(&broker).await, ServingStatus::Serving);
    hub.server.go_away();
    caller.until(|clusters, hub| clusters.len() == 3 && hub.synced && !problem(hub).is_empty()).await;
    assert_eq!(hub_health(&broker).await, ServingStatus::NotServing);
    assert_eq!(caller.token("paris").await, "paris-2");
    assert_eq!(caller.list().await.clusters.len(), 3);
    hub.server.come_back();
    is_well(&hub, &plugin, &mut caller).await;
    assert_eq!(hub_health(&broker).await, ServingStatus::Serving);
}

#[tokio::test]
async fn profiles_remain_known_when_connections_are_reset() {
    let (hub, plugin, _broker, mut caller) = warm(Hub::start()).await;
    for _ in 0..3 {
        hub.server.cut_connections();
        hub.server.until_watched(Collection::ClusterProfiles, 1).await;
    }
    is_well(&hub, &plugin, &mut caller).await;
}

#[tokio::test]
async fn profiles_remain_known_when_the_hub_sends_garbage() {
    let (hub, plugin, _broker, mut caller) = warm(Hub::start()).await;
    hub.server.send_garbage();
    hub.server.cut_connections();
    caller.until(|clusters, hub| clusters.len() == 3 && !problem(hub).is_empty()).await;
    hub.server.mend();
    is_well(&hub, &plugin, &mut caller).await;
}

#[tokio::test]
async fn a_watch_that_is_too_old_leads_to_a_new_list_without_the_profiles_that_were_deleted() {
    let (hub, plugin, _broker, mut caller) = warm(Hub::start()).await;
    hub.server.go_away();
    caller.until(|_, hub| !problem(hub).is_empty()).await;
    hub.server.delete_cluster_profile("fleet", "oslo");
    hub.profile("added", "added");
    hub.server.compact();
    hub.server.come_back();
    let known = caller.until(|clusters, hub| clusters.len() == 3 && problem(hub).is_empty()).await;
    assert_eq!(
        known.iter().map(|cluster| name_of(cluster).1).collect::<Vec<_>>(),
        ["added", "paris", "tokyo"]
    );
    hub.server.compact();
    hub.server.expire_watches();
    hub.profile("oslo", "oslo");
    caller.until_known(4).await;
    assert_eq!((caller.token("paris").await, plugin.runs()), ("paris-2".to_owned(), 3));
}

/// kube's own watcher requests the same revision in an endless loop when the status of a watch is 410.
#[tokio::test]
async fn a_watch_that_is_refused_as_too_old_leads_to_a_new_list() {
    let (hub, plugin, _broker, mut caller) = warm(Hub::start()).await;
    hub.profile("oslo", "oslo");
    hub.server.compact_by_status();
    hub.server.cut_connections();
    is_well(&hub, &plugin, &mut caller).await;
}

#[tokio::test]
async fn an_invalid_object_affects_no_other() {
    let hub = Hub::start();
    hub.server.apply_cluster_profile("fleet", "odd", json!({"spec": [], "status": "none"}));
    hub.server.apply_cluster_profile("fleet", "odder", json!({"status": {"accessProviders": {"cloud": 1}}}));
    let (_hub, _plugin, _broker, mut caller) = warm(hub).await;
    let clusters = caller.until_known(5).await;
    assert_eq!(
        (readiness(&clusters, "odd"), readiness(&clusters, "odder")),
        (Readiness::Unusable, Readiness::Unusable)
    );
    assert_eq!(reason(&caller.get("odder").await.unwrap_err()), Some(Reason::ClusterProfileInvalid));
}

#[tokio::test]
async fn the_start_does_not_wait_for_the_hub_and_a_request_for_a_profile_fails_while_it_is_unavailable() {
    let (hub, plugin) = (Hub::start(), token_per_cluster_and_run());
    hub.profile("paris", "paris");
    hub.server.go_away();
    let broker = InProcess::with(
        json!({"providers": [cloud(&plugin), provider("plain", &plugin)], "clusterProfiles": hub.section()}),
        &[],
    );
    assert!(broker.get("plain").await.is_ok(), "providers are served without a hub");
    assert_eq!(hub_health(&broker).await, ServingStatus::NotServing);
    let mut caller = Caller::of(&broker).await;
    let refused = caller.get("paris").await.unwrap_err();
    assert_eq!(reason(&refused), Some(Reason::HubUnavailable));
    assert_eq!(named(&refused), [None, Some("fleet/paris".to_owned())]);
    assert!(refused.get_details_retry_info().is_some());
    hub.server.come_back();
    caller.until_known(1).await;
    assert_eq!(caller.token("paris").await, "paris-2");
}

#[tokio::test]
async fn a_request_right_after_the_start_waits_for_the_first_read_of_the_hub() {
    let (hub, plugin) = (Hub::start(), token_per_cluster_and_run());
    hub.profile("paris", "paris");
    hub.server.hang();
    let broker = hub.broker(&plugin);
    assert_eq!(hub_health(&broker).await, ServingStatus::NotServing, "nothing was read yet");
    let (mut caller, mut other) = (Caller::of(&broker).await, Caller::of(&broker).await);
    // A tenth of the time that a request waits for the first read.
    let mending = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        hub.server.mend();
    };
    let watching = async { next(&mut other.watch("paris").await).await.unwrap().0 };
    let (token, watched, ()) = tokio::join!(caller.token("paris"), watching, mending);
    assert_eq!((token.as_str(), watched.as_str()), ("paris-1", "paris-1"));
}

#[tokio::test]
async fn a_request_after_a_failed_read_waits_for_the_next_one() {
    let (hub, plugin) = (Hub::start(), token_per_cluster_and_run());
    hub.profile("paris", "paris");
    hub.server.go_away();
    let broker = hub.broker(&plugin);
    let mut caller = Caller::of(&broker).await;
    caller.until(|_, hub| !problem(hub).is_empty()).await;
    hub.server.come_back();
    assert_eq!(caller.token("paris").await, "paris-1");
}

#[tokio::test]
async fn the_credential_for_the_hub_comes_from_its_plugin_and_rotates() {
    let hub = Hub::start();
    let login = FakePlugin::builder().token_from_shell("login-$run").expires_in(8).build();
    for run in 1..100 {
        hub.server.accept_token(&format!("login-{run}"));
    }
    hub.with_user(&json!({"exec": login.exec_stanza()}));
    let (hub, plugin, _broker, mut caller) =
        hub.serve(&["paris"], token_per_cluster_and_run(), &json!({})).await;
    assert_eq!(caller.token("paris").await, "paris-1");
    let rotated = async {
        while hub.server.seen_tokens().len() < 3 {
            hub.server.until_watched(Collection::ClusterProfiles, 1).await;
            tokio::task::yield_now().await;
        }
    };
    timeout(AGES, rotated).await.expect("the hub sees each token");
    hub.profile("tokyo", "tokyo");
    caller.until_known(2).await;
    let info: Value = serde_json::from_str(&login.exec_infos()[0]).unwrap();
    assert_eq!(info["spec"]["cluster"]["server"], hub.server.url());
    assert_eq!(plugin.runs(), 1);
}

#[tokio::test]
async fn a_credential_that_the_hub_rejects_is_replaced() {
    let hub = Hub::start();
    let login = FakePlugin::builder().token_from_shell("login-$run").expires_in(3600).build();
    hub.server.accept_token("login-1");
    hub.server.accept_token("login-2");
    hub.with_user(&json!({"exec": login.exec_stanza()}));
    hub.profile("paris", "paris");
    let (plugin, clock) = (token_per_cluster_and_run(), Arc::new(Ahead::default()));
    let config = json!({"providers": [cloud(&plugin)], "clusterProfiles": hub.section()});
    let broker = InProcess::with_clock(config, &[], Arc::clone(&clock) as Arc<dyn Clock>);
    let mut caller = Caller::of(&broker).await;
    caller.until_known(1).await;
    // A credential that is only a moment old is not replaced.
    clock.put(10);
    hub.server.revoke_token("login-1");
    hub.server.cut_connections();
    caller.until(|_, hub| problem(hub).contains("Unauthorized")).await;
    caller.until(|clusters, hub| clusters.len() == 1 && problem(hub).is_empty()).await;
    assert_eq!(login.runs(), 2);
}

#[tokio::test]
async fn the_credential_for_the_hub_may_be_a_certificate() {
    let hub = Hub::start();
    let (certificate, key) = hub.server.issue_client_certificate("broker", AGES);
    let login = FakePlugin::builder().pair(&certificate, &key).build();
    hub.with_user(&json!({"exec": login.exec_stanza()}));
    let (hub, _plugin, _broker, mut caller) =
        hub.serve(&["paris"], token_per_cluster_and_run(), &json!({})).await;
    caller.until_known(1).await;
    assert_eq!(hub.server.seen_certificates(), ["broker"]);
}

#[tokio::test]
async fn rotations_of_the_certificate_for_the_hub_list_no_profile_again_and_lose_no_event() {
    let hub = Hub::start();
    let pair = |server: &ApiServer, number: usize| {
        let (certificate, key) =
            server.issue_client_certificate(&format!("broker-{number}"), Duration::from_secs(7200));
        FakePlugin::builder().pair(&certificate, &key)
    };
    let login = pair(&hub.server, 0).build();
    hub.with_user(&json!({"exec": login.exec_stanza()}));
    let (hub, _plugin, broker, mut caller) =
        hub.serve(&["paris"], token_per_cluster_and_run(), &json!({})).await;
    caller.until_known(1).await;
    let client = broker.client().await;
    for number in 1..11 {
        let name = format!("broker-{number}");
        login.becomes(&pair(&hub.server, number));
        client.admin().refresh(&Selector::All).await.unwrap();
        hub.profile(&format!("added-{number}"), "added");
        caller.until_known(1 + number).await;
        let seen = async {
            while !hub.server.seen_certificates().contains(&name) {
                tokio::task::yield_now().await;
            }
        };
        timeout(AGES, seen).await.expect("the hub sees each certificate");
    }
    assert_eq!(hub.server.lists(Collection::ClusterProfiles), 1);
}

/// kube would run such a plugin itself: three times, without a timeout, and with its output in errors.
#[tokio::test]
async fn a_plugin_that_the_user_of_the_hub_gets_after_the_start_is_run_by_the_broker() {
    let (hub, plugin, _broker, mut caller) = warm(Hub::start()).await;
    let login = FakePlugin::builder().token("login").expires_in(3600).build();
    hub.server.accept_token("login");
    hub.with_user(&json!({"exec": login.exec_stanza()}));
    let logged_in = async {
        while !hub.server.seen_tokens().contains(&"login".to_owned()) {
            tokio::task::yield_now().await;
        }
    };
    timeout(AGES, logged_in).await.expect("the new user reads the hub");
    is_well(&hub, &plugin, &mut caller).await;
    assert_eq!(login.runs(), 1);
}

#[tokio::test]
async fn the_context_that_is_configured_is_used_and_not_the_current_one() {
    let hub = Hub::start();
    let kubeconfig =
        Kubeconfig::new().cluster_of(&hub.server, "hub").user("stranger", &json!({"token": "wrong"}));
    let kubeconfig = kubeconfig.user("hub", &json!({"token": "hub"})).context("current", "hub", "stranger");
    kubeconfig.context("fleet", "hub", "hub").write(hub.directory.path().join("hub.kubeconfig"));
    let (hub, _plugin, _broker, mut caller) =
        hub.serve(&["paris"], token_per_cluster_and_run(), &json!({"context": "fleet"})).await;
    caller.until_known(1).await;
    assert_eq!(hub.server.seen_tokens(), ["hub"]);
}

#[tokio::test]
async fn a_drain_does_not_wait_for_the_hub_and_ends_watches_of_the_fleet() {
    let (_hub, _plugin, broker, mut caller) = warm(Hub::start()).await;
    let watch = caller.0.watch_clusters(pb::WatchClustersRequest::default()).await.unwrap();
    let mut watch = watch.into_inner();
    watch.message().await.unwrap();
    let ending = async { while let Ok(Some(_)) = watch.message().await {} };
    let (drained, ()) = timeout(AGES, async { tokio::join!(broker.stop(), ending) }).await.expect("an end");
    assert_eq!(drained, Drained::Whole);
}

#[tokio::test]
async fn a_kubeconfig_that_is_replaced_is_read_again() {
    let (hub, _plugin, _broker, mut caller) = serve(&["paris"]).await;
    caller.until_known(1).await;
    hub.server.accept_token("second");
    hub.with_user(&json!({"token": "second"}));
    hub.server.revoke_token("hub");
    hub.server.cut_connections();
    hub.profile("tokyo", "tokyo");
    caller.until_known(2).await;
}

#[tokio::test]
async fn a_hub_is_not_read_through_a_kubeconfig_that_others_can_change() {
    let (hub, _plugin, _broker, mut caller) = serve(&["paris"]).await;
    caller.until_known(1).await;
    let file = hub.directory.path().join("hub.kubeconfig");
    let mode = |mode| {
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(0o666);
    hub.server.cut_the_watch(Collection::ClusterProfiles).await;
    let remedy = format!("`chmod go-w {}`", file.display());
    caller.until(|clusters, hub| clusters.len() == 1 && problem(hub).contains(&remedy)).await;
    mode(0o600);
    hub.profile("tokyo", "tokyo");
    caller.until_known(2).await;
}

#[tokio::test]
async fn a_hub_is_not_read_with_certificate_authorities_that_others_can_change() {
    let hub = Hub::start();
    let ca = hub.directory.path().join("ca.pem");
    let kubeconfig = hub.directory.path().join("hub.kubeconfig");
    let cluster = json!({"server": hub.server.url(), "certificate-authority": ca});
    let user = Kubeconfig::new().cluster("hub", &cluster).user("hub", &json!({"token": "hub"}));
    user.context("hub", "hub", "hub").write(&kubeconfig);
    credbroker_test_support::private_file(&ca, &hub.server.ca_pem());
    let (hub, _plugin, _broker, mut caller) =
        hub.serve(&["paris"], token_per_cluster_and_run(), &json!({})).await;
    caller.until_known(1).await;
    std::fs::set_permissions(&ca, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    hub.server.cut_the_watch(Collection::ClusterProfiles).await;
    let remedy = format!("`chmod go-w {}`", ca.display());
    caller.until(|clusters, hub| clusters.len() == 1 && problem(hub).contains(&remedy)).await;
}
