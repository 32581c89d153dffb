//! The command line: the arguments of all commands. The modules have the commands, each alone or with those that it is like.

#![expect(clippy::doc_markdown, reason = "doc comments on arguments are help texts for a terminal")]

mod bridge;
mod broker;
mod clusters;
mod console;
mod context;
mod demo;
mod doctor;
mod explain;
mod files;
mod get;
mod healthcheck;
mod held;
mod kubeconfig;
mod overview;
mod pages;
mod programs;
mod proxy;
mod recorded;
mod screen;
mod serve;
mod setup;
mod shell;
mod status;
mod stop;
mod validate;

use std::{
    ffi::OsString,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::LazyLock,
};

use clap::{CommandFactory as _, Parser, Subcommand};

use self::console::{Console, fail};
use credbroker_plugin::Environment;

/// The version, and the commit of a release build.
static VERSION: LazyLock<String> =
    LazyLock::new(|| version(env!("CARGO_PKG_VERSION"), option_env!("CREDBROKER_COMMIT")));

fn version(version: &str, commit: Option<&str>) -> String {
    match commit.filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}

/// A local credential broker for Kubernetes
///
/// One daemon runs each exec credential plugin once and refreshes the credential before it expires. It serves the
/// credential to the other processes of its user, over gRPC on a Unix socket or through credbroker-exec, which is an exec
/// plugin itself.
#[derive(Debug, Parser)]
#[command(name = "credbroker", version = VERSION.as_str(), max_term_width = 100, after_help = "\
Set up your machine:
  credbroker setup
  credbroker doctor

Use your kubeconfig by hand:
  credbroker serve &
  credbroker kubeconfig wrap -o ~/.kube/broker
  KUBECONFIG=~/.kube/broker kubectl get pods

Use a fleet of ClusterProfiles:
  credbroker clusters
  credbroker kubeconfig fleet -o ~/.kube/fleet
  kubectl --kubeconfig ~/.kube/fleet --context NAMESPACE/NAME get pods

Exit codes: 0 success, 1 failure, 2 wrong usage, 69 no broker, 75 timeout, 77 permission denied,
78 invalid configuration.")]
pub struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

impl Cli {
    /// Parses the arguments of this process; prints help or an error and exits, as clap does.
    ///
    /// `serve` is parsed without the descriptions of the other commands, because an idle broker would keep their pages.
    pub fn of_this_process() -> Self {
        let serves = std::env::args_os().nth(1).is_some_and(|command| command == "serve");
        match serves.then(ServeAlone::try_parse) {
            Some(Ok(ServeAlone { command: ServeCommand::Serve(args) })) => {
                Self { command: CliCommand::Serve(args) }
            }
            Some(Err(_)) | None => Self::parse(),
        }
    }
}

#[derive(Debug, Parser)]
struct ServeAlone {
    #[command(subcommand)]
    command: ServeCommand,
}

#[derive(Debug, Subcommand)]
enum ServeCommand {
    Serve(serve::ServeArgs),
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Serve(serve::ServeArgs),
    Proxy(proxy::ProxyArgs),
    #[command(flatten)]
    Once(Box<OnceCommand>),
}

