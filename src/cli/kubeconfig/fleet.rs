//! `credbroker kubeconfig fleet`: a kubeconfig with a context for each cluster of the fleet.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_client::Cluster;

use super::{
    merge::{Entries, entry, string},
    output::Output,
    shim::{self, BareArg},
};
use crate::cli::clusters::{ClusterList, ClusterQuery, problem};
use credbroker_config as config;
use credbroker_config::kubeconfig::{Mode, Shim, extension, is_shim, yaml};
use credbroker_credential::{
    document::{Node, Value},
    text::one_line,
};
use credbroker_plugin::Environment;

/// Write a kubeconfig with a context for every cluster of the fleet
///
/// Asks a running broker for the ClusterProfiles that it reads. Each becomes a context NAMESPACE/NAME,
/// whose user requests the cluster's credential from the broker, so that every client can use it:
///
///   credbroker kubeconfig fleet -o ~/.kube/fleet
///   kubectl --kubeconfig ~/.kube/fleet --context fleet/paris get pods
///   for c in $(kubectl --kubeconfig ~/.kube/fleet config get-contexts -o name); do
///     kubectl --kubeconfig ~/.kube/fleet --context "$c" get nodes
///   done
///
/// No context is current, so no command reaches a cluster by accident: name one with --context. The
/// kubeconfig contains no secrets. It leaves out clusters without a provider, and names them on stderr.
/// Write it again after clusters are added, removed or moved: the broker refuses requests for a server
/// that is not the cluster's. If --socket or --server-uid are set, the shims use them too.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct FleetArgs {
    /// Write to this file, with mode 0600. - is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite a file that this command did not write, or that has other users too
    #[arg(long)]
    force: bool,
    /// Version of the exec protocol (client.authentication.k8s.io) that the clients support
    #[arg(long, value_enum, default_value_t)]
    api_version: ExecVersion,
    #[command(flatten)]
    bare: BareArg,
    #[command(flatten)]
    query: ClusterQuery,
}

pub(super) fn run(
    args: &FleetArgs,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let shim = shim::find(environment, shim, &args.query.broker.socket, args.bare)?;
    let path = Output::named(args.output.as_deref());
    let fleet = args.query.ask(environment)?;
    fleet.warn(err)?;
    for (name, why) in skipped(&fleet) {
        writeln!(err, "credbroker: skipped {name}: {why}")?;
    }
    let Some(first) = reachable(&fleet).next().map(|(name, _)| name) else {
        if !fleet.clusters.is_empty() {
            writeln!(
                err,
                "credbroker: no cluster can be written to a kubeconfig; see `credbroker clusters`"
            )?;
        }
        return Ok(1);
    };
    let text = yaml(&kubeconfig(&fleet, &shim, args.api_version))?;
    let contexts = match reachable(&fleet).count() {
        1 => "1 context, which is not current".to_owned(),
        count => format!("{count} contexts, none of them current"),
    };
    let Some(path) = path else {
        out.write_all(text.as_bytes())?;
        out.flush()?;
        writeln!(err, "credbroker: {contexts}: use `kubectl --context {} …`", one_line(&first))?;
        return Ok(0);
    };
    let output = Output::open(path, &[], "fleet", || args.force || is_ours(path))?;
    if let Some(note) = output.write(&text)? {
        writeln!(out, "{note}")?;
    }
    let path = path.display();
    writeln!(out, "{path}: {contexts}")?;
    writeln!(out, "Use it with `kubectl --kubeconfig {path} --context {} …`.", one_line(&first))?;
    Ok(0)
}

/// Whether this command wrote the file at `path`, and all users in it.
fn is_ours(path: &Path) -> bool {
    let read = std::path::absolute(path).ok().map(|path| config::read_kubeconfig(&[path], Mode::Named));
    let Some(Ok(kubeconfig)) = read else { return false };
    kubeconfig.files().iter().all(|file| is_marked(&file.root))
}

/// The clusters that cannot be written, and why.
fn skipped(fleet: &ClusterList) -> impl Iterator<Item = (String, String)> {
    let others = fleet.clusters.iter().filter(|(_, state)| endpoint(state.cluster.as_ref()).is_none());
    others.map(|(name, state)| {
        let why = Some(problem(state)).filter(|why| !why.is_empty());
        (one_line(&name.to_string()), why.unwrap_or_else(|| "its ClusterProfile names no server".to_owned()))
    })
}

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
    let mark = vec![entry("name", string(MARK)), entry("extension", Value::Mapping(Vec::new()))];
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
        entry("extensions", Value::Sequence(vec![Value::Mapping(mark).into()])),
    ])
    .into()
}

/// Whether this command wrote `root`. That is, it has the mark, and no user but those that were written with it.
pub(super) fn is_marked(root: &Node) -> bool {
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
        .chain(shim::stanza(shim, &[CLUSTER_PROFILE, name, "--server", &cluster.server], version))
        .collect()
}

#[cfg(test)]
mod tests;
