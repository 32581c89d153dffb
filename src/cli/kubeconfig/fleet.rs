//! `credbroker kubeconfig fleet`: a kubeconfig with a context for each cluster of the fleet.

use std::path::PathBuf;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::builder::{PossibleValue, PossibleValuesParser};
use credbroker_client::{Cluster, ClusterList, ClusterState};

use super::{
    shared,
    wrap::{entry, string},
};
use crate::cli::{
    clusters::{ClusterQuery, problem, warn},
    console::Console,
};
use credbroker_config::kubeconfig::{Shim, extension, is_shim, yaml};
use credbroker_credential::{
    document::{Node, Value},
    text::one_line,
};

/// Write a kubeconfig with a context for every cluster of the fleet
///
/// Lists the ClusterProfiles that a running broker reads. Each ClusterProfile becomes a context
/// NAMESPACE/NAME. The context's user requests the cluster's credential from the broker, so every
/// client can use the context:
///
///   credbroker kubeconfig fleet -o ~/.kube/fleet
///   kubectl --kubeconfig ~/.kube/fleet --context fleet/paris get pods
///   for c in $(kubectl --kubeconfig ~/.kube/fleet config get-contexts -o name); do
///     kubectl --kubeconfig ~/.kube/fleet --context "$c" get nodes
///   done
///
/// The kubeconfig has no current context, so no command reaches a cluster by accident. Select a
/// context with --context. The kubeconfig contains no secrets. The command leaves out clusters
/// without a provider, and names them on stderr. Run the command again after clusters are added,
/// removed or moved: the broker refuses requests for a server that is not the cluster's. If you set
/// --socket or --broker-uid, the shims use them too.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct FleetArgs {
    /// Write to this file with mode 0600. - is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite a file that this command did not write, or that contains other users
    #[arg(long)]
    force: bool,
    /// Version of the exec protocol (client.authentication.k8s.io) that the clients support
    #[arg(long, value_parser = versions(), default_value = "v1")]
    api_version: String,
    /// Write the name of the shim instead of its path, for clients that have credbroker-exec in their PATH
    #[arg(long)]
    bare: bool,
    #[command(flatten)]
    query: ClusterQuery,
}

pub(super) fn run(args: &FleetArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let shim = shared::shim(console, &args.query.broker.socket, args.bare)?;
    let fleet = args.query.ask(console.environment)?;
    warn(&fleet, console.err)?;
    for state in fleet.clusters.iter().filter(|state| endpoint(state).is_none()) {
        let why = problem(state).unwrap_or_else(|| "its ClusterProfile names no server".to_owned());
        writeln!(console.err, "credbroker: skipped {}: {why}", one_line(&state.profile.to_string()))?;
    }
    let Some(first) = reachable(&fleet).next().map(|(name, _)| one_line(&name)) else {
        let why = "no cluster can be written to a kubeconfig; see `credbroker clusters`";
        if !fleet.clusters.is_empty() {
            writeln!(console.err, "credbroker: {why}")?;
        }
        return Ok(1);
    };
    let text = yaml(&kubeconfig(&fleet, &shim, &args.api_version))?;
    let contexts = match reachable(&fleet).count() {
        1 => "1 context, which is not current".to_owned(),
        count => format!("{count} contexts, none of them current"),
    };
    let Some(path) = shared::output(args.output.as_deref()) else {
        console.out.write_all(text.as_bytes())?;
        console.out.flush()?;
        writeln!(console.err, "credbroker: {contexts}: use `kubectl --context {first} …`")?;
        return Ok(0);
    };
    let (output, _) = shared::open(path, &[], "fleet", |found| args.force || found.is_some_and(is_ours))?;
    output.write_private(&text)?;
    output.say_if_link("written", console.out)?;
    let path = path.display();
    writeln!(console.out, "{path}: {contexts}")?;
    writeln!(console.out, "Use it with `kubectl --kubeconfig {path} --context {first} …`.")?;
    Ok(0)
}

const MARK: &str = "credbroker.io/fleet";
const CLUSTER_PROFILE: &str = "--cluster-profile";

pub(super) fn versions() -> PossibleValuesParser {
    PossibleValuesParser::new([
        PossibleValue::new("v1").help("kubectl 1.22 or newer, and all other current clients"),
        PossibleValue::new("v1beta1").help("kubectl older than 1.22"),
    ])
}

