//! A broker that serves the ClusterProfiles of a hub.

mod clusters;
mod hub;
mod matching;
mod prewarm;
mod serving;

use std::time::Duration;

use credbroker_proto::{
    Reason,
    v1::{
        self as pb, ClusterState, cluster_state::Readiness, credential_broker_client::CredentialBrokerClient,
        credential_ref::Source,
    },
    v1alpha1,
    v1alpha1::credential_broker_admin_client::CredentialBrokerAdminClient,
};
use credbroker_test_support::{Accepts, ApiServer, FakePlugin, Kubeconfig, private_directory};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;
use tonic::{Streaming, transport::Channel};
use tonic_types::StatusExt as _;

use crate::harness::{InProcess, problem, provider, reason};

/// Longer than any step takes, also on a slow machine.
const AGES: Duration = Duration::from_secs(60);

/// A hub, and a kubeconfig for it.
struct Hub {
    server: ApiServer,
    directory: TempDir,
}

impl Hub {
    fn start() -> Self {
        let server = ApiServer::start(Accepts::Either);
        server.accept_token("hub");
        let hub = Self { server, directory: private_directory() };
        hub.with_user(&json!({"token": "hub"}));
        hub
    }

    /// The kubeconfig names this user from now on.
    fn with_user(&self, user: &Value) {
        let kubeconfig = Kubeconfig::new().cluster_of(&self.server, "hub").user("hub", user);
        kubeconfig.context("hub", "hub", "hub").write(self.directory.path().join("hub.kubeconfig"));
    }

    /// The section `clusterProfiles` of a broker that reads it.
    fn section(&self) -> Value {
        json!({"kubeconfig": self.directory.path().join("hub.kubeconfig")})
    }

    /// `fleet/NAME` at `https://SERVER:6443`, for provider `cloud`; its plugin gets `CLUSTER=NAME`.
    fn profile(&self, name: &str, server: &str) {
        self.server.apply_cluster_profile("fleet", name, profile(name, server));
    }

    /// Each at a server of the same name.
    fn profiles(&self, names: &[&str]) {
        for name in names {
            self.profile(name, name);
        }
    }

    /// Adds profiles, each at a server of the same name, and starts a broker with `more` in `clusterProfiles`.
    async fn serve(self, profiles: &[&str], plugin: FakePlugin, more: &Value) -> Served {
        self.profiles(profiles);
        let broker = self.broker_with(&plugin, more);
        let caller = Caller::of(&broker).await;
        (self, plugin, broker, caller)
    }

    /// A broker that reads it, whose provider `cloud` runs `plugin`.
    fn broker(&self, plugin: &FakePlugin) -> InProcess {
        self.broker_with(plugin, &json!({}))
    }

    /// The same with more in `clusterProfiles`.
    fn broker_with(&self, plugin: &FakePlugin, more: &Value) -> InProcess {
        let mut section = self.section();
        section.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        InProcess::with(json!({"providers": [cloud(plugin)], "clusterProfiles": section}), &[])
    }
}

/// A hub, the plugin of the provider `cloud`, a broker that reads the hub, and a caller of the broker.
type Served = (Hub, FakePlugin, InProcess, Caller);

/// The set-up of most tests: a broker that knows these profiles, and a plugin that prints `PROFILE-RUN`.
async fn serve(profiles: &[&str]) -> Served {
    Hub::start().serve(profiles, token_per_cluster_and_run(), &json!({})).await
}

/// The provider `cloud`.
fn cloud(plugin: &FakePlugin) -> Value {
    let mut cloud = provider("cloud", plugin);
    cloud["execConfig"]["provideClusterInfo"] = json!(true);
    cloud["profileSourcedEnvVarsPolicy"] = json!("AppendIfNotExists");
    cloud["profileEnv"] = json!(["CLUSTER"]);
    cloud
}

/// Prints `CLUSTER-1` in the first run, then `CLUSTER-2`, ….
fn token_per_cluster_and_run() -> FakePlugin {
    FakePlugin::builder().token_from_shell("$CLUSTER-$run").expires_in(3600).build()
}

fn profile(name: &str, server: &str) -> Value {
    let envs = json!({
        "name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs",
        "extension": {"CLUSTER": name},
    });
    let cluster = json!({"server": format!("https://{server}:6443"), "extensions": [envs]});
    json!({
        "spec": {"clusterManager": {"name": "manager"}, "displayName": format!("The {name}")},
        "status": {
            "version": {"kubernetes": "v1.35.0"},
            "properties": [{"name": "region", "value": "eu"}],
            "accessProviders": [{"name": "elsewhere", "cluster": {"server": "https://elsewhere"}}, {"name": "cloud", "cluster": cluster}],
        },
    })
}