/// A command that is not the daemon.
#[derive(Debug, Subcommand)]
enum OnceCommand {
    Validate(validate::ValidateArgs),
    Get(get::GetArgs),
    Login(get::LoginArgs),
    Logout(held::LogoutArgs),
    Status(status::StatusArgs),
    Explain(explain::ExplainArgs),
    Healthcheck(healthcheck::HealthcheckArgs),
    Refresh(held::RefreshArgs),
    Evict(held::EvictArgs),
    Clusters(clusters::ClustersArgs),
    #[command(subcommand)]
    Kubeconfig(kubeconfig::KubeconfigCommand),
    Shell(shell::ShellArgs),
    Completions(pages::CompletionsArgs),
    Man(pages::ManArgs),
    Setup(setup::SetupArgs),
    Stop(stop::StopArgs),
    /// Restart the broker, for example after an upgrade
    ///
    /// Clients wait until the new broker has started. If systemd runs the broker, this command runs `systemctl --user
    /// restart credbroker.service`. Otherwise, the command needs `credbroker setup`, which records how the broker starts.
    Restart,
    Doctor(doctor::DoctorArgs),
    Bridge(bridge::BridgeArgs),
    Demo(demo::DemoArgs),
    /// Run as credbroker-exec
    #[command(hide = true, disable_help_flag = true)]
    Shim {
        /// Arguments of credbroker-exec
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    #[command(hide = true)]
    SamplePlugin(demo::SamplePluginArgs),
}

/// Answers the completion script of a shell; returns the exit code. `None`: this process was not started by one.
pub fn complete(arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match pages::answer(Cli::command, arguments) {
        Ok(is_answered) => is_answered.then_some(ExitCode::SUCCESS),
        Err(error) => Some(fail(&error, &mut io::stderr()).into()),
    }
}

/// Runs the command `cli`, which prints its output to `out`; returns the exit code.
pub fn run(cli: Cli, environment: &Environment, out: &mut dyn Write) -> ExitCode {
    let result = match cli.command {
        CliCommand::Serve(args) => serve::run(&args, environment),
        CliCommand::Proxy(args) => proxy::run(&args, environment),
        CliCommand::Once(command) => run_once(*command, environment, out),
    };
    match result {
        Ok(code) => code.into(),
        // The reader of the output, such as `head`, has closed the pipe.
        Err(error) if is_closed_pipe(&error) => ExitCode::FAILURE,
        Err(error) => fail(&error, &mut io::stderr()).into(),
    }
}

/// Not inlined, because the stack that all these commands need would stay resident below the daemon.
#[inline(never)]
fn run_once(command: OnceCommand, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let console = &mut Console { environment, shim: &shim(), out, err: &mut io::stderr() };
    match command {
        OnceCommand::Validate(args) => validate::run(&args, console),
        OnceCommand::Kubeconfig(command) => kubeconfig::run(&command, console),
        OnceCommand::Shell(args) => shell::run(&args, console),
        OnceCommand::Setup(args) => setup::run(&args, &pages::pages(Cli::command()), console),
        OnceCommand::Stop(args) => stop::stop(&args, console),
        OnceCommand::Restart => stop::restart(console),
        OnceCommand::Doctor(args) => doctor::run(&args, console),
        OnceCommand::Bridge(args) => bridge::run(&args, console),
        OnceCommand::Get(args) => get::run(&args, console),
        OnceCommand::Login(args) => get::log_in(&args, console),
        OnceCommand::Logout(args) => held::log_out(&args, console),
        OnceCommand::Status(args) => status::run(&args, console),
        OnceCommand::Explain(args) => explain::run(&args, console),
        OnceCommand::Healthcheck(args) => healthcheck::run(&args, console),
        OnceCommand::Refresh(args) => held::refresh(&args, console),
        OnceCommand::Evict(args) => held::evict(&args, console),
        OnceCommand::Clusters(args) => clusters::run(&args, console),
        OnceCommand::Completions(args) => pages::run(&args, console.out),
        OnceCommand::Man(args) => pages::write_pages(&args, Cli::command(), console.out),
        OnceCommand::Demo(args) => demo::run(&args, console),
        OnceCommand::SamplePlugin(args) => demo::run_sample(&args, console.out),
        OnceCommand::Shim { arguments } => {
            let mut edges = credbroker_exec::Edges::of_this_process();
            Ok(credbroker_exec::run(arguments.into_iter(), &mut edges))
        }
    }
}

/// The shim beside this program; without one this program, which has it as a subcommand.
fn shim() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_else(|_| "credbroker".into());
    let beside = this.with_file_name("credbroker-exec");
    if beside.is_file() { beside } else { this }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests;
