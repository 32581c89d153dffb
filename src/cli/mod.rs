//! The command line: one file per subcommand.

#![expect(clippy::doc_markdown, reason = "doc comments on arguments are help texts, read on a terminal")]

mod broker;
mod clusters;
mod demo;
mod fleet;
mod get;
mod held;
mod kubeconfig;
mod progress;
mod serve;
mod table;
mod validate;

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use crate::plugin::Environment;

/// Exit code of a bad configuration (`EX_CONFIG`).
const EX_CONFIG: u8 = 78;

/// A local credential broker for Kubernetes
///
/// One daemon runs every exec credential plugin once, keeps the credential fresh, and hands it to every process that
/// may have it: over gRPC on a Unix socket, or by way of credbroker-exec, which is an exec plugin itself.
#[derive(Debug, Parser)]
#[command(name = "credbroker", version, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Use it with your kubeconfig:
  credbroker serve &
  credbroker kubeconfig wrap -o ~/.kube/broker
  KUBECONFIG=~/.kube/broker kubectl get pods

Or with a fleet of ClusterProfiles:
  credbroker clusters
  credbroker kubeconfig fleet -o ~/.kube/fleet
  kubectl --kubeconfig ~/.kube/fleet --context NAMESPACE/NAME get pods

Exit codes: 0 ok, 1 the broker answered with a failure, 2 usage, 69 no broker, 75 deadline passed,
77 denied, 78 bad configuration.";

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Validate(validate::Args),
    Get(get::Args),
    Status(held::StatusArgs),
    Refresh(held::RefreshArgs),
    Evict(held::EvictArgs),
    Clusters(clusters::Args),
    Kubeconfig(kubeconfig::Args),
    Demo(demo::Args),
    /// Be credbroker-exec
    #[command(hide = true, disable_help_flag = true)]
    Shim {
        /// As credbroker-exec takes them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    #[command(hide = true)]
    SamplePlugin(demo::SampleArgs),
}

/// Runs the command line `cli`; what it prints for programs and people goes to `out`.
pub fn run(cli: Cli, environment: &Environment, out: &mut dyn Write) -> ExitCode {
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args, environment),
        Command::Validate(args) => validate::run(&args, environment, out),
        Command::Kubeconfig(args) => {
            let this = std::env::current_exe().unwrap_or_else(|_| "credbroker".into());
            let beside = this.with_file_name("credbroker-exec");
            let shim = if beside.is_file() { beside } else { this };
            kubeconfig::run(&args, environment, &shim, out)
        }
        Command::Get(args) => get::run(&args, environment, out),
        Command::Status(args) => held::status(&args, environment, out),
        Command::Refresh(args) => held::refresh(&args, environment, out),
        Command::Evict(args) => held::evict(&args, environment, out),
        Command::Clusters(args) => clusters::run(&args, environment, out, &mut io::stderr()),
        Command::Demo(args) => demo::run(&args, environment, out),
        Command::Shim { arguments } => {
            let edges = credbroker_exec::Edges::of_this_process();
            Ok(credbroker_exec::run(arguments.into_iter(), edges))
        }
        Command::SamplePlugin(args) => demo::run_sample(&args, out),
    };
    match result {
        Ok(code) => code.into(),
        // Whoever read it has seen enough, such as `head`.
        Err(error) if is_closed_pipe(&error) => ExitCode::FAILURE,
        Err(error) => {
            // One line with every cause; where stderr is gone there is nobody to tell.
            let _unheard = writeln!(io::stderr(), "credbroker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
