//! `credbroker doctor`.

mod checks;
mod finding;

use std::path::PathBuf;

use self::checks::Checks;
use super::{
    broker::BrokerArgs,
    console::{Console, OutputFormat},
};

/// Check everything that credbroker needs on this machine, and say what to do
///
/// Checks the socket and whether it is trusted, the versions of the broker and of credbroker-exec, the configuration, the
/// kubeconfig and whether the broker knows its users, the plugins, the last failures, the PATH of graphical programs, and the
/// clock. Runs no plugin and changes nothing. The exit code is that of the first error: 69 no broker, 75 timeout, 77
/// permission denied or a socket that is not trusted, 78 an invalid configuration or kubeconfig, 1 any other. Warnings do
/// not change it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker doctor
  credbroker doctor -o json | jq -r '.findings[] | select(.level == \"error\") | .text'")]
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

pub(super) fn run(args: &DoctorArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let mut checks = Checks::of_broker(&args.broker, args.config.as_deref(), console.environment)?;
    checks.versions(console.shim);
    checks.configuration();
    checks.kubeconfig(args.kubeconfig.as_deref());
    checks.plugins();
    checks.failures();
    checks.graphical_path();
    checks.clock();
    let findings = checks.findings;
    console.print(args.output, || findings.text(), || findings.document())?;
    Ok(findings.exit_code())
}
