//! `credbroker clusters`: the fleet, and which of it can be reached.

use std::io::{self, Write};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use credbroker_proto::v1::{Cluster, ClusterState, Failure, HubState, cluster_state::Readiness};
use serde_json::{Value, json};

use super::{
    broker::{Output, refused},
    fleet::{Fleet, Name, Question, one_line},
    table,
};
use crate::plugin::Environment;

/// List the clusters of the fleet: the ClusterProfiles that a running broker reads
///
/// Shows which of the broker's providers issues each one's credential, where the cluster is, and
/// whether there is a credential for it:
///
///   ready      a valid one is held
///   idle       nobody asked for it yet; the first who does runs the plugin
///   fetching   the plugin is running
///   failed     the plugin's last run gave none
///   unusable   no provider of the broker's config is in the profile, the profile is wrong, or the
///              plugin is not installed
///
/// Why a cluster is failed or unusable stands below the table. Long values are shortened in the
/// table and whole with `-o json`. There are no secrets in either.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// How to print them
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    question: Question,
}

/// Prints the fleet on `out`, and on `err` what may be missing from it.
pub(super) fn run(
    args: &Args,
    environment: &Environment,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let fleet = match args.question.ask(environment)? {
        Ok(fleet) => fleet,
        Err(failure) => return Ok(refused(&failure, err)?),
    };
    print(&fleet, args.output, out)?;
    fleet.warn(err)?;
    Ok(0)
}

fn print(fleet: &Fleet, output: Output, out: &mut dyn Write) -> io::Result<()> {
    match output {
        Output::Table => write!(out, "{}", as_table(fleet))?,
        Output::Json => writeln!(out, "{:#}", as_json(fleet))?,
    }
    out.flush()
}

/// Columns, for the widest of servers and managers: beyond it their middle is left out.
const WIDE: usize = 44;
const NARROW: usize = 20;

fn as_table(fleet: &Fleet) -> String {
    let head = ["CLUSTER", "PROVIDER", "SERVER", "STATE", "VERSION", "MANAGER"];
    let rows = fleet.clusters.iter().map(|(name, cluster)| {
        let server = cluster.cluster.as_ref().map(|cluster| cluster.server.as_str());
        [
            one_line(&name.to_string()), // whole: it is what the other commands take
            cell(cluster.provider(), NARROW),
            cell(server.unwrap_or_default(), WIDE),
            state(cluster),
            cell(&cluster.kubernetes_version, NARROW),
            cell(&cluster.cluster_manager, NARROW),
        ]
    });
    let mut text = table::text(head, &rows.collect::<Vec<_>>());
    let troubled = fleet.clusters.iter().filter_map(|(name, cluster)| Some((name, trouble(cluster)?)));
    let below = troubled
        .map(|(name, trouble)| format!("{}: {}\n", one_line(&name.to_string()), one_line(trouble)))
        .collect::<Vec<_>>();
    if !below.is_empty() {
        text.push('\n');
        text.push_str(&below.concat());
    }
    text
}

/// What is wrong with a cluster that has no credential.
fn trouble(cluster: &ClusterState) -> Option<&str> {
    let bad = matches!(cluster.readiness(), Readiness::Failed | Readiness::Unusable);
    let failure = cluster.failure.as_ref().filter(|failure| bad && !failure.message.is_empty());
    failure.map(|failure| failure.message.as_str())
}

fn state(cluster: &ClusterState) -> String {
    let state = name(cluster.readiness());
    match &cluster.failure {
        None => state.to_owned(),
        Some(failure) => format!("{state} ({})", failure.reason().name()),
    }
}

/// `-` for nothing, so that every line has as many words as the head.
fn cell(text: &str, most: usize) -> String {
    let text = one_line(text);
    if text.is_empty() { "-".to_owned() } else { table::shortened(&text, most) }
}

fn as_json(fleet: &Fleet) -> Value {
    json!({
        "clusters": fleet.clusters.iter().map(|(name, cluster)| one(name, cluster)).collect::<Vec<_>>(),
        "hub": fleet.hub.as_ref().map(|HubState { synced, failure, since_time }| json!({
            "synced": synced,
            "failure": failure.as_ref().map(self::failure),
            "sinceTime": since_time.map(|at| at.to_string()),
        })),
    })
}

fn one(at: &Name, cluster: &ClusterState) -> Value {
    let profile = at.profile();
    json!({
        "clusterProfile": {"namespace": profile.namespace, "name": profile.name},
        "displayName": cluster.display_name,
        "clusterManager": cluster.cluster_manager,
        "kubernetesVersion": cluster.kubernetes_version,
        "properties": cluster.properties.iter().map(|property| json!({
            "name": property.name,
            "value": property.value,
        })).collect::<Vec<_>>(),
        "provider": cluster.provider,
        "skippedProviders": cluster.skipped_providers.iter().map(|skipped| json!({
            "name": skipped.name,
            "reason": skipped.reason,
        })).collect::<Vec<_>>(),
        "cluster": cluster.cluster.as_ref().map(endpoint),
        "readiness": name(cluster.readiness()),
        "failure": cluster.failure.as_ref().map(failure),
    })
}

/// A failure, as every command prints it in JSON.
pub(super) fn failure(failure: &Failure) -> Value {
    json!({"reason": failure.reason().name(), "message": failure.message})
}

/// With the names that `spec.cluster` of an ExecCredential has.
fn endpoint(cluster: &Cluster) -> Value {
    json!({
        "server": cluster.server,
        "tlsServerName": cluster.tls_server_name,
        "insecureSkipTlsVerify": cluster.insecure_skip_tls_verify,
        "certificateAuthorityData": cluster.certificate_authority_data.as_ref().map(|data| STANDARD.encode(data)),
        "proxyUrl": cluster.proxy_url,
        "disableCompression": cluster.disable_compression,
        "config": cluster.config.as_ref().and_then(|config| serde_json::from_slice::<Value>(config).ok()),
    })
}

fn name(readiness: Readiness) -> &'static str {
    match readiness {
        Readiness::Unspecified => "unknown",
        Readiness::Ready => "ready",
        Readiness::Idle => "idle",
        Readiness::Fetching => "fetching",
        Readiness::Failed => "failed",
        Readiness::Unusable => "unusable",
    }
}

#[cfg(test)]
mod tests;
