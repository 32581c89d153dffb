//! `credbroker doctor`: checks of the running broker, the programs, the kubeconfig and the machine.

mod finding;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::{Path, PathBuf},
};

use credbroker_client::{
    Error, Socket,
    admin::{Selector, State},
};
use credbroker_exec::Failure;

use self::finding::{
    Findings,
    Level::{self, Note, Ok as Good, Warning},
};
use super::{
    broker::BrokerArgs,
    console::{Console, EX_CONFIG, OutputFormat},
    files::joined,
    overview::Overview,
    programs,
};
use credbroker_config::{
    self as config, ConfigError, Loaded,
    kubeconfig::{Kubeconfig, is_shim},
};
use credbroker_credential::{
    document::Node,
    text::{listed, shown},
};
use credbroker_plugin::{Command, Environment};
use credbroker_runner::find_in_path;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const KUBECONFIG: &str = "kubeconfig";
const BAD: Level = Level::Error(1);
const INJECT: &str = "run `credbroker kubeconfig inject`";
const OUTDATED: &str = "were edited, and the arguments of their credbroker-exec do not describe them";
const ADD: &str = "add the kubeconfig that they were written from to `kubeconfigs` of the broker's configuration, or write \
                   this one again with `credbroker kubeconfig wrap`";
const INSTALL: &str =
    "install it there, or write the kubeconfig again with `credbroker kubeconfig wrap` or `inject`";
const RESTART: &str = "restart the broker, for example with `systemctl --user restart credbroker.service`";

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

