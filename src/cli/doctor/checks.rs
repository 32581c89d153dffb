//! The checks, of the running broker, the programs, the kubeconfig and the machine, and what they find.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ffi::OsStr,
    io::{self, Write},
    path::Path,
};

use credbroker_client::{
    Error, Socket,
    admin::{BrokerInfo, CredentialState, ProviderState, Selector, State},
};
use credbroker_exec::Failure;
use serde_json::{Value, json};

use crate::cli::{
    broker::{BrokerArgs, EX_CONFIG, ask},
    programs,
};
use credbroker_config as config;
use credbroker_config::kubeconfig::{Kubeconfig, is_shim};
use credbroker_credential::{
    document::Node,
    text::{listed, one_line, shown},
};
use credbroker_plugin::{Command, Definition, Environment};
use credbroker_runner::find_in_path;

/// How bad it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// It cannot be checked here, or it is only worth knowing.
    Note,
    /// It works, but not as a person may expect.
    Warning,
    /// It does not work. The exit code of the command.
    Error(u8),
}

/// The result of one check.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Finding {
    /// What was checked.
    pub(super) check: &'static str,
    pub(super) level: Level,
    /// What was found.
    pub(super) text: String,
    /// What to do about it.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), remedy: None }
    }

    pub(super) fn note(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Note, text: text.into(), remedy: None }
    }

    pub(super) fn warning(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Warning, text: text.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn error(check: &'static str, code: u8, text: impl Into<String>) -> Self {
        Self { check, level: Level::Error(code), text: text.into(), remedy: None }
    }

    #[must_use]
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    fn level(&self) -> &'static str {
        match self.level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error(_) => "error",
        }
    }
}

/// `found`, or if there is none, that `check` is as it should be.
pub(super) fn or_ok(
    mut found: Vec<Finding>,
    check: &'static str,
    text: impl FnOnce() -> String,
) -> Vec<Finding> {
    if found.is_empty() {
        found.push(Finding::ok(check, text()));
    }
    found
}

/// The exit code: that of the first error, else 0. A warning does not change it.
pub(super) fn exit_code(findings: &[Finding]) -> u8 {
    let errors = findings.iter().filter_map(|finding| match finding.level {
        Level::Error(code) => Some(code),
        _ => None,
    });
    errors.into_iter().next().unwrap_or_default()
}

/// One line for each finding, and one for its remedy.
pub(super) fn print(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    for finding in findings {
        let Finding { check, text, remedy, .. } = finding;
        writeln!(out, "{:<7}  {check:<13}  {}", finding.level(), one_line(text))?;
        if let Some(remedy) = remedy {
            writeln!(out, "{:24}-> {}", "", one_line(remedy))?;
        }
    }
    Ok(())
}

