//! `credbroker refresh`: plugin runs now.

use std::{
    io::{self, Write},
    time::Duration,
};

use credbroker_client::Error;
use credbroker_exec::Failure;

use super::{
    broker::{OutputFormat, SocketArg, ask, finish, timeout},
    credentials,
    progress::explained,
    selection::SelectionArgs,
};
use crate::plugin::Environment;

/// Run plugins now, for credentials that the broker holds
///
/// Callers get the old credentials while the plugin runs, and afterwards if a run fails. The broker runs a few plugins
/// at a time, so many credentials take long. If this command stops waiting, the runs continue; see their result with
/// `credbroker status`. Exits with 1 if a run failed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(super) struct RefreshArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    /// Longest time to wait for the runs, such as 500ms, 10s, 2m, or a number of seconds
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = timeout)]
    timeout: Duration,
    #[command(flatten)]
    socket: SocketArg,
}

const USAGE: &str =
    "credbroker refresh [OPTIONS] <PROVIDER|--cluster-profile <NAMESPACE/NAME>|--key <KEY>|--all>";

const EXAMPLES: &str = "\
Examples:
  credbroker refresh gke
  credbroker refresh --cluster-profile fleet/paris
  credbroker refresh gke --timeout 30s";

pub(super) fn run(args: &RefreshArgs, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let refreshed = ask(&args.socket, args.timeout, environment, async |client| {
        let what = format!("credbroker: waiting for the plugin runs of {} ...", args.selection);
        let (admin, selector) = (client.admin(), args.selection.selector());
        explained(&what, admin.refresh(&selector)).await?;
        admin.credentials(&selector).await
    })?;
    if let Err(failure @ Failure::Broker(Error::Timeout { .. })) = &refreshed {
        let remedy = "see `credbroker status`, or wait longer with --timeout";
        writeln!(io::stderr(), "credbroker: {failure}; the plugin runs continue: {remedy}")?;
        return Ok(failure.exit_code());
    }
    let failed =
        refreshed.as_ref().is_ok_and(|states| states.iter().any(|state| state.last_failure.is_some()));
    let code = finish(refreshed, out, |states, out| credentials::print(&states, args.output, out))?;
    Ok(if failed { 1 } else { code })
}
