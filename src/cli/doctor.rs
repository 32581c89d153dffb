//! `credbroker doctor`: checks of the running broker, the programs, the kubeconfig and the machine.

mod accounts;
pub(super) mod users;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ffi::OsStr,
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use credbroker_client::{
    Error, Socket,
    admin::{Selector, State},
    safety::shell_word,
};
use credbroker_exec::Failure;
use serde_json::{Value, json};

use self::accounts::{not_sent, not_taken};
use self::users::{few, from_originals, is_without_original};
use super::{
    broker::{BrokerArgs, ON_DEMAND, admin},
    console::{Console, EX_CONFIG, OutputFormat},
    files::joined,
    overview::Overview,
    programs, recorded,
};
use credbroker_config::{
    self as config, ConfigError, Loaded,
    kubeconfig::{Kubeconfig, is_shim},
};
use credbroker_credential::{
    document::Node,
    text::{listed, one_line, quoted, shown, shown_path},
};
use credbroker_plugin::{Command, Environment, IdentityFiles};
use credbroker_runner::{find_in_path, read_selector};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const KUBECONFIG: &str = "kubeconfig";
const INJECT: &str = "run `credbroker kubeconfig inject`";
const OUTDATED: &str = "were edited, and the arguments of their credbroker-exec do not describe them";
const ADD: &str = "add the kubeconfig that they were written from to `kubeconfigs` of the broker's configuration, or write \
                   this one again with `credbroker kubeconfig wrap`";
const ABSENT: &str = "name a credbroker-exec that does not exist";
const INSTALL: &str =
    "install it there, or write the kubeconfig again with `credbroker kubeconfig wrap` or `inject`";
const RESTART: &str = "run `credbroker restart`";
const ORPHANED: &str = "run a credbroker-exec of an earlier version, without the original command";

