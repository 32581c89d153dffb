//! `credbroker refresh`: plugin runs now.

use credbroker_client::{Client, Error};
use credbroker_exec::{Failure, Source, request_patiently};

use super::{
    broker::BrokerArgs,
    console::{Console, OutputFormat},
    credentials,
    get::noticed,
    screen::explained,
    selection::SelectionArgs,
};

/// Run plugins now
///
/// The broker runs the plugin for each selected credential that it holds. If it holds none for a provider or a cluster,
/// it gets one, with the variables of this process that choose an identity. Callers get the old credentials while the plugin runs, and afterwards if a run fails. The broker runs a few plugins
/// at a time, so refreshing many takes a while. If this command stops waiting, the runs continue; see their result with
/// `credbroker status`. Exits with 1 if a run failed.
#[derive(Debug, clap::Args)]
#[command(mut_arg("timeout", |arg| arg.help(TIMEOUT).default_value("1h").display_order(4)), after_help = "\
Examples:
  credbroker refresh gke
  credbroker refresh --cluster-profile fleet/paris
  credbroker refresh gke --timeout 30s")]
pub(super) struct RefreshArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    #[command(flatten)]
    broker: BrokerArgs,
}

const TIMEOUT: &str = "Longest time to wait for the runs, such as 500ms, 10s, 2m, or a number of seconds";

pub(super) fn run(args: &RefreshArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let (selector, environment) = (args.selection.selector(), console.environment);
    let refreshed = args.broker.try_ask(environment, async |client| {
        let what = format!("credbroker: waiting for the plugin runs of {} ...", args.selection);
        let admin = client.admin();
        explained(&what, admin.refresh(&selector)).await?;
        admin.credentials(&selector).await
    })?;
    let mut states = match refreshed {
        Err(failure @ Failure::Broker(Error::Timeout { .. })) => {
            let remedy = "see `credbroker status`, or wait longer with --timeout";
            writeln!(console.err, "credbroker: {failure}; the plugin runs continue: {remedy}")?;
            return Ok(failure.exit_code());
        }
        refreshed => refreshed?,
    };
    if let ([], Some(source)) = (states.as_slice(), args.selection.source.source()) {
        let first = first_run(args, &source, console);
        let held = async |client: Client| client.admin().credentials(&selector).await;
        states = args.broker.ask(environment, held)?;
        if states.is_empty() {
            first?;
        }
    }
    credentials::print(&states, args.output, console)?;
    Ok(u8::from(states.iter().any(|state| state.last_failure.is_some())))
}

/// Requests a credential that the broker does not hold.
fn first_run(args: &RefreshArgs, source: &Source, console: &mut Console<'_>) -> Result<(), Failure> {
    let (socket, timeout) = (args.broker.socket.locate(console.environment)?, Some(args.broker.timeout));
    noticed("credbroker refresh", source, None, console, |request, notice| {
        let is_terminal = notice.is_some();
        request_patiently(&socket, request, timeout, is_terminal, notice).map(drop)
    })
}
