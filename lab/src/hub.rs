//! The hub: a test API server with 2,000 ClusterProfiles, and the changes that are made to them.

use std::{
    iter::repeat_n,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_test_support::{Accepts, ApiServer, Collection, Kubeconfig};
use serde_json::{Value, json};

/// Number of ClusterProfiles.
pub const PROFILES: usize = 2_000;
/// Their namespace.
pub const NAMESPACE: &str = "fleet";
/// A namespace without any.
pub const EMPTY: &str = "nowhere";
/// Who issues the credentials of the profiles.
pub const PROVIDER: &str = "cloud";
/// The annotation with the number of the last change of an object.
pub const STAMP: &str = "bench.credbroker.io/change";

const CA_BYTES: usize = 2_048;

/// What is changed of a profile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// Its server.
    Endpoint,
    /// Alternates between a property, which is sent to clients, and a label, which is not.
    Shown,
}

/// One profile as the hub has it: the numbers of the changes that its parts are at.
#[derive(Clone, Copy, Debug, Default)]
struct Profile {
    server: u64,
    property: u64,
    label: u64,
}

/// It, and a kubeconfig for it.
#[derive(Debug)]
pub struct Hub {
    /// The API server.
    pub server: ApiServer,
    /// Where a kubeconfig for it is.
    pub kubeconfig: PathBuf,
    authorities: String,
    profiles: Vec<Profile>,
    changes: u64,
}

impl Hub {
    /// With all profiles, and a kubeconfig in `directory`.
    pub fn filled(directory: &Path) -> Self {
        let server = ApiServer::start(Accepts::Tokens);
        server.accept_token("hub");
        let kubeconfig = directory.join("hub.kubeconfig");
        let file = Kubeconfig::new().cluster_of(&server, "hub").user("hub", &json!({"token": "hub"}));
        file.context("hub", "hub", "hub").write(&kubeconfig);
        let pem = server.ca_pem();
        let pem: String = repeat_n(pem.as_str(), CA_BYTES.div_ceil(pem.len())).collect();
        let (authorities, profiles) = (STANDARD.encode(&pem), vec![Profile::default(); PROFILES]);
        let hub = Self { server, kubeconfig, authorities, profiles, changes: 0 };
        let all = (0..PROFILES).map(|index| (NAMESPACE.to_owned(), name(index), hub.body(index)));
        hub.server.apply_cluster_profiles(all);
        hub
    }

    /// Changes a profile, and returns the number of the change if it can be seen through a broker.
    pub fn change(&mut self, index: usize, what: Change) -> Option<u64> {
        self.changes += 1;
        let number = self.changes;
        let profile = self.profiles.get_mut(index)?;
        let part = match what {
            Change::Endpoint => &mut profile.server,
            Change::Shown if number.is_multiple_of(2) => &mut profile.property,
            Change::Shown => &mut profile.label,
        };
        *part = number;
        let shown = profile.label != number;
        shown.then_some(number)
    }

    /// Puts the profile into the API server as it is now.
    pub fn write(&self, index: usize) {
        self.server.apply_cluster_profile(NAMESPACE, &name(index), self.body(index));
    }

    /// Server and property of each profile as the API server has them.
    pub fn stored(&self, index: usize) -> Option<(String, String)> {
        let object = self.server.object(Collection::ClusterProfiles, NAMESPACE, &name(index))?;
        let text = |at| Some(object.pointer(at)?.as_str()?.to_owned());
        Some((text("/status/accessProviders/0/cluster/server")?, text("/status/properties/0/value")?))
    }

    /// Bytes of one object on the wire.
    pub fn object_size(&self) -> usize {
        let object = self.server.object(Collection::ClusterProfiles, NAMESPACE, &name(0));
        object.map_or(0, |object| object.to_string().len())
    }

    fn body(&self, index: usize) -> Value {
        let at = self.profiles.get(index).copied().unwrap_or_default();
        let name = name(index);
        let property = |name: &str, value: String| json!({"name": name, "value": value});
        let environment = json!({
            "name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs",
            "extension": {"CLUSTER_ID": format!("projects/fleet/locations/europe-north1/clusters/{name}")},
        });
        let cluster = json!({
            "server": format!("https://{name}-{}.fleet.example:6443", at.server),
            "certificate-authority-data": self.authorities,
            "extensions": [environment],
        });
        json!({
            "metadata": {
                "labels": {"tier": "production", "label": at.label.to_string()},
                "annotations": {STAMP: at.server.max(at.property).max(at.label).to_string()},
            },
            "spec": {"clusterManager": {"name": "fleet-manager"}, "displayName": format!("Cluster {index}")},
            "status": {
                "version": {"kubernetes": "v1.35.0"},
                "properties": [
                    property("revision", at.property.to_string()),
                    property("location", "europe-north1".to_owned()),
                    property("cluster.clusterset.k8s.io", name),
                    property("clusterset.k8s.io", "production".to_owned()),
                    property("nodes", (index % 300).to_string()),
                ],
                "accessProviders": [{"name": PROVIDER, "cluster": cluster}],
            },
        })
    }
}

/// The name of a profile.
pub fn name(index: usize) -> String {
    format!("cluster-{index:04}")
}

/// The number in the server's name.
pub fn number_of(server: &str) -> u64 {
    let host = server.split('.').next().unwrap_or_default();
    host.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
