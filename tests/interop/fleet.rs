//! A fleet that the broker reads from a hub, and clients that walk it.

mod contexts;
mod in_cluster;
mod moves;
mod routes;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_proto::v1::{
    ClusterState, HubState, WatchClustersRequest, credential_broker_client::CredentialBrokerClient,
};
use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Kubeconfig, private_directory};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::transport::Endpoint;

use crate::{
    kubectl::{Kubectl, newest_api_version, stdout},
    programs::{broker, path_with_shim},
};

/// Longer than anything here takes, on any machine.
const AGES: Duration = Duration::from_secs(60);
const ENVS: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";

/// An API server with the ClusterProfiles of namespace `fleet`, and a kubeconfig for it.
pub(crate) struct Hub {
    pub(crate) server: ApiServer,
    directory: TempDir,
}

impl Hub {
    pub(crate) fn start() -> Self {
        let server = ApiServer::start(Accepts::Tokens);
        server.accept_token("hub");
        let directory = private_directory();
        Kubeconfig::new()
            .cluster_of(&server, "hub")
            .user("hub", &json!({"token": "hub"}))
            .context("hub", "hub", "hub")
            .write(directory.path().join("kubeconfig"));
        Self { server, directory }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// `fleet/NAME`, at `cluster`, for `provider`.
    pub(crate) fn profile(&self, name: &str, provider: &str, cluster: &Value) {
        self.server.apply_cluster_profile("fleet", name, profile(provider, cluster));
    }

    /// A broker that reads it and has these providers.
    pub(crate) fn broker(&self, providers: &Value) -> Broker {
        let config = json!({
            "apiVersion": "credbroker.io/v1alpha1",
            "kind": "BrokerConfig",
            "providers": providers,
            "clusterProfiles": {"kubeconfig": self.kubeconfig()},
        });
        Broker::builder(broker()).config(&config.to_string()).start()
    }
}

/// What a ClusterProfile says of a cluster that one provider understands.
pub(crate) fn profile(provider: &str, cluster: &Value) -> Value {
    json!({
        "spec": {"clusterManager": {"name": "manager"}},
        "status": {"accessProviders": [{"name": provider, "cluster": cluster}]},
    })
}

/// Where `server` is, with these extensions.
pub(crate) fn cluster_of(server: &ApiServer, extensions: &[(&str, Value)]) -> Value {
    let extension = |(name, value): &(&str, Value)| json!({"name": name, "extension": value});
    json!({
        "server": server.url(),
        "certificate-authority-data": STANDARD.encode(server.ca_pem()),
        "extensions": extensions.iter().map(extension).collect::<Vec<_>>(),
    })
}

/// The provider `cloud`, which takes variables from profiles.
fn cloud(plugin: &FakePlugin) -> Value {
    json!([{
        "name": "cloud",
        "execConfig": plugin.exec_stanza(),
        "profileSourcedEnvVarsPolicy": "AppendIfNotExists",
        "profileEnv": ["CLUSTER"],
    }])
}

/// The extension with which a profile sets `CLUSTER=NAME` for its plugin.
fn cluster_variable(name: &str) -> [(&'static str, Value); 1] {
    [(ENVS, json!({"CLUSTER": name}))]
}

/// Waits until the broker knows the fleet to be as `is_so` wants it; by the names of profiles.
pub(crate) fn until(broker: &Broker, is_so: impl Fn(&BTreeMap<String, ClusterState>) -> bool) {
    until_hub(broker, |hub, known| hub.synced && is_so(known));
}

/// The same, also while the hub is not available.
pub(crate) fn until_hub(broker: &Broker, is_so: impl Fn(&HubState, &BTreeMap<String, ClusterState>) -> bool) {
    let follow = async {
        let channel = Endpoint::try_from(format!("unix://{}", broker.socket().display())).unwrap();
        let mut client = CredentialBrokerClient::new(channel.connect().await.unwrap());
        let watch = client.watch_clusters(WatchClustersRequest::default()).await.unwrap();
        let (mut watch, mut known) = (watch.into_inner(), BTreeMap::new());
        while let Some(message) = watch.message().await.unwrap() {
            for cluster in message.changed {
                known.insert(cluster.cluster_profile.clone().unwrap().name, cluster);
            }
            for gone in message.removed {
                known.remove(&gone.name);
            }
            if message.complete && is_so(&message.hub.unwrap(), &known) {
                return;
            }
        }
        panic!("the watch ended");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reached = runtime.block_on(async { tokio::time::timeout(AGES, follow).await });
    reached.expect("the fleet becomes so");
}

/// `kubectl` with a kubeconfig of the fleet, in which the shim goes by its bare name.
pub(crate) struct Walker {
    kubectl: Kubectl,
}

impl Walker {
    pub(crate) fn new() -> Self {
        Self { kubectl: Kubectl::new().env("PATH", path_with_shim()) }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.kubectl.dir().join("fleet")
    }

    pub(crate) fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Writes the kubeconfig as a user would.
    pub(crate) fn write(&self, broker: &Broker) -> String {
        let version = newest_api_version().trim_start_matches("client.authentication.k8s.io/");
        let args = ["kubeconfig", "fleet", "--api-version", version, "-o", "fleet"];
        stdout(&self.ask(&args, &broker.socket()))
    }

    /// `credbroker ARGS`, in the directory of the kubeconfig.
    fn ask(&self, args: &[&str], socket: &Path) -> Output {
        let mut command = Command::new(broker());
        command.args(args).arg("--socket").arg(socket).current_dir(self.kubectl.dir());
        command.env_clear().env("PATH", path_with_shim()).output().unwrap()
    }

    /// `kubectl --kubeconfig fleet ARGS`.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let args: Vec<_> = ["--kubeconfig", "fleet"].iter().chain(args).copied().collect();
        self.kubectl.run(Path::new("/dev/null"), &args)
    }

    /// `kubectl get pods` of the cluster `fleet/NAME`.
    pub(crate) fn pods(&self, name: &str) -> Output {
        self.run(&["--context", &format!("fleet/{name}"), "get", "pods"])
    }

    /// The same, of a cluster that has to let us in.
    #[track_caller]
    pub(crate) fn reach(&self, name: &str) {
        assert!(stdout(&self.pods(name)).contains("web-0"));
    }
}
