//! `credbroker evict`: credentials that the broker forgets.

use std::io::Write;

use super::broker::{BrokerArgs, SelectionArgs};
use credbroker_plugin::Environment;

/// Make the broker forget credentials, for example after a change of account
///
/// The broker overwrites the credentials in memory. The next request for one of them runs the plugin.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(super) struct EvictArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    broker: BrokerArgs,
}

const USAGE: &str = "credbroker evict [OPTIONS] <NAME|--cluster-profile <NAMESPACE/NAME>|--key <KEY>|--all>";

const EXAMPLES: &str = "\
Examples:
  credbroker evict gke
  credbroker evict --cluster-profile fleet/paris
  credbroker evict --all";

pub(super) fn run(args: &EvictArgs, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let selector = args.selection.selector();
    let count = args.broker.ask(environment, async |client| client.admin().evict(&selector).await)?;
    let credentials = if count == 1 { "credential" } else { "credentials" };
    writeln!(out, "evicted {count} {credentials}")?;
    Ok(0)
}
