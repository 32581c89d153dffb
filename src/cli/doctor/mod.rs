//! `credbroker doctor`.

mod broker;
mod finding;
mod host;
mod users;
mod versions;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use self::finding::{exit_code, json, print};
use super::broker::{OutputFormat, SocketArg, TimeoutArg, write_json};
use credbroker_plugin::Environment;

/// Check everything that credbroker needs on this machine, and say what to do
///
/// Checks the socket and whether it is trusted, the versions of the broker and of credbroker-exec, the configuration, the
/// kubeconfig and whether the broker knows its users, the plugins, the last failures, the PATH of graphical programs, and the
/// clock. Runs no plugin and changes nothing. The exit code is that of the first error: 69 no broker, 75 timeout, 77
/// permission denied or a socket that is not trusted, 78 an invalid configuration or kubeconfig, 1 any other. Warnings do
/// not change it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoctorArgs {
    /// Check this kubeconfig only [default: all files of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Configuration of the broker [default: the file that `credbroker serve` uses]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    timeout: TimeoutArg,
}

const EXAMPLES: &str = "\
Examples:
  credbroker doctor
  credbroker doctor -o json | jq -r '.findings[] | select(.level == \"error\") | .text'";

pub(super) fn run(
    args: &DoctorArgs,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let (mut findings, running) = broker::check(&args.socket, args.timeout.limit, environment)?;
    findings.extend(versions::check(running.as_ref(), shim, environment));
    findings.extend(broker::configuration(running.as_ref(), args.config.as_deref(), environment));
    findings.extend(users::check(args.kubeconfig.as_deref(), running.as_ref(), environment));
    findings.extend(broker::plugins(running.as_ref(), args.config.as_deref(), environment));
    findings.extend(broker::failures(running.as_ref()));
    findings.push(host::graphical_path(args.config.as_deref(), environment));
    findings.push(host::clock(environment));
    match args.output {
        OutputFormat::Table => print(&findings, out)?,
        OutputFormat::Json => write_json(&json(&findings), out)?,
    }
    Ok(exit_code(&findings))
}
