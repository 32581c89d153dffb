//! `credbroker healthcheck`: for probes of containers whose image has no shell.

use credbroker_client::{Client, ClusterProfileRef, Error, Readiness};

use super::{broker::BrokerArgs, console::Console};

/// Check whether the running broker is healthy
///
/// Exits with 0 if the broker is healthy, with 1 if it answers that it is not, and otherwise with a code that `credbroker
/// --help` lists, such as 69 if it does not answer. Without flags, the command checks only that the broker answers, for
/// liveness probes. Plugins, issuers and the hub do not affect the result.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker healthcheck
  credbroker healthcheck --ready
  credbroker healthcheck gke --timeout 1s
  credbroker healthcheck --cluster-profile fleet/paris")]
pub(super) struct HealthcheckArgs {
    /// Check that the broker and all of its providers are ready: each provider has a valid credential, or its plugin is
    /// installed and the last run did not fail
    #[arg(long)]
    ready: bool,
    /// Check that this provider is ready
    #[arg(value_name = "NAME", conflicts_with = "ready")]
    provider: Option<String>,
    /// Check that this cluster is ready: it has a valid credential, or the last run did not fail
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with_all = ["ready", "provider"])]
    cluster_profile: Option<ClusterProfileRef>,
    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) fn run(args: &HealthcheckArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let service = args.provider.as_deref().or(args.ready.then_some("ready"));
    let is_healthy = args.broker.ask(console.environment, async |client| match &args.cluster_profile {
        Some(profile) => is_ready(&client, profile).await,
        None => client.is_serving(service).await,
    })?;
    if is_healthy {
        writeln!(console.out, "ok")?;
        return Ok(0);
    }
    let command = if args.cluster_profile.is_some() { "clusters" } else { "status" };
    writeln!(console.out, "not ready; `credbroker {command}` has the reasons")?;
    Ok(1)
}

/// Whether the cluster can be used, as far as the broker knows. One that it does not know cannot.
async fn is_ready(client: &Client, profile: &ClusterProfileRef) -> Result<bool, Error> {
    let clusters = client.clusters(Some(&profile.namespace)).await?.clusters;
    let cluster = clusters.into_iter().find(|cluster| cluster.profile == *profile);
    Ok(cluster.is_some_and(|cluster| {
        matches!(cluster.readiness, Readiness::Ready | Readiness::Idle | Readiness::Fetching)
    }))
}