fn reference(name: &str) -> pb::CredentialRef {
    let profile = pb::ClusterProfileRef { namespace: "fleet".into(), name: name.into() };
    pb::CredentialRef { source: Some(Source::ClusterProfile(profile)), ..pb::CredentialRef::default() }
}

fn why(cluster: &ClusterState) -> Option<Reason> {
    Reason::from_message(cluster.failure.as_ref()?.reason())
}

/// The provider and the cluster that an error names.
fn named(status: &tonic::Status) -> [Option<String>; 2] {
    let mut metadata = status.get_details_error_info().unwrap().metadata;
    ["provider", "cluster"].map(|key| metadata.remove(key))
}

type Rpc = CredentialBrokerClient<Channel>;

/// Calls of one connection, and the admin's.
struct Caller(Rpc, CredentialBrokerAdminClient<Channel>);

impl Caller {
    async fn of(broker: &InProcess) -> Self {
        let channel = broker.channel().await;
        Self(CredentialBrokerClient::new(channel.clone()), CredentialBrokerAdminClient::new(channel))
    }

    async fn get(&mut self, name: &str) -> Result<pb::GetCredentialResponse, tonic::Status> {
        self.ask(reference(name)).await
    }

    async fn ask(
        &mut self,
        reference: pb::CredentialRef,
    ) -> Result<pb::GetCredentialResponse, tonic::Status> {
        let request = pb::GetCredentialRequest { r#ref: Some(reference), ..Default::default() };
        Ok(timeout(AGES, self.0.get_credential(request)).await.expect("an answer")?.into_inner())
    }

    async fn token(&mut self, name: &str) -> String {
        self.get(name).await.unwrap().credential.unwrap().token.unwrap()
    }

    async fn watch(&mut self, name: &str) -> Streaming<pb::WatchCredentialResponse> {
        let request = pb::WatchCredentialRequest { r#ref: Some(reference(name)) };
        self.0.watch_credential(request).await.unwrap().into_inner()
    }

    async fn held(&mut self) -> Vec<v1alpha1::CredentialState> {
        self.1
            .list_credentials(v1alpha1::ListCredentialsRequest::default())
            .await
            .unwrap()
            .into_inner()
            .credentials
    }

    async fn list(&mut self) -> pb::ListClustersResponse {
        self.0.list_clusters(pb::ListClustersRequest::default()).await.unwrap().into_inner()
    }

    /// Waits until the clusters and the hub are as `is_so` wants them.
    async fn until(&mut self, is_so: impl Fn(&[ClusterState], &pb::HubState) -> bool) -> Vec<ClusterState> {
        let mut known = std::collections::BTreeMap::new();
        let watch = self.0.watch_clusters(pb::WatchClustersRequest::default()).await.unwrap();
        let mut watch = watch.into_inner();
        let reached = async {
            loop {
                let message = watch.message().await.unwrap().unwrap();
                for cluster in message.changed {
                    known.insert(name_of(&cluster), cluster);
                }
                for gone in message.removed {
                    known.remove(&(gone.namespace, gone.name));
                }
                let clusters: Vec<_> = known.values().cloned().collect();
                if message.complete && is_so(&clusters, &message.hub.unwrap()) {
                    return clusters;
                }
            }
        };
        timeout(AGES, reached).await.expect("the fleet becomes so")
    }

    /// Waits until so many clusters are known, and all of the hub was read.
    async fn until_known(&mut self, count: usize) -> Vec<ClusterState> {
        self.until(|clusters, hub| hub.synced && clusters.len() == count).await
    }
}

fn name_of(cluster: &ClusterState) -> (String, String) {
    let name = cluster.cluster_profile.clone().unwrap();
    (name.namespace, name.name)
}

fn readiness(clusters: &[ClusterState], name: &str) -> Readiness {
    clusters
        .iter()
        .find(|cluster| name_of(cluster).1 == name)
        .map_or(Readiness::Unspecified, ClusterState::readiness)
}

async fn next(watch: &mut Streaming<pb::WatchCredentialResponse>) -> Result<(String, String), tonic::Status> {
    let message =
        timeout(AGES, watch.message()).await.expect("a message")?.expect("a watch ends with a status");
    Ok((message.credential.unwrap().token.unwrap(), message.cluster.unwrap().server))
}
