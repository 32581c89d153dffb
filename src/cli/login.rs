//! `credbroker login`: a plugin run that the person at the terminal attends.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use anyhow::Context as _;
use clap::ArgGroup;
use credbroker_client::Credential;
use credbroker_exec::{Failure, Source, log_in_patiently, request, with_notice};

use super::{
    broker::{SocketArg, note_ignored, timeout},
    console::Console,
    get::{failed, finish, summary},
    selection::SourceArgs,
};
use credbroker_observe::clock::{Clock as _, SystemClock};

/// Log in: run a provider's plugin now, and see what it asks for
///
/// The plugin runs even if the broker holds a valid credential, which callers get meanwhile. This command shows what the
/// plugin writes, and the run may take the provider's interactiveTimeout. One login serves all callers. If a run is in
/// progress, this command joins it.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("source").args(["provider", "cluster_profile"]).required(true), after_help = "\
Examples:
  credbroker login azure
  credbroker login --cluster-profile fleet/paris")]
#[command(mut_arg("provider", |arg| arg.help("Provider to log in to: a name in the broker's configuration, or a user of its kubeconfig")))]
#[command(mut_arg("cluster_profile", |arg| arg.help("Log in for this cluster, as `credbroker clusters` lists it")))]
pub(super) struct LoginArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    socket: SocketArg,
    /// Longest time to wait, such as 500ms, 10s, 2m, or a number of seconds [default: as long as the plugin may run]
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    timeout: Option<Duration>,
}

pub(super) fn run(args: &LoginArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    if !io::stderr().is_terminal() {
        let remedy = "standard error is not a terminal; run this command at a terminal";
        writeln!(console.err, "credbroker login: {remedy}")?;
        return Ok(2);
    }
    let source = args.source.source().context("no provider is named")?; // clap requires one
    let logged_in = log_in(args, &source, console).map_err(|failure| failed(&failure, &source));
    let text = logged_in.map(|credential| summary(&source, &credential, SystemClock.now().wall));
    Ok(finish("login", text, console)?)
}

fn log_in(args: &LoginArgs, source: &Source, console: &mut Console<'_>) -> Result<Credential, Failure> {
    let environment = console.environment;
    let socket = args.socket.locate(environment)?;
    let request = request(source.clone(), None, &(&environment.0).into(), None, true)?;
    let credential = with_notice("credbroker login", source, console.err, |notice| {
        log_in_patiently(&socket, &request, args.timeout, notice)
    })?;
    // The credential counts, not the note.
    drop(note_ignored(&socket, console.err));
    Ok(credential)
}
