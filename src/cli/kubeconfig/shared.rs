//! What the commands read, the file that they write, the shim that they name there, and what becomes of definitions.

use std::{
    collections::{BTreeSet, HashSet},
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use credbroker_client::{Client, Error};
use credbroker_exec::{Failure, original_line, originals};

use crate::cli::{
    broker::{BrokerArgs, SocketArg},
    console::Console,
    files::{self, Locked, is_same, joined},
    programs,
    screen::explained,
};
use credbroker_config::{
    self as config, Definitions,
    kubeconfig::{Kubeconfig, Mode, Shim},
};
use credbroker_credential::document::Node;
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::{Definition, Environment};

pub(super) struct Input {
    pub(super) paths: Vec<PathBuf>,
    pub(super) kubeconfig: Kubeconfig,
    pub(super) definitions: Definitions,
}

impl Input {
    /// Reads the kubeconfig at `named`, else those of the environment, and warns of users that stay as they are. `None`:
    /// they have problems, which were printed.
    pub(super) fn read(named: Option<&Path>, console: &mut Console<'_>) -> io::Result<Option<Self>> {
        let (paths, mode) = Kubeconfig::chosen(named, console.environment);
        let kubeconfig = match config::read_kubeconfig(&paths, mode) {
            Ok(kubeconfig) => kubeconfig,
            Err(error) => return writeln!(console.err, "{error}").map(|()| None),
        };
        let definitions = config::definitions(&kubeconfig, console.environment);
        for problem in &definitions.warnings {
            writeln!(console.err, "{}: warning: {}", problem.place(), problem.message)?;
        }
        Ok(Some(Self { paths, kubeconfig, definitions }))
    }

    pub(super) fn nothing(&self) -> String {
        let list = joined(&self.paths, ":");
        match (list.as_str(), self.kubeconfig.files.as_slice()) {
            ("", _) => {
                "no kubeconfig: neither KUBECONFIG nor HOME is set; name one with --kubeconfig".to_owned()
            }
            (_, []) => format!("no kubeconfig: {list} not found; name one with --kubeconfig or KUBECONFIG"),
            _ => format!("nothing to wrap: no user of {list} runs an exec plugin that the broker can serve"),
        }
    }
}

/// The file to write. `-` is standard output: `None`.
pub(super) fn output(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| *path != Path::new("-"))
}

/// Locks `path`, which must not be one of `inputs`. A file that is not empty is only replaced if `may_replace` says so:
/// `command` wrote it, or a user wants it. It is asked when no other program can change the file, with the kubeconfig that
/// is there and has no problem, which is returned too.
pub(super) fn open(
    path: &Path,
    inputs: &[PathBuf],
    command: &str,
    may_replace: impl FnOnce(Option<&Node>) -> bool,
) -> anyhow::Result<(Locked, Option<Node>)> {
    if let Some(input) = inputs.iter().find(|input| is_same(path, input)) {
        let (shown, input) = (path.display(), input.display());
        anyhow::bail!(
            "{shown} is one of the kubeconfigs that were read ({input}), which are never written; name another file"
        );
    }
    let file = Locked::take(path)?;
    let contents = file.read()?.unwrap_or_default();
    let found = config::read_kubeconfig(&[std::path::absolute(path)?], Mode::Named).ok();
    let earlier = found.and_then(|found| Some(found.files.first()?.root.clone()));
    anyhow::ensure!(
        contents.trim_ascii().is_empty() || may_replace(earlier.as_ref()),
        "{} has contents that `credbroker kubeconfig {command}` did not write; name another file, or overwrite it with --force",
        path.display()
    );
    Ok((file, earlier))
}

pub(super) fn summarise(path: &Path, names: &[String], out: &mut dyn Write) -> io::Result<()> {
    let users =
        if names.len() == 1 { "user requests its credential" } else { "users request their credentials" };
    writeln!(out, "{}: {} {users} from the broker: {}", path.display(), names.len(), names.join(", "))
}

/// How a kubeconfig runs the shim: the one that `PATH` leads to, else that of the console, by its absolute path; with `bare`
/// by its name. It uses the flags of `socket` that are set, else its defaults.
pub(super) fn shim(console: &Console<'_>, socket: &SocketArg, bare: bool) -> anyhow::Result<Shim> {
    let flags = flags(socket)?;
    if bare {
        return Ok(Shim { command: "credbroker-exec".to_owned(), is_subcommand: false, flags });
    }
    let (path, is_subcommand) = programs::shim(console.shim, console.environment);
    let command = path.to_str().context("the path of credbroker-exec is not UTF-8")?.to_owned();
    anyhow::ensure!(
        path.is_absolute() && path.exists(),
        "credbroker-exec is neither on PATH nor at {command}; install it"
    );
    Ok(Shim { command, is_subcommand, flags })
}

