//! `credbroker evict`: credentials that the broker forgets.

use credbroker_client::Client;

use super::{broker::BrokerArgs, console::Console, screen::counted, selection::SelectionArgs};

/// Make the broker forget credentials, for example after a change of account
///
/// The broker overwrites the credentials in memory. The next request for one of them runs the plugin.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker evict gke
  credbroker evict --cluster-profile fleet/paris
  credbroker evict --all")]
pub(super) struct EvictArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) fn run(args: &EvictArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let selector = args.selection.selector();
    let evict = async |client: Client| client.admin().evict(&selector).await;
    let count = args.broker.ask(console.environment, evict)?;
    writeln!(console.out, "evicted {}", counted(count.into(), "credential"))?;
    Ok(0)
}
