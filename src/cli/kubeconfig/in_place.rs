//! `credbroker kubeconfig inject`, and `restore`, its inverse.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use credbroker_client::Error;
use credbroker_exec::Failure;

use super::{
    broker_config::BrokerConfig,
    shared::{self, Input, missing, record, summarise},
};
use crate::cli::{
    broker::BrokerArgs,
    console::{Console, EX_CONFIG, fail},
    files::Locked,
};
use credbroker_config::{
    self as config,
    kubeconfig::{self, Edited, KubeFile, Kubeconfig, Mode},
};
use credbroker_credential::{
    document::{Node, ParseError},
    text::listed,
};
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::{Definition, Environment};
use credbroker_units::duration;

/// Change your kubeconfig in place: its exec users request credentials from the broker
///
/// Without a context, this command changes all exec users of KUBECONFIG or ~/.kube/config. It puts
/// the shim in front of their commands. Everything else in the files stays the same, including
/// comments. The command first adds the files to the broker's configuration, and waits until the
/// running broker has read them. `credbroker kubeconfig restore` undoes the change:
///
///   credbroker kubeconfig inject
///   credbroker kubeconfig inject prod
///   credbroker kubeconfig restore
///
/// Commands such as `aws eks update-kubeconfig` write their own stanza again. Run this command after
/// them.
#[derive(Debug, Default, clap::Args)]
#[command(verbatim_doc_comment, mut_arg("timeout", |arg| arg.help(TIMEOUT).default_value("30s")))]
pub(in crate::cli) struct InjectArgs {
    /// Change only the users of these contexts
    contexts: Vec<String>,
    /// Change this file only [default: all files of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Configuration of the broker [default: the file that `credbroker serve` uses]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the name of the shim instead of its path, for clients that have credbroker-exec in their PATH
    #[arg(long)]
    bare: bool,
    #[command(flatten)]
    broker: BrokerArgs,
    /// Whether no broker needs to run.
    #[arg(skip)]
    is_setup: bool,
}

/// Undo `credbroker kubeconfig inject`
///
/// Removes the shim from the users' commands. If a file has not changed since, the command restores
/// it byte for byte. If a file has changed, all changes stay.
///
///   credbroker kubeconfig restore
///   credbroker kubeconfig restore --kubeconfig ~/.kube/config
#[derive(Debug, Default, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct RestoreArgs {
    /// Restore this file only [default: all files of $KUBECONFIG, else ~/.kube/config, and the files that the broker's
    /// configuration names]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Configuration of the broker [default: the file that `credbroker serve` uses]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const TIMEOUT: &str =
    "Longest time to wait until the broker has the definitions, such as 500ms, 10s or 1h30m";

impl InjectArgs {
    /// All of the default kubeconfigs, for `setup`: a broker that starts later reads them with its configuration `config`.
    pub(in crate::cli) fn of_setup(config: &Path) -> Self {
        let broker = BrokerArgs { timeout: Duration::from_secs(30), ..BrokerArgs::default() };
        Self { config: Some(config.to_owned()), broker, is_setup: true, ..Self::default() }
    }
}

pub(in crate::cli) fn inject(args: &InjectArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let environment = console.environment;
    let input = Input::read(args.kubeconfig.as_deref(), console)?;
    let Some(Input { kubeconfig, mut definitions, .. }) = input else { return Ok(EX_CONFIG) };
    let wanted = users_of(&kubeconfig, &args.contexts)?;
    definitions.served.retain(|(name, _)| wanted.is_empty() || wanted.contains(name));
    let shim = shared::shim(console, &args.broker.socket, args.bare)?;
    let brokered = |file: &KubeFile, text: &str| {
        let is_it = |of: &(String, Definition), name: &str| of.0 == name && of.1.file() == file.identity;
        let is_wanted = |name: &str| definitions.served.iter().any(|of| is_it(of, name));
        let dir = file.path.parent().unwrap_or(Path::new("/"));
        parsed(&file.path, kubeconfig::broker(text, dir, &shim, is_wanted))
    };
    let mut changes = Vec::new();
    for file in &kubeconfig.files {
        let edited = brokered(file, &read(&file.path)?)?;
        warn_of_refused(&edited, &file.path, console)?;
        if !edited.changed.is_empty() {
            changes.push(file);
        }
    }
    if changes.is_empty() {
        record(&definitions, environment, console.out)?;
        let why = "every exec user that the broker can serve requests its credential from it";
        return Ok(writeln!(console.out, "Nothing to change: {why}.").map(|()| 0)?);
    }
    let config = BrokerConfig::find(args.config.as_deref(), environment)?;
    // A new configuration replaces the default of the broker, which is all of these files.
    let all = kubeconfig.files.iter().collect();
    let mentioned = if config.exists { &changes } else { &all };
    let mentioned: Vec<_> = mentioned.iter().map(|file| file.path.clone()).collect();
    if config.add(&mentioned, |_, _| Ok(()))? {
        writeln!(console.out, "{}: names the kubeconfigs now", config.path.display())?;
    }
    let of_changed = definitions.served.iter().map(|(_, definition)| definition).filter(|definition| {
        !definition.is_outdated && changes.iter().any(|file| definition.file() == file.identity)
    });
    match missing(of_changed.clone(), (None, args.broker.timeout), &args.broker, environment)? {
        Ok(None) => {}
        Ok(Some(why)) => anyhow::bail!(
            "your kubeconfig was not changed, because the broker did not get the definitions within {}: {why}; name its configuration with --config",
            duration::text(args.broker.timeout)
        ),
        Err(Failure::Broker(Error::Unreachable { .. })) if args.is_setup => {}
        Err(failure) => {
            let code = fail(&failure.into(), console.err);
            let remedy = "run this command again when the broker runs";
            writeln!(console.err, "credbroker: your kubeconfig was not changed; {remedy}")?;
            return Ok(code);
        }
    }
    for file in &changes {
        let done = rewrite(&file.path, console, |text| brokered(file, text))?;
        summarise(&file.path, &done.changed, console.out)?;
    }
    // A request during the reading could get PROVIDER_CHANGED.
    let written = (Some(SystemClock.now().wall), args.broker.timeout);
    drop(missing(of_changed, written, &args.broker, environment)?);
    record(&definitions, environment, console.out)?;
    writeln!(console.out, "Undo it with `credbroker kubeconfig restore`.")?;
    Ok(0)
}

