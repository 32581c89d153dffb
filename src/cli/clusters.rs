//! `credbroker clusters`: the clusters of the fleet, and whether the broker has credentials for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use credbroker_client::{Client, ClusterList, ClusterState, ContextState, Failure, Readiness};
use serde_json::json;

use super::{
    broker::{BrokerArgs, name, reason},
    console::{Console, OutputFormat},
    screen::{shortened, unfitted},
};
use credbroker_credential::text::one_line;
use credbroker_plugin::Environment;

/// List the clusters of the fleet: the ClusterProfiles that a running broker reads
///
/// The table shows the provider that issues the credential of each cluster, the server, and the state
/// of the credential:
///
///   ready      the broker holds a valid credential
///   idle       there was no request yet; the first one runs the plugin
///   fetching   the plugin is running
///   failed     the last plugin run failed
///   unusable   the profile lists no provider of the broker's configuration, the profile is not
///              valid, or the plugin is not installed
///
/// The lines below the table explain why a cluster is failed or unusable. The table shortens long
/// values, but -o json does not. Neither output shows secrets.
#[derive(Debug, clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  credbroker clusters
  credbroker clusters --namespace fleet
  credbroker clusters --contexts
  credbroker clusters -o json | jq -r '.clusters[] | .failure.message // empty'"
)]
pub(super) struct ClustersArgs {
    /// List the contexts of the kubeconfigs that the broker reads, instead of ClusterProfiles
    #[arg(long, conflicts_with = "namespaces")]
    contexts: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    #[command(flatten)]
    query: ClusterQuery,
}

pub(super) fn run(args: &ClustersArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    if args.contexts {
        let ask = async |client: Client| client.contexts().await;
        let contexts = args.query.broker.start_and_ask(console.environment, ask)??;
        console.print(args.output, || of_contexts(&contexts), || json!({ "contexts": contexts }))?;
        return Ok(0);
    }
    let list = args.query.ask(console.environment)?;
    console.print(args.output, || as_table(&list), || json!(list))?;
    warn(&list, console.err)?;
    Ok(0)
}

/// The most characters of a cell; the middle of a longer value is replaced.
const WIDE: usize = 44;
const NARROW: usize = 20;

fn as_table(list: &ClusterList) -> String {
    let head = ["CLUSTER", "PROVIDER", "SERVER", "STATE", "VERSION", "MANAGER"];
    let profile = |cluster: &ClusterState| one_line(&cluster.profile.to_string());
    let rows = list.clusters.iter().map(|cluster| {
        let server = cluster.cluster.as_ref().map(|cluster| cluster.server.as_str());
        [
            profile(cluster), // not shortened: other commands take it as an argument
            cell(cluster.provider.as_deref().unwrap_or_default(), NARROW),
            cell(server.unwrap_or_default(), WIDE),
            state(cluster.readiness, cluster.failure.as_ref()),
            cell(&cluster.kubernetes_version, NARROW),
            cell(&cluster.cluster_manager, NARROW),
        ]
    });
    let mut text = unfitted(head, rows);
    let mut blank = "\n";
    for cluster in &list.clusters {
        let is_bad = matches!(cluster.readiness, Readiness::Failed | Readiness::Unusable);
        let failure = cluster.failure.as_ref().filter(|failure| is_bad && !failure.message.is_empty());
        if let Some(failure) = failure {
            text.extend([blank, &profile(cluster), ": ", &one_line(&failure.message), "\n"]);
            blank = "";
        }
    }
    text
}

/// With the digest, which distinguishes contexts of one name and which requests need.
fn of_contexts(contexts: &[ContextState]) -> String {
    let rows = contexts.iter().map(|context| {
        let server = context.cluster.as_ref().map(|cluster| cluster.server.as_str());
        [
            one_line(&context.name),
            cell(context.provider.as_deref().unwrap_or_default(), NARROW),
            cell(server.unwrap_or_default(), WIDE),
            state(context.readiness, context.failure.as_ref()),
            one_line(&context.digest),
        ]
    });
    let mut text = unfitted(["CONTEXT", "PROVIDER", "SERVER", "STATE", "DIGEST"], rows);
    let mut blank = "\n";
    for context in contexts {
        if let Some(failure) = context.failure.as_ref().filter(|failure| !failure.message.is_empty()) {
            text.extend([blank, &one_line(&context.name), ": ", &one_line(&failure.message), "\n"]);
            blank = "";
        }
    }
    text
}

