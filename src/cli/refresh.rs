//! `credbroker refresh`: plugin runs now.

use std::{
    io::{self, IsTerminal as _, Write},
    time::Duration,
};

use credbroker_client::Error;
use credbroker_exec::{Failure, Notice, Source, request, request_patiently, with_notice};

use super::{
    broker::{OutputFormat, SocketArg, ask, fail, finish, timeout},
    credentials,
    progress::explained,
    screen::Screen,
    selection::SelectionArgs,
};
use credbroker_plugin::Environment;

/// Run plugins now
///
/// The broker runs the plugin for each selected credential that it holds. If it holds none for a provider or a cluster,
/// it gets one, with the variables of this process that choose an identity. Callers get the old credentials while the plugin runs, and afterwards if a run fails. The broker runs a few plugins
/// at a time, so refreshing many takes a while. If this command stops waiting, the runs continue; see their result with
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
    "credbroker refresh [OPTIONS] <NAME|--cluster-profile <NAMESPACE/NAME>|--key <KEY>|--all>";

const EXAMPLES: &str = "\
Examples:
  credbroker refresh gke
  credbroker refresh --cluster-profile fleet/paris
  credbroker refresh gke --timeout 30s";

pub(super) fn run(args: &RefreshArgs, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let (selector, screen) = (args.selection.selector(), Screen::of_stdout(environment));
    let mut refreshed = ask(&args.socket, args.timeout, environment, async |client| {
        let what = format!("credbroker: waiting for the plugin runs of {} ...", args.selection);
        let admin = client.admin();
        explained(&what, admin.refresh(&selector)).await?;
        admin.credentials(&selector).await
    })?;
    if let (Ok([]), Some(source)) = (refreshed.as_deref(), args.selection.source()) {
        let first = first_run(args, &source, environment);
        refreshed = ask(&args.socket, args.timeout, environment, async |client| {
            client.admin().credentials(&selector).await
        })?;
        if let (Ok([]), Err(failure)) = (refreshed.as_deref(), first) {
            return Ok(fail(&failure, &mut io::stderr())?);
        }
    }
    if let Err(failure @ Failure::Broker(Error::Timeout { .. })) = &refreshed {
        let remedy = "see `credbroker status`, or wait longer with --timeout";
        writeln!(io::stderr(), "credbroker: {failure}; the plugin runs continue: {remedy}")?;
        return Ok(failure.exit_code());
    }
    let failed =
        refreshed.as_ref().is_ok_and(|states| states.iter().any(|state| state.last_failure.is_some()));
    let code = finish(refreshed, out, |states, out| credentials::print(&states, (args.output, screen), out))?;
    Ok(if failed { 1 } else { code })
}

/// Requests a credential that the broker does not hold.
fn first_run(args: &RefreshArgs, source: &Source, environment: &Environment) -> Result<(), Failure> {
    let (socket, mut err) = (args.socket.locate(environment)?, io::stderr());
    let is_terminal = err.is_terminal();
    let request = request(source.clone(), None, &(&environment.0).into(), None, is_terminal)?;
    let get = |notice: Option<Notice<'_>>| {
        request_patiently(&socket, &request, Some(args.timeout), is_terminal, notice)
    };
    let got = if is_terminal {
        with_notice("credbroker refresh", source, &mut err, |notice| get(Some(notice)))
    } else {
        get(None)
    };
    got.map(drop)
}
