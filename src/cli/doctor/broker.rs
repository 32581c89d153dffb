//! The checks of the running broker.

use std::{collections::HashSet, path::Path, time::Duration};

use credbroker_client::{
    Error, Socket,
    admin::{BrokerInfo, CredentialState, ProviderState, Selector, State},
};
use credbroker_exec::Failure;

use super::finding::Finding;
use crate::cli::{
    EX_CONFIG,
    broker::{SocketArg, ask},
};
use credbroker_config as config;
use credbroker_credential::text::{listed, shown};
use credbroker_plugin::{Command, Environment};
use credbroker_runner::find_in_path;

/// What a running broker says about itself.
#[derive(Debug)]
pub(super) struct RunningBroker {
    pub(super) info: BrokerInfo,
    providers: Vec<ProviderState>,
    credentials: Vec<CredentialState>,
}

impl RunningBroker {
    /// The digests of its definitions.
    pub(super) fn definitions(&self) -> HashSet<&str> {
        self.providers.iter().filter_map(|provider| provider.definition.as_deref()).collect()
    }
}

/// Whether a broker answers on a socket that is trusted.
pub(super) fn check(
    socket: &SocketArg,
    limit: Duration,
    environment: &Environment,
) -> anyhow::Result<(Vec<Finding>, Option<RunningBroker>)> {
    let answer = ask(socket, limit, environment, async |client| {
        let admin = client.admin();
        let (info, providers) = (admin.broker_info().await?, admin.providers().await?);
        Ok(RunningBroker { info, providers, credentials: admin.credentials(&Selector::All).await? })
    })?;
    let failure = match answer {
        Ok(running) => {
            let sockets = running.info.sockets.join(", ");
            let text = format!("a broker that is trusted answers; it listens on {sockets}");
            return Ok((vec![Finding::ok("socket", text)], Some(running)));
        }
        Err(failure) => failure,
    };
    let mut findings = vec![Finding::error("socket", failure.exit_code(), failure.line(None))];
    let is_root = rustix::process::geteuid().is_root();
    let is_own = socket.path.is_none() && environment.set("CREDBROKER_SOCKET").is_none();
    if let Failure::Broker(Error::Unreachable { socket, .. }) = &failure
        && is_own
        && !is_root
        && socket.candidates().all(|path| path == Path::new(Socket::SYSTEM))
    {
        if socket.ignored_runtime_directory().is_some() {
            return Ok((findings, None)); // the error says it
        }
        findings.push(Finding::warning("session", "XDG_RUNTIME_DIR is not set, so your own broker is not looked for; it is not set after su and in cron", format!("run `export XDG_RUNTIME_DIR=/run/user/{}`, or log in with a session", rustix::process::geteuid().as_raw())));
    }
    Ok((findings, None))
}

/// Whether the files of the configuration are in force.
pub(super) fn configuration(
    running: Option<&RunningBroker>,
    file: Option<&Path>,
    environment: &Environment,
) -> Vec<Finding> {
    const CHECK: &str = "configuration";
    let remedy = "correct the files; `credbroker validate` lists all problems";
    let Some(running) = running else {
        return match config::load(file, environment) {
            Ok(loaded) => vec![Finding::ok(CHECK, format!("{}: ok", loaded.source))],
            Err(error) => vec![Finding::error(CHECK, EX_CONFIG, error.to_string()).remedy(remedy)],
        };
    };
    let state = running.info.configuration.clone().unwrap_or_default();
    let mut findings = Vec::new();
    if !state.problems.is_empty() {
        let problems = state.problems.join("; ");
        let text = format!(
            "the broker continues with an earlier version, because its files have problems: {problems}"
        );
        findings.push(Finding::error(CHECK, EX_CONFIG, text).remedy(remedy));
    }
    if !state.restart_needed.is_empty() {
        let text = format!("changed, but not in force until a restart: {}", listed(&state.restart_needed));
        let remedy = "restart the broker, for example with `systemctl --user restart credbroker.service`";
        findings.push(Finding::warning(CHECK, text, remedy));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("in force: {}", listed(&running.info.config_files))));
    }
    findings
}

/// Whether the plugins are there and may run.
pub(super) fn plugins(
    running: Option<&RunningBroker>,
    file: Option<&Path>,
    environment: &Environment,
) -> Vec<Finding> {
    const CHECK: &str = "plugins";
    let Some(running) = running else {
        let missing = missing(file, environment);
        return missing
            .into_iter()
            .map(|(name, command)| {
                let text = format!("provider `{}`: {command} is not installed", shown(&name));
                Finding::error(CHECK, 1, text).remedy("install it, or correct the command")
            })
            .collect();
    };
    let broken = running
        .providers
        .iter()
        .filter_map(|provider| Some(Finding::error(CHECK, 1, provider.failure.as_ref()?.message.clone())));
    let mut findings: Vec<_> = broken.collect();
    if findings.is_empty() {
        let count = running.providers.len();
        findings.push(Finding::ok(CHECK, format!("the plugins of all {count} providers can run")));
    }
    findings
}

/// The providers of the configuration whose plugin is not there, with its command.
fn missing(file: Option<&Path>, environment: &Environment) -> Vec<(String, String)> {
    let Ok(loaded) = config::load(file, environment) else { return Vec::new() };
    let path = environment.get("PATH").unwrap_or_default();
    let is_there = |command: &Command| match command {
        Command::Name(name) => find_in_path(name, path).is_some(),
        Command::Path(path) => path.is_file(),
    };
    let providers = loaded.config.providers.iter().filter(|provider| !is_there(&provider.command));
    providers.map(|provider| (provider.name.to_string(), provider.command.to_string())).collect()
}

/// The credentials whose last run failed.
pub(super) fn failures(running: Option<&RunningBroker>) -> Vec<Finding> {
    const CHECK: &str = "failures";
    let Some(running) = running else { return Vec::new() };
    let failed = running.credentials.iter().filter_map(|credential| {
        let message = credential.last_failure.as_ref()?.message.clone();
        let remedy = format!("then run `credbroker refresh {}`", shown(&credential.provider));
        Some(if credential.state == State::Failed {
            Finding::error(CHECK, 1, message).remedy(remedy)
        } else {
            Finding::warning(CHECK, message, remedy)
        })
    });
    let mut findings: Vec<_> = failed.collect();
    if findings.is_empty() {
        let count = running.credentials.len();
        findings.push(Finding::ok(CHECK, format!("the last runs of all {count} credentials succeeded")));
    }
    findings
}