/// The same for programs.
pub(super) fn findings_json(findings: &[Finding]) -> Value {
    let findings = findings.iter().map(|finding| {
        let Finding { check, text, remedy, .. } = finding;
        json!({"check": check, "level": finding.level(), "text": text, "remedy": remedy})
    });
    json!({ "findings": findings.collect::<Vec<_>>() })
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
const KUBECONFIG: &str = "kubeconfig";

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
pub(super) fn broker(
    BrokerArgs { socket, timeout }: &BrokerArgs,
    environment: &Environment,
) -> anyhow::Result<(Vec<Finding>, Option<RunningBroker>)> {
    let answer = ask(socket, timeout.limit, environment, async |client| {
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
    or_ok(findings, CHECK, || format!("in force: {}", listed(&running.info.config_files)))
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
    let count = running.providers.len();
    or_ok(broken.collect(), CHECK, || format!("the plugins of all {count} providers can run"))
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
    let count = running.credentials.len();
    or_ok(failed.collect(), CHECK, || format!("the last runs of all {count} credentials succeeded"))
}

/// A finding for each difference.
pub(super) fn versions(
    running: Option<&RunningBroker>,
    beside: &Path,
    environment: &Environment,
) -> Vec<Finding> {
    const CHECK: &str = "versions";
    let mut findings = Vec::new();
    if let Some(version) =
        running.map(|running| running.info.version.as_str()).filter(|other| *other != VERSION)
    {
        let text = format!("the running broker has version {version}, this program {VERSION}");
        let remedy = "restart the broker, for example with `systemctl --user restart credbroker.service`";
        findings.push(Finding::warning(CHECK, text, remedy));
    }
    match shim(beside, environment) {
        None => findings.push(
            Finding::error(CHECK, 1, "credbroker-exec is neither on PATH nor beside this program")
                .remedy("install it"),
        ),
        Some((path, None)) => findings.push(
            Finding::error(CHECK, 1, format!("{path} does not run")).remedy("install credbroker-exec again"),
        ),
        Some((path, Some(version))) if version != VERSION => findings.push(Finding::warning(
            CHECK,
            format!("{path} has version {version}, this program {VERSION}"),
            "install both from one release",
        )),
        Some(_) => {}
    }
    or_ok(findings, CHECK, || format!("the programs have version {VERSION}"))
}

/// The shim, and the version that it prints.
fn shim(beside: &Path, environment: &Environment) -> Option<(String, Option<String>)> {
    let found = find_in_path("credbroker-exec", environment.get("PATH").unwrap_or_default());
    let path = found.unwrap_or_else(|| beside.to_owned());
    let name = path.to_str().filter(|_| path.is_file())?.to_owned();
    let is_shim = path.file_name() == Some(OsStr::new("credbroker-exec"));
    let args: &[&str] = if is_shim { &["--version"] } else { &["shim", "--version"] };
    let ran = programs::run(&name, args, environment).filter(|ran| ran.succeeded);
    let version = ran.and_then(|ran| Some(ran.stdout.split_whitespace().nth(1)?.to_owned()));
    Some((name, version))
}

pub(super) fn kubeconfig(
    file: Option<&Path>,
    running: Option<&RunningBroker>,
    environment: &Environment,
) -> Vec<Finding> {
    let (paths, mode) = Kubeconfig::chosen(file, environment);
    let list = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    let kubeconfig = match config::read_kubeconfig(&paths, mode) {
        Ok(kubeconfig) if kubeconfig.files().is_empty() => {
            return vec![Finding::note(KUBECONFIG, format!("there is none: {list}"))];
        }
        Ok(kubeconfig) => kubeconfig,
        Err(error) => {
            return vec![Finding::error(KUBECONFIG, EX_CONFIG, error.to_string()).remedy("correct the file")];
        }
    };
    let mut findings = through_broker(&kubeconfig, running, environment, &list);
    findings.extend(direct(&kubeconfig, environment, &list));
    if findings.is_empty() {
        findings.push(Finding::note(KUBECONFIG, format!("no user of {list} runs an exec plugin")));
    }
    findings
}

/// The users that run the shim.
fn through_broker(
    kubeconfig: &Kubeconfig,
    running: Option<&RunningBroker>,
    environment: &Environment,
    list: &str,
) -> Vec<Finding> {
    let users = kubeconfig.users();
    let stanzas = users.iter().filter_map(|user| Some((user.name, user.body.get("exec")?, user.file)));
    let shims: Vec<_> = stanzas.filter(|(_, exec, _)| is_shim(exec)).collect();
    let (mut outdated, mut unknown, mut broken) = (Vec::new(), Vec::new(), Vec::new());
    let definitions: HashMap<_, _> =
        config::definitions(kubeconfig, environment).served.into_iter().collect();
    let known = running.map(RunningBroker::definitions);
    for (name, exec, file) in &shims {
        let definition = definitions.get(*name);
        let digest = definition.map(Definition::digest).or_else(|| argument(exec, "--definition"));
        if definition.is_some_and(|definition| definition.is_outdated) {
            outdated.push((*name).to_owned());
        } else if digest.is_some_and(|digest| known.as_ref().is_some_and(|known| !known.contains(digest))) {
            unknown.push((*name).to_owned());
        }
        if !is_command_there(exec, file, environment) {
            broken.push((*name).to_owned());
        }
    }
    let mut findings = Vec::new();
    if !outdated.is_empty() {
        let text = format!(
            "these users of {list} were edited, and the arguments of their credbroker-exec do not describe them: {}",
            listed(&outdated)
        );
        findings.push(Finding::error(KUBECONFIG, 1, text).remedy("run `credbroker kubeconfig inject`"));
    }
    if !unknown.is_empty() {
        let text = format!(
            "the broker does not know the definitions of these users of {list}: {}",
            listed(&unknown)
        );
        let remedy = "add the kubeconfig that they were written from to `kubeconfigs` of the broker's configuration, or write this one again with `credbroker kubeconfig wrap`";
        findings.push(Finding::error(KUBECONFIG, 1, text).remedy(remedy));
    }
    if !broken.is_empty() {
        let text =
            format!("these users of {list} name a credbroker-exec that does not exist: {}", listed(&broken));
        let remedy =
            "install it there, or write the kubeconfig again with `credbroker kubeconfig wrap` or `inject`";
        findings.push(Finding::error(KUBECONFIG, 1, text).remedy(remedy));
    }
    if findings.is_empty() && !shims.is_empty() {
        let names: Vec<_> = shims.iter().map(|(name, ..)| (*name).to_owned()).collect();
        findings
            .push(Finding::ok(KUBECONFIG, format!("{list}: these users use the broker: {}", listed(&names))));
    }
    findings
}

/// The users that run their plugin themselves.
fn direct(kubeconfig: &Kubeconfig, environment: &Environment, list: &str) -> Vec<Finding> {
    let definitions = config::definitions(kubeconfig, environment);
    let mut findings = Vec::new();
    let users = kubeconfig.users();
    let is_plain = |name: &str| {
        let user = users.iter().find(|user| user.name == name);
        user.and_then(|user| user.body.get("exec")).is_some_and(|exec| !is_shim(exec))
    };
    let names: Vec<_> =
        definitions.served.into_iter().map(|(name, _)| name).filter(|name| is_plain(name)).collect();
    if !names.is_empty() {
        let text = format!("these users of {list} run their plugin themselves: {}", listed(&names));
        let remedy = "run `credbroker kubeconfig inject`";
        findings.push(Finding::warning(KUBECONFIG, text, remedy));
    }
    let problems = definitions
        .warnings
        .iter()
        .map(|problem| Finding::warning(KUBECONFIG, problem.to_string(), "correct the kubeconfig"));
    findings.extend(problems);
    findings
}

/// The value of the flag `name` in the arguments of a stanza.
fn argument<'a>(exec: &'a Node, name: &str) -> Option<&'a str> {
    let args = exec.get("args")?.as_sequence()?;
    let at = args.iter().position(|arg| arg.as_str() == Some(name))?;
    args.get(at + 1)?.as_str()
}

fn is_command_there(exec: &Node, file: &Path, environment: &Environment) -> bool {
    let Some(command) = exec.get("command").and_then(Node::as_str) else { return false };
    if !command.contains('/') {
        return find_in_path(command, environment.get("PATH").unwrap_or_default()).is_some();
    }
    let path = file.parent().unwrap_or(Path::new("/")).join(command);
    path.is_file()
}

/// Whether programs that a desktop starts find what a shell finds: they have the environment of the user manager.
pub(super) fn graphical_path(file: Option<&Path>, environment: &Environment) -> Finding {
    const CHECK: &str = "desktop PATH";
    let shown = programs::systemctl(&["show-environment"], environment);
    let Some(shown) = shown.filter(|ran| ran.succeeded) else {
        return Finding::note(CHECK, "there is no systemd user manager here");
    };
    let path = shown.stdout.lines().find_map(|line| line.strip_prefix("PATH=")).unwrap_or_default();
    let own = environment.get("PATH").unwrap_or_default();
    let mut names: BTreeSet<String> = ["credbroker-exec".to_owned()].into();
    if let Ok(loaded) = config::load(file, environment) {
        names.extend(loaded.config.providers.iter().filter_map(|provider| match &provider.command {
            Command::Name(name) => Some(name.clone()),
            Command::Path(_) => None,
        }));
    }
    let is_missing =
        |name: &String| find_in_path(name, own).is_some() && find_in_path(name, path.as_ref()).is_none();
    let missing: Vec<_> = names.into_iter().filter(is_missing).collect();
    if missing.is_empty() {
        Finding::ok(CHECK, "programs that the desktop or systemd starts find the plugins too")
    } else {
        Finding::warning(
            CHECK,
            format!(
                "programs that the desktop or systemd starts do not find {}, which your shell does",
                listed(&missing)
            ),
            "run `systemctl --user import-environment PATH`, or set PATH in ~/.config/environment.d/, and restart the broker",
        )
    }
}

/// Whether the wall clock is synchronised: with a wrong one, every credential looks expired or lives too long.
pub(super) fn clock(environment: &Environment) -> Finding {
    const CHECK: &str = "clock";
    let args = ["show", "--property=NTPSynchronized", "--value"];
    let ran = programs::run("timedatectl", &args, environment).filter(|ran| ran.succeeded);
    match ran.as_ref().map(|ran| ran.stdout.trim()) {
        Some("yes") => Finding::ok(CHECK, "synchronised"),
        Some("no") => Finding::warning(
            CHECK,
            "not synchronised; with a wrong clock, credentials seem to be expired or live too long",
            "start a time service, for example with `timedatectl set-ntp true`",
        ),
        _ => Finding::note(CHECK, "cannot determine whether the clock is synchronised"),
    }
}

#[cfg(test)]
mod tests;