/// The kubeconfig: the same bytes for the same fleet.
fn kubeconfig(fleet: &ClusterList, shim: &Shim, version: &str) -> Node {
    let items = |key: &str, body: &dyn Fn(&str, &Cluster) -> Value| {
        let item = |(name, cluster): (String, &Cluster)| {
            let body = body(&name, cluster);
            map([("name", string(name)), (key, body)]).into()
        };
        Value::Sequence(reachable(fleet).map(item).collect())
    };
    let mark = map([("name", string(MARK)), ("extension", map([]))]);
    map([
        ("apiVersion", string("v1")),
        ("kind", string("Config")),
        ("clusters", items("cluster", &|_, cluster| cluster_map(cluster))),
        ("contexts", items("context", &|name, _| map([("cluster", string(name)), ("user", string(name))]))),
        ("users", items("user", &|name, cluster| map([("exec", exec(name, cluster, shim, version))]))),
        ("extensions", Value::Sequence(vec![mark.into()])),
    ])
    .into()
}

pub(super) fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Mapping(entries.into_iter().map(|(name, value)| entry(name, value)).collect())
}

/// Whether this command wrote the kubeconfig. That is, it has the mark, and no user but those that were written with it.
fn is_ours(kubeconfig: &Node) -> bool {
    let is_fleet = |user: &Node| {
        let exec = user.get("user").and_then(|user| user.get("exec"));
        let args = exec.and_then(|exec| exec.get("args")?.as_sequence()).unwrap_or_default();
        exec.is_some_and(is_shim) && args.iter().any(|arg| arg.as_str() == Some(CLUSTER_PROFILE))
    };
    let users = kubeconfig.get("users").and_then(Node::as_sequence).unwrap_or_default();
    extension(kubeconfig, MARK).is_some() && users.iter().all(is_fleet)
}

fn reachable(fleet: &ClusterList) -> impl Iterator<Item = (String, &Cluster)> {
    fleet.clusters.iter().filter_map(|state| Some((state.profile.to_string(), endpoint(state)?)))
}

pub(super) fn endpoint(state: &ClusterState) -> Option<&Cluster> {
    state.cluster.as_ref().filter(|cluster| !cluster.server.is_empty())
}

/// The fields of the cluster that are set, without the extension for the plugin: the broker knows it from the
/// ClusterProfile, and refuses another one.
fn cluster_map(cluster: &Cluster) -> Value {
    let authorities = cluster.certificate_authority_data.as_ref().map(|data| STANDARD.encode(data));
    let text = |value: Option<&str>| value.map(string);
    let flag = |value: bool| value.then_some(Value::Bool(true));
    let fields = [
        ("server", text(Some(&cluster.server))),
        ("certificate-authority-data", text(authorities.as_deref())),
        ("tls-server-name", text(cluster.tls_server_name.as_deref())),
        ("insecure-skip-tls-verify", flag(cluster.insecure_skip_tls_verify)),
        ("proxy-url", text(cluster.proxy_url.as_deref())),
        ("disable-compression", flag(cluster.disable_compression)),
    ];
    Value::Mapping(fields.into_iter().filter_map(|(name, value)| Some(entry(name, value?))).collect())
}

/// What a client prints if it does not find the shim.
const INSTALL_HINT: &str = "The user of this kubeconfig requests its credential from credbroker, through credbroker-exec. \
                            Install credbroker, or if it is installed at another place now, write the kubeconfig again.";

/// The `exec` stanza. It names the server for clients that set no `KUBERNETES_EXEC_INFO` (JavaScript, Java), so that the
/// broker can refuse them too if the cluster has moved.
fn exec(name: &str, cluster: &Cluster, shim: &Shim, version: &str) -> Value {
    let own = [CLUSTER_PROFILE, name, "--server", &cluster.server, "--api-version", version];
    let flags = shim.flags.iter().flat_map(|(flag, value)| [flag.as_str(), value]);
    let args = shim.is_subcommand.then_some("shim").into_iter().chain(own).chain(flags);
    map([
        ("apiVersion", string(format!("client.authentication.k8s.io/{version}"))),
        ("command", string(shim.command.as_str())),
        ("args", Value::Sequence(args.map(|arg| string(arg).into()).collect())),
        ("provideClusterInfo", Value::Bool(true)),
        ("interactiveMode", string("Never")),
        ("installHint", string(INSTALL_HINT)),
    ])
}

#[cfg(test)]
mod tests;