/// `--socket` and `--broker-uid`, checked. The path is absolute, because a kubeconfig can be used in any directory.
fn flags(socket: &SocketArg) -> anyhow::Result<Vec<(String, String)>> {
    socket.locate(&Environment::default())?;
    let absolute = |path: &OsString| {
        let is_url = path.as_encoded_bytes().starts_with(b"unix:");
        if is_url { Ok(path.clone()) } else { std::path::absolute(path).map(OsString::from) }
    };
    let path = socket.path.as_ref().map(absolute).transpose()?;
    let mut flags = Vec::new();
    for (flag, value) in [("--socket", path), ("--broker-uid", socket.broker_uid.clone())] {
        let text = value.map(OsString::into_string).transpose();
        let text = text.ok().context("the path of the socket is not UTF-8")?;
        flags.extend(text.map(|text| (flag.to_owned(), text)));
    }
    Ok(flags)
}

/// Where the plugins are recorded that the shim may run where no broker answers; `None`: the user has no home.
pub(in crate::cli) fn recorded_plugins(environment: &Environment) -> Option<PathBuf> {
    let variable = |name| environment.set(name).map(Path::new);
    originals(variable("XDG_STATE_HOME"), variable("HOME"))
}

/// Records what the definitions run, and shows it. A plugin that is not installed is left out.
pub(super) fn record(
    definitions: &Definitions,
    environment: &Environment,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(path) = recorded_plugins(environment) else { return Ok(()) };
    let (mut lines, mut programs) = (Vec::new(), BTreeSet::new());
    let current = definitions.served.iter().filter(|(_, definition)| !definition.is_outdated);
    for digest in current.map(|(_, definition)| &*definition.digest) {
        let command = definitions.commands.get(digest);
        let program = command.and_then(|command| programs::of_plugin(command, environment));
        lines.extend(program.as_ref().and_then(|program| Some((digest, original_line(digest, program)?))));
        programs.extend(program);
    }
    if lines.is_empty() {
        return Ok(());
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    files::check_directory(directory)?;
    files::private_directory(directory)?;
    let file = Locked::take(&path)?;
    let earlier = file.read_text()?.unwrap_or_default();
    let is_kept = |line: &&str| !lines.iter().any(|(digest, _)| line.starts_with(digest));
    let text: String = earlier.split_inclusive('\n').filter(is_kept).collect();
    file.write_private(&(text + &lines.iter().map(|(_, line)| line.as_str()).collect::<String>()))?;
    let programs = joined(programs, ", ");
    writeln!(out, "If no broker answers, clients run the plugins themselves: {programs}")?;
    Ok(())
}

const PAUSE: Duration = Duration::from_millis(100);

/// Asks the broker until it has all `definitions`, and has read its files after `written`, for this long and at least once.
/// Returns why it has not.
pub(super) fn missing<'a>(
    definitions: impl IntoIterator<Item = &'a Definition>,
    (written, patience): (Option<SystemTime>, Duration),
    broker: &BrokerArgs,
    environment: &Environment,
) -> anyhow::Result<Result<Option<String>, Failure>> {
    let digests: HashSet<_> = definitions.into_iter().map(|known| &*known.digest).collect();
    let explanation = "credbroker: waiting until the broker has read the definitions ...";
    let until = SystemClock.now().boot + patience;
    let ask = async |client: Client| loop {
        let providers = client.admin().providers().await?;
        let known: HashSet<_> =
            providers.iter().filter_map(|provider| provider.definition.as_deref()).collect();
        let count = digests.difference(&known).count();
        let broker = client.admin().broker_info().await?;
        let state = broker.configuration.unwrap_or_default();
        if count == 0 && (written.is_none() || written < state.read_at) {
            return Ok(None);
        }
        if SystemClock.now().boot >= until {
            let read = broker.config_files.join(", ");
            return Ok(Some(match state.problems.join("; ").as_str() {
                "" => format!("it does not have {count} of the definitions, and reads {read}"),
                problems => format!("its files have problems: {problems}"),
            }));
        }
        tokio::time::sleep(PAUSE).await;
    };
    broker.try_ask(environment, async |client| explained(explanation, ask(client)).await)
}

/// What to do until the broker has all of `definitions`.
pub(super) fn advice(
    definitions: &[(String, Definition)],
    broker: &BrokerArgs,
    environment: &Environment,
) -> anyhow::Result<String> {
    let definitions = definitions.iter().map(|(_, definition)| definition);
    let mut files: Vec<_> = definitions.clone().map(Definition::file).collect();
    files.dedup();
    let (list, path) = (joined(&files, ", "), joined(&files, ":"));
    let add = format!(
        "Add `kubeconfigs: [{list}]` to its configuration, or if it has none set KUBECONFIG={path} for it and"
    );
    Ok(match missing(definitions, (None, Duration::ZERO), broker, environment)? {
        Ok(None) => "The running broker has all of these providers.".to_owned(),
        Ok(Some(why)) => format!(
            "Requests of some users fail until the running broker knows them: {why}. {add} restart it."
        ),
        Err(Failure::Broker(Error::Unreachable { .. })) => format!("No broker is running. {add} start it."),
        Err(failure) => format!("The broker did not say which providers it has: {}.", failure.line(None)),
    })
}

#[cfg(test)]
mod tests;