/// The checks, each of which adds what it finds.
struct Checks<'a> {
    environment: &'a Environment,
    /// `None`: no broker answers on a socket that is trusted.
    running: Option<Overview>,
    /// The files of the configuration as they are now.
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
        let read = async |client| Overview::read(&client, &Selector::All).await;
        let answer = broker.try_ask(environment, read)?;
        let mut findings = Findings::default();
        match &answer {
            Ok(Overview { broker: info, .. }) => {
                let sockets = info.sockets.join(", ");
                let text = format!("a broker that is trusted answers; it listens on {sockets}");
                findings.add(CHECK, Good, text, "");
            }
            Err(failure) => findings.add(CHECK, Level::Error(failure.exit_code()), failure.line(None), ""),
        }
        let user = rustix::process::geteuid();
        let is_own =
            broker.socket.path.is_none() && environment.set("CREDBROKER_SOCKET").is_none() && !user.is_root();
        if let Err(Failure::Broker(Error::Unreachable { socket, .. })) = &answer
            && is_own
            && socket.candidates().all(|path| path == Path::new(Socket::SYSTEM))
            && socket.ignored_runtime_directory().is_none()
        // else the error says it
        {
            let text = "XDG_RUNTIME_DIR is not set, so your own broker is not looked for; it is not set after su and in cron";
            let remedy =
                format!("run `export XDG_RUNTIME_DIR=/run/user/{}`, or log in with a session", user.as_raw());
            findings.add("session", Warning, text, remedy);
        }
        Ok(Self { environment, running: answer.ok(), loaded: config::load(file, environment), findings })
    }

    /// Whether the files of the configuration are in force.
    fn configuration(&mut self) {
        const CHECK: &str = "configuration";
        let (findings, bad) = (&mut self.findings, Level::Error(EX_CONFIG));
        let remedy = "correct the files; `credbroker validate` lists all problems";
        let Some(Overview { broker: info, .. }) = &self.running else {
            return match &self.loaded {
                Ok(loaded) => findings.add(CHECK, Good, format!("{}: ok", loaded.source), ""),
                Err(error) => findings.add(CHECK, bad, error.to_string(), remedy),
            };
        };
        let state = info.configuration.clone().unwrap_or_default();
        if !state.problems.is_empty() {
            let problems = state.problems.join("; ");
            let text = format!(
                "the broker continues with an earlier version, because its files have problems: {problems}"
            );
            findings.add(CHECK, bad, text, remedy);
        }
        if !state.restart_needed.is_empty() {
            let keys = listed(&state.restart_needed);
            let text = format!("changed, but not in force until a restart: {keys}");
            findings.add(CHECK, Warning, text, RESTART);
        }
        findings.or(CHECK, Good, || format!("in force: {}", listed(&info.config_files)));
    }

    /// Whether the plugins are there and may run.
    fn plugins(&mut self) {
        const CHECK: &str = "plugins";
        if let Some(Overview { providers, .. }) = &self.running {
            for failure in providers.iter().filter_map(|provider| provider.failure.as_ref()) {
                self.findings.add(CHECK, BAD, &failure.message, "");
            }
            let text = || format!("the plugins of all {} providers can run", providers.len());
            return self.findings.or(CHECK, Good, text);
        }
        let Ok(loaded) = &self.loaded else { return };
        for provider in loaded.config.providers.iter() {
            if programs::of_plugin(&provider.command, self.environment).is_none() {
                let (name, command) = (shown(&provider.name), &provider.command);
                let text = format!("provider `{name}`: {command} is not installed");
                self.findings.add(CHECK, BAD, text, "install it, or correct the command");
            }
        }
    }

    /// The credentials whose last run failed.
    fn failures(&mut self) {
        const CHECK: &str = "failures";
        let Some(Overview { credentials, .. }) = &self.running else { return };
        for credential in credentials {
            let Some(failure) = &credential.last_failure else { continue };
            let level = if credential.state == State::Failed { BAD } else { Warning };
            let remedy = format!("then run `credbroker refresh {}`", shown(&credential.provider));
            self.findings.add(CHECK, level, &failure.message, remedy);
        }
        let text = || format!("the last runs of all {} credentials succeeded", credentials.len());
        self.findings.or(CHECK, Good, text);
    }

    /// Whether the broker, this program and the shim, which may be the one at `beside`, are of one version.
    fn versions(&mut self, beside: &Path) {
        const CHECK: &str = "versions";
        let (shim, findings) = (shim(beside, self.environment), &mut self.findings);
        let running = self.running.as_ref().map(|running| &running.broker.version);
        if let Some(version) = running.filter(|version| *version != VERSION) {
            let text = format!("the running broker has version {version}, this program {VERSION}");
            findings.add(CHECK, Warning, text, RESTART);
        }
        match shim {
            None => {
                let text = "credbroker-exec is neither on PATH nor beside this program";
                findings.add(CHECK, BAD, text, "install it");
            }
            Some((path, None)) => {
                findings.add(CHECK, BAD, format!("{path} does not run"), "install credbroker-exec again");
            }
            Some((path, Some(version))) if version != VERSION => {
                let text = format!("{path} has version {version}, this program {VERSION}");
                findings.add(CHECK, Warning, text, "install both from one release");
            }
            Some(_) => {}
        }
        findings.or(CHECK, Good, || format!("the programs have version {VERSION}"));
    }

    /// Whether the users of the kubeconfigs, or of `file`, request their credentials from the broker and it knows them.
    fn kubeconfig(&mut self, file: Option<&Path>) {
        let (paths, mode) = Kubeconfig::chosen(file, self.environment);
        let list = joined(&paths, ":");
        match config::read_kubeconfig(&paths, mode) {
            Ok(kubeconfig) if kubeconfig.files.is_empty() => {
                self.findings.add(KUBECONFIG, Note, format!("there is none: {list}"), "");
            }
            Ok(kubeconfig) => self.users(&kubeconfig, &list),
            Err(error) => {
                let bad = Level::Error(EX_CONFIG);
                self.findings.add(KUBECONFIG, bad, error.to_string(), "correct the file");
            }
        }
    }

    fn users(&mut self, kubeconfig: &Kubeconfig, list: &str) {
        let config::Definitions { served, warnings, .. } = config::definitions(kubeconfig, self.environment);
        let served: HashMap<_, _> = served.into_iter().collect();
        let providers = self.running.as_ref().map(|running| running.providers.iter());
        let known: Option<HashSet<_>> =
            providers.map(|providers| providers.filter_map(|known| known.definition.as_deref()).collect());
        let [mut brokered, mut plain, mut outdated, mut unknown, mut broken] = [const { Vec::new() }; 5];
        for user in kubeconfig.users() {
            let Some(exec) = user.body.get("exec") else { continue };
            let (name, definition) = (user.name.to_owned(), served.get(user.name));
            if !is_shim(exec) {
                plain.extend(definition.map(|_| name));
                continue;
            }
            let digest = definition.map(|known| &*known.digest).or_else(|| argument(exec, "--definition"));
            let is_unknown = |digest| known.as_ref().is_some_and(|known| !known.contains(digest));
            if definition.is_some_and(|definition| definition.is_outdated) {
                outdated.push(name.clone());
            } else if digest.is_some_and(is_unknown) {
                unknown.push(name.clone());
            }
            if !is_command_there(exec, user.file, self.environment) {
                broken.push(name.clone());
            }
            brokered.push(name);
        }
        if !(outdated.is_empty() && unknown.is_empty() && broken.is_empty()) {
            brokered.clear();
        }
        for (level, names, text, remedy) in [
            (BAD, outdated, format!("these users of {list} {OUTDATED}"), INJECT),
            (BAD, unknown, format!("the broker does not know the definitions of these users of {list}"), ADD),
            (
                BAD,
                broken,
                format!("these users of {list} name a credbroker-exec that does not exist"),
                INSTALL,
            ),
            (Good, brokered, format!("{list}: these users use the broker"), ""),
            (Warning, plain, format!("these users of {list} run their plugin themselves"), INJECT),
        ] {
            if !names.is_empty() {
                self.findings.add(KUBECONFIG, level, format!("{text}: {}", listed(&names)), remedy);
            }
        }
        for problem in warnings {
            self.findings.add(KUBECONFIG, Warning, problem.to_string(), "correct the kubeconfig");
        }
        self.findings.or(KUBECONFIG, Note, || format!("no user of {list} runs an exec plugin"));
    }

    /// Whether programs that a desktop starts find what a shell finds: they have the environment of the user manager.
    fn graphical_path(&mut self) {
        const CHECK: &str = "desktop PATH";
        let shown = programs::systemctl(&["show-environment"], self.environment);
        let Some(shown) = shown.filter(|ran| ran.succeeded) else {
            return self.findings.add(CHECK, Note, "there is no systemd user manager here", "");
        };
        let path = shown.stdout.lines().find_map(|line| line.strip_prefix("PATH=")).unwrap_or_default();
        let own = self.environment.get("PATH").unwrap_or_default();
        let providers = self.loaded.iter().flat_map(|loaded| loaded.config.providers.iter());
        let commands = providers.filter_map(|provider| match &provider.command {
            Command::Name(name) => Some(name.clone()),
            Command::Path(_) => None,
        });
        let names: BTreeSet<String> = commands.chain(["credbroker-exec".to_owned()]).collect();
        let is_missing =
            |name: &String| find_in_path(name, own).is_some() && find_in_path(name, path.as_ref()).is_none();
        let missing: Vec<_> = names.into_iter().filter(is_missing).collect();
        if !missing.is_empty() {
            let missing = listed(&missing);
            self.findings.add(
                CHECK,
                Warning,
                format!("programs that the desktop or systemd starts do not find {missing}, which your shell does"),
                "run `systemctl --user import-environment PATH`, or set PATH in ~/.config/environment.d/, and restart the broker",
            );
        }
        let text = "programs that the desktop or systemd starts find the plugins too";
        self.findings.or(CHECK, Good, || text.to_owned());
    }

    /// Whether the wall clock is synchronised: with a wrong one, every credential looks expired or lives too long.
    fn clock(&mut self) {
        const CHECK: &str = "clock";
        let args = ["show", "--property=NTPSynchronized", "--value"];
        let ran = programs::run("timedatectl", &args, self.environment).filter(|ran| ran.succeeded);
        match ran.as_ref().map(|ran| ran.stdout.trim()) {
            Some("yes") => self.findings.add(CHECK, Good, "synchronised", ""),
            Some("no") => self.findings.add(
                CHECK,
                Warning,
                "not synchronised; with a wrong clock, credentials seem to be expired or live too long",
                "start a time service, for example with `timedatectl set-ntp true`",
            ),
            _ => self.findings.add(CHECK, Note, "cannot determine whether the clock is synchronised", ""),
        }
    }
}

/// The shim, and the version that it prints.
fn shim(beside: &Path, environment: &Environment) -> Option<(String, Option<String>)> {
    let (path, is_subcommand) = programs::shim(beside, environment);
    let name = path.to_str().filter(|_| path.is_file())?.to_owned();
    let args: &[&str] = if is_subcommand { &["shim", "--version"] } else { &["--version"] };
    let ran = programs::run(&name, args, environment).filter(|ran| ran.succeeded);
    let version = ran.and_then(|ran| Some(ran.stdout.split_whitespace().nth(1)?.to_owned()));
    Some((name, version))
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
    file.parent().unwrap_or(Path::new("/")).join(command).is_file()
}
