//! A cluster that a caller sends must match a cluster that the broker knows.

use credbroker_proto::Reason;
use tonic::Code;

use super::*;

fn cluster(server: &str) -> pb::Cluster {
    pb::Cluster { server: format!("https://{server}:6443"), ..pb::Cluster::default() }
}

fn by_provider(cluster: pb::Cluster) -> pb::CredentialRef {
    let provider = pb::ProviderRef { name: "cloud".into(), definition: None };
    let source = Some(Source::Provider(provider));
    pb::CredentialRef { source, cluster: Some(cluster), ..pb::CredentialRef::default() }
}

/// A broker with this `clusterInfo` that knows the profiles `paris` and `tokyo`.
async fn matching(cluster_info: &str, plugin: FakePlugin) -> Served {
    let hub = Hub::start();
    hub.profiles(&["paris", "tokyo"]);
    let mut cloud = cloud(&plugin);
    cloud["clusterInfo"] = json!(cluster_info);
    let broker = InProcess::with(json!({"providers": [cloud], "clusterProfiles": hub.section()}), &[]);
    let mut caller = Caller::of(&broker).await;
    caller.until_known(2).await;
    (hub, plugin, broker, caller)
}

#[tokio::test]
async fn a_known_cluster_leads_to_its_profiles_credential() {
    let (_hub, plugin, _broker, mut caller) = matching("Match", token_per_cluster_and_run()).await;
    let answer = caller.ask(by_provider(cluster("tokyo"))).await.unwrap();
    assert_eq!(answer.credential.unwrap().token(), "tokyo-1");
    assert_eq!((caller.token("tokyo").await, plugin.runs()), ("tokyo-1".to_owned(), 1), "it is the same run");
}

#[tokio::test]
async fn an_unknown_or_altered_cluster_is_denied_and_runs_nothing() {
    let (_hub, plugin, _broker, mut caller) = matching("Match", token_per_cluster_and_run()).await;
    let altered = [
        cluster("elsewhere"),
        pb::Cluster { tls_server_name: Some("evil".into()), ..cluster("paris") },
        pb::Cluster { certificate_authority_data: Some("evil".into()), ..cluster("paris") },
        pb::Cluster { config: Some(br#"{"audience":"evil"}"#.to_vec().into()), ..cluster("paris") },
    ];
    for cluster in altered {
        let profile = pb::CredentialRef { cluster: Some(cluster.clone()), ..reference("paris") };
        for (credential, profile) in [(by_provider(cluster), None), (profile, Some("fleet/paris".to_owned()))]
        {
            let denied = caller.ask(credential).await.unwrap_err();
            assert_eq!(named(&denied), [Some("cloud".to_owned()), profile]);
            assert!(denied.message().starts_with("provider `cloud`: "), "{}", denied.message());
            assert_eq!(
                (denied.code(), reason(&denied)),
                (Code::PermissionDenied, Some(Reason::ClusterMismatch))
            );
        }
    }
    assert_eq!(plugin.runs(), 0);
}

#[tokio::test]
async fn with_from_caller_any_cluster_goes_to_the_plugin_and_into_the_key() {
    let plugin = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let (_hub, _plugin, _broker, mut caller) = matching("FromCaller", plugin).await;
    for (server, token) in [("elsewhere", "token-1"), ("nowhere", "token-2"), ("elsewhere", "token-1")] {
        let answer = caller.ask(by_provider(cluster(server))).await.unwrap();
        assert_eq!(answer.credential.unwrap().token(), token);
    }
    let denied = pb::CredentialRef { cluster: Some(cluster("elsewhere")), ..reference("paris") };
    assert_eq!(
        reason(&caller.ask(denied).await.unwrap_err()),
        Some(Reason::ClusterMismatch),
        "a profile has its own cluster"
    );
}

#[tokio::test]
async fn a_watch_by_cluster_ends_when_the_profile_leads_to_another_server() {
    let (hub, _plugin, _broker, mut caller) = matching("Match", token_per_cluster_and_run()).await;
    let request = pb::WatchCredentialRequest { r#ref: Some(by_provider(cluster("paris"))) };
    let mut watch = caller.0.watch_credential(request).await.unwrap().into_inner();
    next(&mut watch).await.unwrap();
    hub.profile("paris", "moved");
    assert_eq!(reason(&next(&mut watch).await.unwrap_err()), Some(Reason::ClusterMismatch));
}