/// Check everything that credbroker needs on this machine, and show what to do
///
/// Checks the socket and whether it is trusted, the versions of the broker and of credbroker-exec, the configuration, the
/// kubeconfig and whether the broker knows its users, the plugins, the last failures, whether the broker finds plugins
/// where your shell does, and the clock. Runs no plugin and changes nothing. The first error decides the exit code: 69 no
/// broker, 75 timeout, 77 permission denied or a socket that is not trusted, 78 an invalid configuration or kubeconfig, 1
/// any other. Warnings do not change the exit code.
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

    /// Which variables of this shell may select an account, and do not reach the plugins.
    fn accounts(&mut self) {
        const CHECK: &str = "accounts";
        let Ok(Loaded { config, .. }) = &self.loaded else { return };
        for provider in config.providers.iter() {
            let (names, provider) = (not_taken(self.environment, provider).join(", "), shown(&provider.name));
            if !names.is_empty() {
                let text = format!(
                    "provider `{provider}` gets the broker's values of variables of this shell that may select an account: {names}"
                );
                let remedy = format!(
                    "add `callerEnv: [{names}]` to the provider to use the caller's values, or `callerEnv: []` to use the broker's values for every caller"
                );
                self.findings.add(CHECK, WARNING, text, remedy);
            }
        }
        let names = not_sent(self.environment);
        if !names.is_empty() && config.providers.iter().next().is_some() {
            let text = format!(
                "plugins get the broker's values of variables of this shell that may select an account: {}",
                names.join(", ")
            );
            let set = self.environment.set("CREDBROKER_CALLER_ENV").map(OsStr::to_string_lossy);
            let all: Vec<_> = set.as_deref().into_iter().chain(names).collect();
            let remedy = format!(
                "if your plugin uses them, run `export CREDBROKER_CALLER_ENV={}`, and name them in `callerEnv` of the configuration",
                quoted(&all.join(","))
            );
            self.findings.add(CHECK, NOTE, text, remedy);
        }
    }

    fn plugins(&mut self) {
        const CHECK: &str = "plugins";
        let providers = self.running.as_ref().map(|running| running.providers.as_slice());
        for failure in providers.into_iter().flatten().filter_map(|provider| provider.failure.as_ref()) {
            self.findings.add(CHECK, BAD, &failure.message, "");
        }
        let problems = self.loaded.as_ref().map(|loaded| plugin_problems(loaded, self.environment));
        for (text, remedy, is_missing) in problems.into_iter().flatten() {
            // A broker that runs has said so, and may find what this shell does not.
            if !is_missing || providers.is_none() {
                self.findings.add(CHECK, BAD, text, remedy);
            }
        }
        if let Some(providers) = providers {
            let text = || format!("the plugins of all {} providers can run", providers.len());
            self.findings.or(CHECK, GOOD, text);
        }
    }

    /// Which files select the accounts of the plugins, as far as this shell's variables do.
    fn account_files(&mut self) {
        const CHECK: &str = "account files";
        let (Ok(loaded), own) = (&self.loaded, &self.environment.0) else { return };
        let own =
            own.iter().filter_map(|(name, value)| Some((name.to_str()?.into(), value.to_str()?.into())));
        let (own, mut files) = (own.collect(), BTreeSet::new());
        for known in loaded.config.providers.iter().filter_map(|provider| IdentityFiles::of(provider, &own)) {
            known.judge(|file| read_selector(file).unwrap_or_default(), Duration::default);
            files.extend(known.files().iter().map(|file| shown_path(file)));
        }
        if !files.is_empty() {
            let list = listed(&files.into_iter().collect::<Vec<_>>());
            let text = format!("after you change these files, the plugins that use them run again: {list}");
            self.findings.add(CHECK, GOOD, text, "");
        }
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

    /// Whether the broker, this program and the shim, which may be the one at `beside`, are of one version.
    fn versions(&mut self, beside: &Path) {
        const CHECK: &str = "versions";
        let (shim, findings) = (shim(beside, self.environment), &mut self.findings);
        let running = self.running.as_ref().map(|running| &running.broker.version);
        if let Some(version) = running.filter(|version| *version != VERSION) {
            let text = format!("the running broker has version {version}, this program {VERSION}");
            findings.add(CHECK, WARNING, text, RESTART);
        }
        let started = self.running.as_ref().and_then(|running| running.broker.started_at);
        if let Some(path) = recorded::changed_since(started, self.environment) {
            let text = format!("{} has changed since the running broker started", path.display());
            findings.add(CHECK, WARNING, text, RESTART);
        }
        match shim {
            None => {
                let text = "credbroker-exec is neither on PATH nor next to this program";
                findings.add(CHECK, BAD, text, "install it");
            }
            Some((path, None)) => {
                findings.add(CHECK, BAD, format!("{path} does not run"), "install credbroker-exec again");
            }
            Some((path, Some(version))) if version != VERSION => {
                let text = format!("{path} has version {version}, this program {VERSION}");
                findings.add(CHECK, WARNING, text, "install both from one release");
            }
            Some(_) => {}
        }
        findings.or(CHECK, GOOD, || format!("the programs have version {VERSION}"));
    }

    /// Whether the users of the kubeconfigs, or of `file`, request their credentials from the broker and it knows them.
    fn kubeconfig(&mut self, file: Option<&Path>) {
        let (paths, mode) = Kubeconfig::chosen(file, self.environment);
        let list = joined(&paths, ":");
        match config::read_kubeconfig(&paths, mode) {
            Ok(kubeconfig) if kubeconfig.files.is_empty() => {
                self.findings.add(KUBECONFIG, NOTE, format!("there is none: {list}"), "");
            }
            Ok(kubeconfig) => self.users(&kubeconfig, &list),
            Err(error) => {
                self.findings.add(KUBECONFIG, BAD_CONFIG, error.to_string(), "correct the file");
            }
        }
    }

    fn users(&mut self, kubeconfig: &Kubeconfig, list: &str) {
        let config::Definitions { served, warnings, .. } = config::definitions(kubeconfig, self.environment);
        let served: HashMap<_, _> = served.into_iter().collect();
        let providers = self.running.as_ref().map(|running| running.providers.iter());
        let known: Option<HashSet<_>> =
            providers.map(|providers| providers.filter_map(|known| known.definition.as_deref()).collect());
        let [mut brokered, mut plain, mut outdated, mut unknown, mut broken, mut orphaned] =
            [const { Vec::new() }; 6];
        for user in kubeconfig.users() {
            let Some(exec) = user.body.get("exec") else { continue };
            let (name, definition) = (user.name.to_owned(), served.get(user.name));
            if !is_shim(exec) {
                plain.extend(definition.map(|_| name));
                continue;
            }
            let digest = definition.map(|known| &*known.digest);
            let is_unknown = |digest| known.as_ref().is_some_and(|known| !known.contains(digest));
            if definition.is_some_and(|definition| definition.is_outdated) {
                outdated.push(name.clone());
            } else if is_without_original(exec) {
                orphaned.push(name.clone());
            } else if digest.is_some_and(is_unknown) {
                unknown.push(name.clone());
            }
            if !is_command_there(exec, user.file, self.environment) {
                broken.push(name.clone());
            }
            brokered.push(name);
        }
        if [&outdated, &unknown, &broken, &orphaned].iter().any(|names| !names.is_empty()) {
            brokered.clear();
        }
        for (level, names, text, remedy) in [
            (BAD, outdated, format!("these users of {list} {OUTDATED}"), INJECT),
            (BAD, unknown, format!("the broker does not know the definitions of these users of {list}"), ADD),
            (BAD, orphaned, format!("these users of {list} {ORPHANED}"), &from_originals(self.environment)),
            (BAD, broken, format!("these users of {list} {ABSENT}"), INSTALL),
            (GOOD, brokered, format!("{list}: these users use the broker"), ""),
            (WARNING, plain, format!("these users of {list} run their plugin themselves"), INJECT),
        ] {
            if !names.is_empty() {
                self.findings.add(KUBECONFIG, level, format!("{text}: {}", few(names)), remedy);
            }
        }
        for problem in warnings {
            self.findings.add(KUBECONFIG, WARNING, problem.to_string(), "correct the kubeconfig");
        }
        self.findings.or(KUBECONFIG, NOTE, || format!("no user of {list} runs an exec plugin"));
    }

    /// Whether the broker that the shim or systemd starts finds what a shell finds.
    fn path(&mut self) {
        const CHECK: &str = "PATH";
        let of_systemd = || {
            let shown =
                programs::systemctl(&["show-environment"], self.environment).filter(|ran| ran.succeeded)?;
            shown.stdout.lines().find_map(|line| line.strip_prefix("PATH=").map(str::to_owned))
        };
        let Some(path) = recorded::path(self.environment).or_else(of_systemd) else {
            let text = "neither `credbroker setup` nor systemd specifies which PATH the broker gets";
            return self.findings.add(CHECK, NOTE, text, "");
        };
        let own = self.environment.get("PATH").unwrap_or_default();
        let providers = self.loaded.iter().flat_map(|loaded| loaded.config.providers.iter());
        let commands = providers.filter_map(|provider| match &provider.command {
            Command::Name(name) => Some(name.clone()),
            Command::Path(_) => None,
        });
        let elsewhere = |name: &String| {
            let found = find_in_path(name, own);
            found.is_some() && found != find_in_path(name, path.as_ref())
        };
        let names: BTreeSet<String> = commands.filter(elsewhere).collect();
        if !names.is_empty() {
            let text = format!("the broker does not find {} where your shell does", few(names));
            self.findings.add(CHECK, WARNING, text, "run `credbroker setup` in this shell");
        }
        self.findings.or(CHECK, GOOD, || "the broker finds the plugins where your shell does".to_owned());
    }

    /// Whether the wall clock is synchronized: with a wrong one, every credential looks expired or lives too long.
    fn clock(&mut self) {
        const CHECK: &str = "clock";
        let args = ["show", "--property=NTPSynchronized", "--value"];
        let ran = programs::run("timedatectl", &args, self.environment).filter(|ran| ran.succeeded);
        let wrong = "not synchronized; with a wrong clock, credentials seem to be expired or live too long";
        let remedy = "start a time service, for example with `timedatectl set-ntp true`";
        let (level, text, remedy) = match ran.as_ref().map(|ran| ran.stdout.trim()) {
            Some("yes") => (GOOD, "synchronized", ""),
            Some("no") => (WARNING, wrong, remedy),
            _ => (NOTE, "cannot determine whether the clock is synchronized", ""),
        };
        self.findings.add(CHECK, level, text, remedy);
    }
}

