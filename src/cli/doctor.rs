//! `credbroker doctor`: checks of the running broker, the programs, the kubeconfig and the machine.

mod accounts;
mod findings;
mod kubeconfig;
mod machine;
mod plugins;
mod proxy;
pub(super) mod users;

use std::path::{Path, PathBuf};

use credbroker_client::{
    Error, Socket,
    admin::{Selector, State},
};
use credbroker_config::{self as config, ConfigError, Loaded};
use credbroker_credential::text::{listed, quoted};
use credbroker_exec::Failure;
use credbroker_plugin::Environment;

use self::findings::{BAD, BAD_CONFIG, Findings, GOOD, WARNING};
pub(super) use self::plugins::plugin_problems;
use super::{
    broker::{BrokerArgs, ON_DEMAND, admin},
    console::{Console, OutputFormat},
    overview::Overview,
};

const RESTART: &str = "run `credbroker restart`";

/// Check everything that credbroker needs on this machine, and show what to do
///
/// Checks the socket and whether it is trusted, the versions of the broker and of credbroker-exec, the configuration, the
/// kubeconfig and whether the broker knows its users, the plugins, the last failures, whether the broker finds plugins
/// where your shell does, the HTTP proxy if a kubeconfig uses credbroker's proxy, and the clock. Runs no plugin and changes
/// nothing. The first error decides the exit code: 69 no broker, 75 timeout, 77 permission denied or a socket that is not
/// trusted, 78 an invalid configuration or kubeconfig, 1 any other. Warnings do not change the exit code.
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
    checks.accounts();
    checks.plugins();
    checks.account_files();
    checks.failures();
    checks.path();
    checks.clock();
    let findings = checks.findings;
    console.print(args.output, || findings.text(), || findings.document())?;
    Ok(findings.exit_code())
}

struct Checks<'a> {
    environment: &'a Environment,
    /// `None`: no broker answers on a socket that is trusted.
    running: Option<Overview>,
    loaded: Result<Loaded, ConfigError>,
    findings: Findings,
}

impl<'a> Checks<'a> {
    /// Checks whether a broker answers on a socket that is trusted, and reads the configuration `file`.
    fn of_broker(
        broker: &BrokerArgs,
        file: Option<&Path>,
        environment: &'a Environment,
    ) -> anyhow::Result<Self> {
        const CHECK: &str = "socket";
        let read = async |client| Overview::read(&admin(&client, environment), &Selector::All).await;
        let answer = broker.try_ask(environment, read)?;
        let mut findings = Findings::default();
        match &answer {
            Ok(Overview { broker: info, .. }) => {
                let sockets = info.sockets.join(", ");
                let text = format!("a broker that is trusted answers; it listens on {sockets}");
                findings.add(CHECK, GOOD, text, "");
            }
            Err(failure) if broker.starts_on_demand(failure, environment) => {
                findings.add(CHECK, GOOD, ON_DEMAND, "");
            }
            Err(failure) => findings.add(CHECK, ("error", failure.exit_code()), failure.line(None), ""),
        }
        let user = rustix::process::geteuid();
        let is_own =
            broker.socket.path.is_none() && environment.set("CREDBROKER_SOCKET").is_none() && !user.is_root();
        if let Err(Failure::Broker(Error::Unreachable { socket, .. })) = &answer
            && is_own
            && socket.candidates().all(|path| path == Path::new(Socket::SYSTEM))
            && socket.ignored_runtime_directory().is_none()
        {
            let text = "XDG_RUNTIME_DIR is not set, so your own broker is not looked for; it is not set after su and in cron";
            let remedy =
                format!("run `export XDG_RUNTIME_DIR=/run/user/{}`, or log in with a session", user.as_raw());
            findings.add("session", WARNING, text, remedy);
        }
        Ok(Self { environment, running: answer.ok(), loaded: config::load(file, environment), findings })
    }

    fn configuration(&mut self) {
        const CHECK: &str = "configuration";
        let findings = &mut self.findings;
        let remedy = "correct the files; `credbroker validate` lists all problems";
        let Some(Overview { broker: info, .. }) = &self.running else {
            return match &self.loaded {
                Ok(loaded) => findings.add(CHECK, GOOD, format!("{}: ok", loaded.source), ""),
                Err(error) => findings.add(CHECK, BAD_CONFIG, error.to_string(), remedy),
            };
        };
        let state = info.configuration.clone().unwrap_or_default();
        if !state.problems.is_empty() {
            let problems = state.problems.join("; ");
            let text = format!(
                "the broker continues with an earlier version, because its files have problems: {problems}"
            );
            findings.add(CHECK, BAD_CONFIG, text, remedy);
        }
        if !state.restart_needed.is_empty() {
            let keys = listed(&state.restart_needed);
            let text = format!("changed, but not active until a restart: {keys}");
            findings.add(CHECK, WARNING, text, RESTART);
        }
        findings.or(CHECK, GOOD, || format!("active: {}", listed(&info.config_files)));
    }

    fn failures(&mut self) {
        const CHECK: &str = "failures";
        let Some(Overview { credentials, .. }) = &self.running else { return };
        for credential in credentials {
            let Some(failure) = &credential.last_failure else { continue };
            let level = if credential.state == State::Failed { BAD } else { WARNING };
            let refresh = format!("run `credbroker refresh {}`", quoted(&credential.provider));
            // The message may begin with a remedy.
            let remedy = if failure.message.starts_with("run `") { "" } else { &refresh };
            self.findings.add(CHECK, level, &failure.message, remedy);
        }
        let text = || format!("the last runs of all {} credentials succeeded", credentials.len());
        self.findings.or(CHECK, GOOD, text);
    }
}

#[cfg(test)]
mod tests;
