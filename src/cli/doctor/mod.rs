//! `credbroker doctor`.

mod checks;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use self::checks::{exit_code, findings_json, print};
use super::broker::{BrokerArgs, OutputFormat, write_json};
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
    broker: BrokerArgs,
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
    let (mut findings, running) = checks::broker(&args.broker, environment)?;
    let (running, config) = (running.as_ref(), args.config.as_deref());
    findings.extend(checks::versions(running, shim, environment));
    findings.extend(checks::configuration(running, config, environment));
    findings.extend(checks::kubeconfig(args.kubeconfig.as_deref(), running, environment));
    findings.extend(checks::plugins(running, config, environment));
    findings.extend(checks::failures(running));
    findings.push(checks::graphical_path(config, environment));
    findings.push(checks::clock(environment));
    match args.output {
        OutputFormat::Table => print(&findings, out)?,
        OutputFormat::Json => write_json(&findings_json(&findings), out)?,
    }
    Ok(exit_code(&findings))
}