/// The plugins that cannot run with this environment: what is wrong, what to do, and whether the plugin is not there.
pub(super) fn plugin_problems(loaded: &Loaded, environment: &Environment) -> Vec<(String, String, bool)> {
    let mut users = BTreeMap::<_, (_, BTreeSet<_>)>::new();
    for provider in loaded.config.providers.iter() {
        let of_command = users.entry(provider.command.to_string());
        of_command.or_insert((&provider.command, BTreeSet::new())).1.insert(shown(&provider.name));
    }
    let problem = |(shown, (command, names)): (String, (&Command, BTreeSet<String>))| {
        let names = few(names);
        let Some(path) = programs::of_plugin(command, environment) else {
            let text = format!("{shown} is not installed; providers that need it: {names}");
            return Some((text, "install it, or correct the command".to_owned(), true));
        };
        let why = rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).err()?;
        let text = format!("{} cannot be executed: {why}; providers that need it: {names}", path.display());
        Some((text, format!("run `chmod +x {}`", shell_word(&path)), false))
    };
    users.into_iter().filter_map(problem).collect()
}

fn shim(beside: &Path, environment: &Environment) -> Option<(String, Option<String>)> {
    let (path, is_subcommand) = programs::shim(beside, environment);
    let name = path.to_str().filter(|_| path.is_file())?.to_owned();
    let args: &[&str] = if is_subcommand { &["shim", "--version"] } else { &["--version"] };
    let ran = programs::run(&name, args, environment).filter(|ran| ran.succeeded);
    let version = ran.and_then(|ran| Some(ran.stdout.split_whitespace().nth(1)?.to_owned()));
    Some((name, version))
}

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
    file.parent().unwrap_or(Path::new("/")).join(command).is_file()
}