fn state(readiness: Readiness, failure: Option<&Failure>) -> String {
    let state = name(readiness);
    failure.map_or_else(|| state.clone(), |failure| format!("{state} ({})", reason(failure)))
}

/// `-` for an empty text, so that every line has as many words as the head.
fn cell(text: &str, most: usize) -> String {
    let text = one_line(text);
    if text.is_empty() { "-".to_owned() } else { shortened(&text, most) }
}

/// The clusters to list, and the broker to ask.
#[derive(Debug, Default, clap::Args)]
pub(super) struct ClusterQuery {
    /// Only clusters of this namespace; can be repeated [default: all namespaces that the broker reads]
    #[arg(short, long = "namespace", value_name = "NAMESPACE")]
    pub(super) namespaces: Vec<String>,
    #[command(flatten)]
    pub(super) broker: BrokerArgs,
}

impl ClusterQuery {
    pub(super) fn ask(&self, environment: &Environment) -> anyhow::Result<ClusterList> {
        let mut namespaces: BTreeSet<Option<&str>> =
            self.namespaces.iter().map(|name| Some(name.as_str())).collect();
        if namespaces.is_empty() {
            namespaces.insert(None);
        }
        let list = self.broker.start_and_ask(environment, async |client: Client| {
            let mut list = ClusterList::default();
            for namespace in namespaces {
                let answer = client.clusters(namespace).await?;
                list.clusters.extend(answer.clusters);
                list.hub = answer.hub;
            }
            Ok(sorted(list))
        });
        Ok(list??)
    }
}

/// The fleet may change between two pages; if a cluster is in both, its later state counts.
pub(super) fn sorted(mut list: ClusterList) -> ClusterList {
    let clusters = list.clusters.into_iter().map(|cluster| (cluster.profile.clone(), cluster));
    list.clusters = clusters.collect::<BTreeMap<_, _>>().into_values().collect();
    list
}

/// Writes one line to `err` if `list` may be incomplete or out of date.
pub(super) fn warn(list: &ClusterList, err: &mut dyn Write) -> io::Result<()> {
    const EMPTY: &str = "the broker has no ClusterProfiles";
    let (doubt, if_read) = match (list.clusters.is_empty(), list.hub.as_ref().map(|hub| hub.synced)) {
        (true, None) => (EMPTY, Some(NOT_CONFIGURED)),
        (false, None) => return Ok(()),
        (true, Some(true)) => (EMPTY, Some(NONE_SELECTED)),
        (true, Some(false)) => (EMPTY, Some(NOT_READ)),
        (false, Some(true)) => ("this list may be out of date", None),
        (false, Some(false)) => ("clusters may be missing", Some(PARTLY_READ)),
    };
    let failure = list.hub.as_ref().and_then(|hub| hub.failure.as_ref());
    let caveat = match failure.filter(|failure| !failure.message.is_empty()) {
        Some(failure) => {
            let why = one_line(&failure.message);
            Some(format!("{doubt}, because the hub cannot be read: {why}"))
        }
        None => if_read.map(str::to_owned),
    };
    caveat.map_or(Ok(()), |caveat| writeln!(err, "credbroker: {caveat}"))
}

const NOT_READ: &str = "the broker has not read the ClusterProfiles yet; try again in a few seconds";
const PARTLY_READ: &str = "clusters may be missing, because the broker has not read all ClusterProfiles yet";
const NOT_CONFIGURED: &str = "the broker reads no ClusterProfiles; name the hub in its configuration: \
                              `clusterProfiles: {kubeconfig: FILE or InCluster, namespaces: [NAMESPACE]}`";

const NONE_SELECTED: &str = "the hub has no matching ClusterProfile; check --namespace, and `namespaces` and \
                             `labelSelector` of `clusterProfiles` in the broker's configuration";

/// Why a cluster cannot be used, if it cannot.
pub(super) fn problem(cluster: &ClusterState) -> Option<String> {
    let failure = cluster.failure.as_ref()?;
    let (message, reason) = (one_line(&failure.message), reason(failure));
    Some(if message.is_empty() { reason.to_owned() } else { format!("{message} ({reason})") })
}

#[cfg(test)]
pub(super) mod tests;
