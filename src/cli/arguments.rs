//! The arguments of all commands.

use std::{ffi::OsString, sync::LazyLock};

use clap::{Parser, Subcommand};

use super::{
    clusters, complete, demo, doctor, evict, explain, get, healthcheck, kubeconfig, login, logout, man,
    refresh, serve, setup, status, validate,
};

/// The version, and the commit of a release build.
static VERSION: LazyLock<String> =
    LazyLock::new(|| version(env!("CARGO_PKG_VERSION"), option_env!("CREDBROKER_COMMIT")));

pub(super) fn version(version: &str, commit: Option<&str>) -> String {
    match commit.filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}

/// A local credential broker for Kubernetes
///
/// One daemon runs each exec credential plugin once, renews the credential before it expires, and serves it to the other
/// processes of its user: over gRPC on a Unix socket, or through credbroker-exec, which is an exec plugin itself.
#[derive(Debug, Parser)]
#[command(name = "credbroker", version = VERSION.as_str(), max_term_width = 100, after_help = "\
For yourself:
  credbroker setup
  credbroker doctor

With your kubeconfig, by hand:
  credbroker serve &
  credbroker kubeconfig wrap -o ~/.kube/broker
  KUBECONFIG=~/.kube/broker kubectl get pods

With a fleet of ClusterProfiles:
  credbroker clusters
  credbroker kubeconfig fleet -o ~/.kube/fleet
  kubectl --kubeconfig ~/.kube/fleet --context NAMESPACE/NAME get pods

Exit codes: 0 success, 1 failure, 2 wrong usage, 69 no broker, 75 timeout, 77 permission denied,
78 invalid configuration.")]
pub struct Cli {
    #[command(subcommand)]
    pub(super) command: CliCommand,
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
pub(super) enum CliCommand {
    Serve(serve::ServeArgs),
    #[command(flatten)]
    Once(Box<OnceCommand>),
}

/// A command that is not the daemon.
#[derive(Debug, Subcommand)]
pub(super) enum OnceCommand {
    Validate(validate::ValidateArgs),
    Get(get::GetArgs),
    Login(login::LoginArgs),
    Logout(logout::LogoutArgs),
    Status(status::StatusArgs),
    Explain(explain::ExplainArgs),
    Healthcheck(healthcheck::HealthcheckArgs),
    Refresh(refresh::RefreshArgs),
    Evict(evict::EvictArgs),
    Clusters(clusters::ClustersArgs),
    #[command(subcommand)]
    Kubeconfig(kubeconfig::KubeconfigCommand),
    Completions(complete::CompletionsArgs),
    Man(man::ManArgs),
    Setup(setup::SetupArgs),
    Doctor(doctor::DoctorArgs),
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