/// The name of a level, and the exit code of the command.
type Level = (&'static str, u8);
const GOOD: Level = ("ok", 0);
/// It cannot be checked here, or it is only worth knowing.
const NOTE: Level = ("note", 0);
/// It works, but not as a user may expect.
const WARNING: Level = ("warning", 0);
const BAD: Level = ("error", 1);
const BAD_CONFIG: Level = ("error", EX_CONFIG);

#[derive(Debug)]
struct Finding {
    check: &'static str,
    level: Level,
    text: String,
    /// What to do about it; empty: nothing, or the text says it.
    remedy: String,
}

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    /// Adds what `check` has found, and what to do about it, if the text does not say it.
    fn add(&mut self, check: &'static str, level: Level, text: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Finding { check, level, text: text.into(), remedy: remedy.into() });
    }

    fn or(&mut self, check: &'static str, level: Level, text: impl FnOnce() -> String) {
        if !self.0.iter().any(|finding| finding.check == check) {
            self.add(check, level, text(), "");
        }
    }

    /// The exit code of the first error, else 0. A warning does not change it.
    fn exit_code(&self) -> u8 {
        self.0.iter().map(|finding| finding.level.1).find(|code| *code > 0).unwrap_or_default()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for Finding { check, level, text: found, remedy } in &self.0 {
            let _infallible = writeln!(text, "{:<7}  {check:<13}  {}", level.0, one_line(found));
            if !remedy.is_empty() {
                let _infallible = writeln!(text, "{:24}-> {}", "", one_line(remedy));
            }
        }
        text
    }

    fn document(&self) -> Value {
        let findings = self.0.iter().map(|Finding { check, level, text, remedy }| {
            let remedy = Some(remedy).filter(|remedy| !remedy.is_empty());
            json!({"check": check, "level": level.0, "text": text, "remedy": remedy})
        });
        json!({ "findings": findings.collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests;