pub(in crate::cli) fn restore(args: &RestoreArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let (mut paths, mode) = Kubeconfig::chosen(args.kubeconfig.as_deref(), console.environment);
    if mode == Mode::Ambient {
        let config = BrokerConfig::find(args.config.as_deref(), console.environment)?;
        paths.extend(config.named()?);
        let mut seen = HashSet::new();
        paths.retain(|path| path.exists() && seen.insert(path.canonicalize().ok()));
    }
    let (mut is_anything, mut code) = (false, 0);
    for path in paths {
        is_anything |= restore_file(&path, console).or_else(|error| {
            // The others are restored nevertheless.
            code = 1;
            writeln!(console.err, "credbroker: {error:#}").map(|()| true)
        })?;
    }
    if !is_anything {
        writeln!(console.out, "Nothing to restore: no user requests its credential from the broker.")?;
    }
    Ok(code)
}

fn restore_file(path: &Path, console: &mut Console<'_>) -> anyhow::Result<bool> {
    let text = read(path)?;
    match kubeconfig::restore(&text, |_| true) {
        Ok(edited) if edited.changed.is_empty() && edited.refused.is_empty() => return Ok(false),
        // What is not YAML cannot be restored. That is an error if it looks like ours.
        Err(_) if !text.contains("credbroker") => return Ok(false),
        _ => {}
    }
    let done = rewrite(path, console, |text| parsed(path, kubeconfig::restore(text, |_| true)))?;
    warn_of_refused(&done, path, console)?;
    if !done.changed.is_empty() {
        writeln!(console.out, "{}: restored {}", path.display(), done.changed.join(", "))?;
    }
    anyhow::ensure!(done.refused.is_empty(), "{} was not restored completely", path.display());
    Ok(true)
}

/// The default kubeconfigs, if one of their users runs a plugin.
pub(in crate::cli) fn with_plugins(environment: &Environment) -> anyhow::Result<Vec<PathBuf>> {
    let kubeconfig = config::read_kubeconfig(&Kubeconfig::default_paths(environment), Mode::Ambient)?;
    let is_served = !config::definitions(&kubeconfig, environment).served.is_empty();
    let files = kubeconfig.files.iter().map(|file| file.path.clone());
    Ok(if is_served { files.collect() } else { Vec::new() })
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

fn parsed<T>(path: &Path, result: Result<T, ParseError>) -> anyhow::Result<T> {
    result.map_err(|error| {
        anyhow::anyhow!("{}:{}:{}: {}", path.display(), error.at.line, error.at.column, error.kind)
    })
}

/// Rewrites the file at `path` under its lock, with owner and mode as they are.
fn rewrite(
    path: &Path,
    console: &mut Console<'_>,
    edit: impl FnOnce(&str) -> anyhow::Result<Edited>,
) -> anyhow::Result<Edited> {
    let file = Locked::take(path)?;
    let text = file.read_text()?.with_context(|| format!("{} not found", path.display()))?;
    let edited = edit(&text)?;
    if edited.text != text {
        file.rewrite(&edited.text)?;
        file.say_if_link("changed", console.out)?;
    }
    Ok(edited)
}

fn warn_of_refused(edited: &Edited, path: &Path, console: &mut Console<'_>) -> anyhow::Result<()> {
    for (name, why) in &edited.refused {
        let (path, name) = (path.display(), name.escape_debug());
        writeln!(console.err, "credbroker: warning: {path}: user `{name}` was not changed: {why}")?;
    }
    Ok(())
}

fn users_of(kubeconfig: &Kubeconfig, contexts: &[String]) -> anyhow::Result<HashSet<String>> {
    let all = kubeconfig.contexts();
    let user = |wanted: &String| {
        let (shown, found) = (wanted.escape_debug(), all.iter().find(|context| context.name == wanted));
        let context = found.with_context(|| {
            format!("context `{shown}` not found; the contexts are: {}", listed(&kubeconfig.context_names()))
        })?;
        let user = context.body.get("user").and_then(Node::as_str).map(str::to_owned);
        user.with_context(|| format!("context `{shown}` has no user"))
    };
    contexts.iter().map(user).collect()
}
