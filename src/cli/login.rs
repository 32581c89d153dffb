//! `credbroker login`: a plugin run that the person at the terminal attends.

use std::{
    io::{self, IsTerminal as _, Write},
    time::Duration,
};

use credbroker_client::{ClusterProfileRef, Credential};
use credbroker_exec::{Failure, Source, log_in_patiently, request, with_notice};

use super::{
    broker::{SocketArg, note_ignored, timeout},
    get::summary,
};
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::Environment;

/// Log in: run a provider's plugin now, and see what it asks for
///
/// The plugin runs even if the broker holds a valid credential, which callers get meanwhile. This command shows what the
/// plugin writes, and the run may take the provider's interactiveTimeout. One login serves all callers. If a run is in
/// progress, this command joins it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(super) struct LoginArgs {
    /// Provider to log in to: a name in the broker's configuration, or a user of its kubeconfig
    #[arg(
        value_name = "NAME",
        required_unless_present = "cluster_profile",
        conflicts_with = "cluster_profile"
    )]
    provider: Option<String>,
    /// Digest of the kubeconfig that defines the provider; needed if several define its name, and listed in that error
    #[arg(long, value_name = "DIGEST", requires = "provider")]
    definition: Option<String>,
    /// Log in for this cluster, as `credbroker clusters` lists it
    #[arg(long, value_name = "NAMESPACE/NAME")]
    cluster_profile: Option<ClusterProfileRef>,
    #[command(flatten)]
    socket: SocketArg,
    /// Longest time to wait, such as 500ms, 10s, 2m, or a number of seconds [default: as long as the plugin may run]
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    timeout: Option<Duration>,
}

const USAGE: &str = "credbroker login [OPTIONS] <NAME|--cluster-profile <NAMESPACE/NAME>>";

const EXAMPLES: &str = "\
Examples:
  credbroker login azure
  credbroker login --cluster-profile fleet/paris";

pub(super) fn run(args: &LoginArgs, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let mut err = io::stderr();
    if !err.is_terminal() {
        writeln!(err, "credbroker login: standard error is not a terminal; run this command at a terminal")?;
        return Ok(2);
    }
    let (name, definition) = (args.provider.clone().unwrap_or_default(), args.definition.clone());
    let source = match &args.cluster_profile {
        Some(profile) => Source::ClusterProfile(profile.clone()),
        None => Source::Provider { name, definition },
    };
    match log_in(args, &source, environment, &mut err) {
        Ok(credential) => {
            out.write_all(summary(&source, &credential, SystemClock.now().wall).as_bytes())?;
            Ok(0)
        }
        Err(failure) => {
            writeln!(err, "credbroker login: {}", failure.line(Some(&source)))?;
            Ok(failure.exit_code())
        }
    }
}

fn log_in(
    args: &LoginArgs,
    source: &Source,
    environment: &Environment,
    err: &mut dyn Write,
) -> Result<Credential, Failure> {
    let socket = args.socket.locate(environment)?;
    let request = request(source.clone(), None, &(&environment.0).into(), None, true)?;
    let logged_in = with_notice("credbroker login", source, err, |notice| {
        log_in_patiently(&socket, &request, args.timeout, notice)
    });
    if logged_in.is_ok() {
        // The credential counts, not the note.
        drop(note_ignored(&socket, err));
    }
    logged_in
}
