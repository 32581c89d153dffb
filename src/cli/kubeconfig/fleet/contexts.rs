//! The content of a fleet's kubeconfig.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_client::Cluster;

use super::super::{
    mark,
    merge::{Entries, entry, string},
    shim::Shim,
};
use crate::cli::clusters::ClusterList;
use credbroker_config::kubeconfig::{extension, is_shim};
use credbroker_credential::document::{Node, Value};

/// The mark of a file that this command writes.
const MARK: &str = "credbroker.io/fleet";
/// The flag of the shim that the users of such a file have.
const CLUSTER_PROFILE: &str = "--cluster-profile";

/// The version of the exec protocol that the kubeconfig's clients support.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum ExecVersion {
    /// kubectl 1.22 or newer, and all other current clients
    #[default]
    V1,
    /// kubectl older than 1.22
    V1beta1,
}

impl ExecVersion {
    fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }
}

/// The kubeconfig: the same bytes for the same fleet.
pub(super) fn kubeconfig(fleet: &ClusterList, shim: &Shim, version: ExecVersion) -> Node {
    let items = |body: &dyn Fn(&str, &Cluster) -> (&'static str, Entries)| {
        let items = reachable(fleet).map(|(name, cluster)| {
            let (key, body) = body(&name, cluster);
            Value::Mapping(vec![entry("name", string(name)), entry(key, Value::Mapping(body))]).into()
        });
        Value::Sequence(items.collect())
    };
    Value::Mapping(vec![
        entry("apiVersion", string("v1")),
        entry("kind", string("Config")),
        entry("clusters", items(&|_, cluster| ("cluster", cluster_entries(cluster)))),
        entry(
            "contexts",
            items(&|name, _| ("context", vec![entry("cluster", string(name)), entry("user", string(name))])),
        ),
        entry(
            "users",
            items(&|name, cluster| {
                ("user", vec![entry("exec", Value::Mapping(exec(name, cluster, shim, version)))])
            }),
        ),
        entry("extensions", mark::list(MARK, Value::Mapping(Vec::new()))),
    ])
    .into()
}

/// Whether this command wrote `root`. That is, it has the mark, and no user but those that were written with it.
pub(super) fn is_ours(root: &Node) -> bool {
    let is_fleet = |user: &Node| {
        let exec = user.get("user").and_then(|user| user.get("exec"));
        let args = exec.and_then(|exec| exec.get("args")?.as_sequence()).unwrap_or_default();
        exec.is_some_and(is_shim) && args.iter().any(|arg| arg.as_str() == Some(CLUSTER_PROFILE))
    };
    let users = root.get("users").and_then(Node::as_sequence).unwrap_or_default();
    extension(root, MARK).is_some() && users.iter().all(is_fleet)
}

/// Each cluster that has an endpoint, by the name of its context.
pub(super) fn reachable(fleet: &ClusterList) -> impl Iterator<Item = (String, &Cluster)> {
    fleet
        .clusters
        .iter()
        .filter_map(|(name, state)| Some((name.to_string(), endpoint(state.cluster.as_ref())?)))
}

/// The cluster, if its server is known.
pub(super) fn endpoint(cluster: Option<&Cluster>) -> Option<&Cluster> {
    cluster.filter(|cluster| !cluster.server.is_empty())
}

/// The fields of the cluster that are set, without the extension for the plugin: the broker knows it from the
/// ClusterProfile, and refuses another one.
fn cluster_entries(cluster: &Cluster) -> Entries {
    let text = |name, value: Option<&str>| value.map(|value| entry(name, string(value)));
    let authorities = cluster.certificate_authority_data.as_ref().map(|data| STANDARD.encode(data));
    let flag = |name, value: bool| value.then(|| entry(name, Value::Bool(true)));
    [
        text("server", Some(&cluster.server).filter(|server| !server.is_empty()).map(String::as_str)),
        text("certificate-authority-data", authorities.as_deref()),
        text("tls-server-name", cluster.tls_server_name.as_deref()),
        flag("insecure-skip-tls-verify", cluster.insecure_skip_tls_verify),
        text("proxy-url", cluster.proxy_url.as_deref()),
        flag("disable-compression", cluster.disable_compression),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The `exec` stanza. It names the server for clients that set no `KUBERNETES_EXEC_INFO` (JavaScript, Java), so that the
/// broker can refuse them too if the cluster has moved.
fn exec(name: &str, cluster: &Cluster, shim: &Shim, version: ExecVersion) -> Entries {
    let version = version.name();
    let long = entry("apiVersion", string(format!("client.authentication.k8s.io/{version}")));
    [long]
        .into_iter()
        .chain(shim.stanza(&[CLUSTER_PROFILE, name, "--server", &cluster.server], version, false))
        .collect()
}
