//! `credbroker clusters`: the clusters of the fleet, and whether the broker has credentials for them.

mod json;

use std::io::{self, Write};

use credbroker_client::{ClusterState, Readiness};

use super::{
    broker::{OutputFormat, fail, write_json},
    fleet::{ClusterList, ClusterQuery},
    table,
};
use credbroker_credential::text::one_line;
use credbroker_plugin::Environment;
pub(super) use json::{failure, reason};

/// List the clusters of the fleet, which are the ClusterProfiles that a running broker reads
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
/// The lines below the table say why a cluster is failed or unusable. The table shortens long values;
/// -o json does not. Neither shows secrets.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, after_help = EXAMPLES)]
pub(super) struct ClustersArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    #[command(flatten)]
    query: ClusterQuery,
}

const EXAMPLES: &str = "\
Examples:
  credbroker clusters
  credbroker clusters --namespace fleet
  credbroker clusters -o json | jq -r '.clusters[] | .failure.message // empty'";

/// Prints the clusters on `out`, and on `err` what may be missing from the list.
pub(super) fn run(
    args: &ClustersArgs,
    environment: &Environment,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let list = match args.query.ask(environment)? {
        Ok(list) => list,
        Err(failure) => return Ok(fail(&failure, err)?),
    };
    print(&list, args.output, out)?;
    list.warn(err)?;
    Ok(0)
}

fn print(list: &ClusterList, format: OutputFormat, out: &mut dyn Write) -> io::Result<()> {
    match format {
        OutputFormat::Table => write!(out, "{}", as_table(list))?,
        OutputFormat::Json => write_json(&json::document(list), out)?,
    }
    out.flush()
}

/// The most characters of a cell; the middle of a longer value is replaced.
const WIDE: usize = 44;
const NARROW: usize = 20;

fn as_table(list: &ClusterList) -> String {
    let head = ["CLUSTER", "PROVIDER", "SERVER", "STATE", "VERSION", "MANAGER"];
    let rows = list.clusters.iter().map(|(name, cluster)| {
        let server = cluster.cluster.as_ref().map(|cluster| cluster.server.as_str());
        [
            one_line(&name.to_string()), // not shortened: other commands take it as an argument
            cell(cluster.provider.as_deref().unwrap_or_default(), NARROW),
            cell(server.unwrap_or_default(), WIDE),
            state(cluster),
            cell(&cluster.kubernetes_version, NARROW),
            cell(&cluster.cluster_manager, NARROW),
        ]
    });
    let mut text = table::text(head, rows);
    let failed = list.clusters.iter().filter_map(|(name, cluster)| Some((name, failure_message(cluster)?)));
    let below = failed
        .map(|(name, message)| format!("{}: {}\n", one_line(&name.to_string()), one_line(message)))
        .collect::<Vec<_>>();
    if !below.is_empty() {
        text.push('\n');
        text.push_str(&below.concat());
    }
    text
}

/// Why a cluster has no credential.
fn failure_message(cluster: &ClusterState) -> Option<&str> {
    let bad = matches!(cluster.readiness, Readiness::Failed | Readiness::Unusable);
    let failure = cluster.failure.as_ref().filter(|failure| bad && !failure.message.is_empty());
    failure.map(|failure| failure.message.as_str())
}

fn state(cluster: &ClusterState) -> String {
    let state = name(cluster.readiness);
    match &cluster.failure {
        None => state.to_owned(),
        Some(failure) => format!("{state} ({})", reason(failure)),
    }
}

/// `-` for an empty text, so that every line has as many words as the head.
fn cell(text: &str, most: usize) -> String {
    let text = one_line(text);
    if text.is_empty() { "-".to_owned() } else { table::shortened(&text, most) }
}

/// Its name in the table and in JSON.
fn name(readiness: Readiness) -> &'static str {
    match readiness {
        Readiness::Ready => "ready",
        Readiness::Idle => "idle",
        Readiness::Fetching => "fetching",
        Readiness::Failed => "failed",
        Readiness::Unusable => "unusable",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests;
