//! The section `clusterProfiles` changes.

use credbroker_proto::v1 as pb;
use credbroker_test_support::{Accepts, ApiServer};
use pb::credential_broker_client::CredentialBrokerClient;
use serde_json::Value;

use super::*;
use crate::harness::provider;

/// A hub with profiles, and a kubeconfig for it in `directory`.
fn hub(directory: &Path, name: &str, profiles: &[&str]) -> (ApiServer, PathBuf) {
    let server = ApiServer::start(Accepts::Either);
    server.accept_token("hub");
    for profile in profiles {
        let (namespace, profile) = profile.split_once('/').unwrap();
        let cluster = json!({"server": format!("https://{profile}:6443")});
        let status = json!({"accessProviders": [{"name": "cloud", "cluster": cluster}]});
        let object = json!({"spec": {"clusterManager": {"name": "manager"}}, "status": status});
        server.apply_cluster_profile(namespace, profile, object);
    }
    let kubeconfig = Kubeconfig::new().cluster_of(&server, "hub").user("hub", &json!({"token": "hub"}));
    let file = directory.join(name);
    kubeconfig.context("hub", "hub", "hub").write(&file);
    (server, file)
}

async fn known(broker: &InProcess) -> Result<Vec<String>, tonic::Status> {
    let mut rpc = CredentialBrokerClient::new(broker.channel().await);
    let listed = rpc.list_clusters(pb::ListClustersRequest::default()).await?.into_inner();
    let names = listed.clusters.into_iter().map(|cluster| cluster.cluster_profile.unwrap().name);
    Ok(names.collect())
}

async fn until_known(broker: &InProcess, wanted: &[&str]) {
    let reached = async {
        while known(broker).await.ok().is_none_or(|known| known != wanted) {
            tokio::task::yield_now().await;
        }
    };
    timeout(AGES, reached).await.expect("these profiles are known");
}

fn get(name: &str) -> pb::GetCredentialRequest {
    let profile = pb::ClusterProfileRef { namespace: "fleet".into(), name: name.into() };
    let source = Some(pb::credential_ref::Source::ClusterProfile(profile));
    let r#ref = Some(pb::CredentialRef { source, ..pb::CredentialRef::default() });
    pb::GetCredentialRequest { r#ref, ..Default::default() }
}

async fn ask(broker: &InProcess, name: &str) -> String {
    let mut rpc = CredentialBrokerClient::new(broker.channel().await);
    let answer = rpc.get_credential(get(name)).await;
    answer.unwrap().into_inner().credential.unwrap().generation
}

#[tokio::test]
async fn a_hub_is_read_replaced_and_left_while_the_broker_runs() {
    let (directory, plugin) = (private_directory(), prints("t"));
    let (_one, first) = hub(directory.path(), "one", &["edge/rome", "fleet/paris"]);
    let (_two, second) = hub(directory.path(), "two", &["fleet/tokyo"]);
    let providers = json!([provider("cloud", &plugin)]);
    let with = |section: Value| json!({"providers": providers, "clusterProfiles": section});
    let broker = InProcess::with(json!({"providers": providers}), &[]);
    assert_eq!(known(&broker).await.unwrap_err().code(), tonic::Code::FailedPrecondition);

    broker.configure(with(json!({"kubeconfig": first})));
    until_known(&broker, &["rome", "paris"]).await;
    let generation = ask(&broker, "paris").await;

    broker.configure(with(json!({"kubeconfig": first, "namespaces": ["fleet"]})));
    until_known(&broker, &["paris"]).await;
    assert_eq!(ask(&broker, "paris").await, generation, "the same profile of the same hub");
    assert_eq!(plugin.runs(), 1);

    broker.configure(with(json!({"kubeconfig": second})));
    until_known(&broker, &["tokyo"]).await;

    broker.configure(json!({"providers": providers}));
    let left = async { while known(&broker).await.is_ok() {} };
    timeout(AGES, left).await.expect("no hub is read");
    broker.configure(with(json!({"kubeconfig": first})));
    until_known(&broker, &["rome", "paris"]).await;
    assert_ne!(ask(&broker, "paris").await, generation, "it was forgotten with its hub");
}

#[tokio::test]
async fn another_definition_of_an_access_provider_moves_its_profiles() {
    let (directory, old, new) = (private_directory(), prints("old"), prints("new"));
    let (_server, file) = hub(directory.path(), "one", &["fleet/paris"]);
    let with =
        |plugin| json!({"providers": [provider("cloud", plugin)], "clusterProfiles": {"kubeconfig": file}});
    let broker = InProcess::with(with(&old), &[]);
    until_known(&broker, &["paris"]).await;
    let generation = ask(&broker, "paris").await;
    broker.configure(with(&new));
    let mut states = broker.configuration.clone();
    drop(timeout(AGES, states.wait_for(|state| state.reloads == 1)).await.expect("it is read").unwrap());
    assert_ne!(ask(&broker, "paris").await, generation);
    assert_eq!((old.runs(), new.runs()), (1, 1));
}

/// The request waits for the first read of the hub while it loses its right.
#[tokio::test]
async fn a_request_that_waited_while_the_rules_changed_has_the_rights_of_the_new_ones() {
    let (directory, plugin) = (private_directory(), prints("t"));
    let (server, file) = hub(directory.path(), "one", &["fleet/paris"]);
    server.hang();
    let with = |uid: u32| {
        json!({
            "providers": [provider("cloud", &plugin)],
            "clusterProfiles": {"kubeconfig": file},
            "access": [{
                "name": "fleet",
                "peers": {"uids": [uid]},
                "allow": {"clusterProfiles": ["fleet/*"], "verbs": ["get", "list"]},
            }],
        })
    };
    let uid = rustix::process::geteuid().as_raw();
    let broker = InProcess::with(with(uid), &[]);
    let channel = broker.channel().await;
    let mut rpc = CredentialBrokerClient::new(channel.clone());
    let waiting = tokio::spawn(async move { rpc.get_credential(get("paris")).await });
    // A later request on the same connection: the first one is being answered.
    CredentialBrokerClient::new(channel).list_clusters(pb::ListClustersRequest::default()).await.unwrap();

    let mut states = broker.configuration.clone();
    broker.configure(with(uid + 7));
    drop(timeout(AGES, states.wait_for(|state| state.reloads == 1)).await.expect("it is read").unwrap());
    server.mend();
    let refused = waiting.await.unwrap().unwrap_err();
    assert_ne!(refused.code(), tonic::Code::Internal, "{refused}");
    assert_eq!(plugin.runs(), 0, "{refused}");
}
