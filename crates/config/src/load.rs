//! Finds the files, and reads them.

use std::path::{Path, PathBuf};

use super::{
    broker::{Config, config},
    endpoints::Listen,
    file,
    kubeconfig::{Kubeconfig, Mode, variables},
    problem::{ConfigError, Location, Problem, Report, Sources},
    provider::{inventory, is_inventory},
};
use credbroker_plugin::{Environment, Globs, Providers};
use serde_json::value::RawValue;

/// A configuration and the files that it was read from.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// For a log line: which file or files.
    pub source: String,
    /// Warnings, which do not stop the broker.
    pub warnings: Vec<Problem>,
    /// The files that it depends on.
    pub sources: Sources,
}

/// Finds and reads the configuration: `flag`, else `CREDBROKER_CONFIG`, else the first that exists of
/// `$XDG_CONFIG_HOME/credbroker/config.yaml` and `/etc/credbroker/config.yaml`. With none of them every user of
/// `KUBECONFIG` or `~/.kube/config` that runs a plugin is a provider.
///
/// `env` is the broker's own environment; what plugins inherit of it is decided here.
pub fn load(flag: Option<&Path>, env: &Environment) -> Result<Loaded, ConfigError> {
    load_with(flag, env, Report::default())
}

/// As [`load`], for a broker that runs with `providers`. A kubeconfig that is gone, and the lack of any provider, are only
/// warnings: the broker must be able to lose its last users. A user of an unnamed kubeconfig that the broker runs with is
/// not left out for a mistake in it; the mistake is a problem.
pub fn reload(flag: Option<&Path>, env: &Environment, providers: &Providers) -> Result<Loaded, ConfigError> {
    load_with(flag, env, Report::running(providers))
}

fn load_with(flag: Option<&Path>, env: &Environment, report: Report) -> Result<Loaded, ConfigError> {
    let (mut config, source) = match path(flag, env, &report) {
        Some(path) => (read(&path, env, &report), path.display().to_string()),
        None => ambient(env, &report),
    };
    if config.listen.is_empty() {
        config.listen.push(Listen::default());
    }
    config.files.clone_from(&report.findings().files);
    let sources = report.findings().sources.clone();
    let (config, warnings) = report.finish(config)?;
    Ok(Loaded { config, source, warnings, sources })
}

/// The configuration file that [`load`] reads, and whether it exists. If there is none, it is where a user's own one would
/// be; `None`: there is no home directory.
pub fn place(flag: Option<&Path>, env: &Environment) -> Option<(PathBuf, bool)> {
    if let Some(path) = path(flag, env, &Report::default()) {
        let exists = path.try_exists().unwrap_or(true);
        return Some((path, exists));
    }
    Some((user_file(env)?, false))
}

fn user_file(env: &Environment) -> Option<PathBuf> {
    let directory = env.base_directory("XDG_CONFIG_HOME", ".config")?;
    Some(directory.join("credbroker/config.yaml"))
}

fn path(flag: Option<&Path>, env: &Environment, report: &Report) -> Option<PathBuf> {
    let named = flag.or_else(|| env.set("CREDBROKER_CONFIG").map(Path::new));
    if let Some(path) = named {
        return Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    }
    let places = user_file(env).into_iter().chain([PathBuf::from("/etc/credbroker/config.yaml")]);
    let places: Vec<_> = places.inspect(|path| report.follow(path)).collect();
    // A file that cannot be checked counts as present: to skip it would run with another configuration.
    places.into_iter().find(|path| path.try_exists().unwrap_or(true))
}

fn read(path: &Path, env: &Environment, report: &Report) -> Config {
    let Some(bytes) = file::config(path, report) else { return Config::default() };
    let Some(node) = file::tree(path, &bytes, report) else { return Config::default() };
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    if is_inventory(&node) && serde_json::from_slice::<&RawValue>(text).is_ok() {
        let providers = inventory(path, &node, env, report);
        if providers.is_empty() && report.problems() == 0 {
            report.warning(Location::whole(path), "names no provider");
        }
        return Config { providers: Providers::new(providers), ..Config::default() };
    }
    config(path, &node, env, report).unwrap_or_default()
}

fn ambient(env: &Environment, report: &Report) -> (Config, String) {
    let paths = Kubeconfig::default_paths(env);
    let kubeconfig = Kubeconfig::read(&paths, Mode::Ambient, report);
    let variables = variables(env, Globs::default());
    let providers = kubeconfig.providers(&variables, Mode::Ambient, report);
    kubeconfig.warn_of_unlisted(&variables, report);
    let source = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    if providers.is_empty() && report.problems() == 0 {
        let first = paths.first().map_or(Path::new("~/.kube/config"), PathBuf::as_path);
        let problem = if kubeconfig.files().is_empty() {
            format!(
                "there is neither a credbroker config nor a kubeconfig{}; specify one with `--config FILE` or KUBECONFIG",
                if paths.len() > 1 { format!(" ({source})") } else { String::new() }
            )
        } else {
            format!(
                "no user of {source} runs an exec plugin, so there is no provider; users that run credbroker's shim do not count (did you mean your original kubeconfig?)"
            )
        };
        report.problem_at_start(Location::whole(first), problem);
    }
    (Config { providers: Providers::new(providers), ..Config::default() }, source)
}

/// Reads kubeconfigs for a command that rewrites them.
pub fn read_kubeconfig(paths: &[PathBuf], mode: Mode) -> Result<Kubeconfig, ConfigError> {
    let report = Report::default();
    let kubeconfig = Kubeconfig::read(paths, mode, &report);
    report.finish(kubeconfig).map(|(kubeconfig, _)| kubeconfig)
}

/// A kubeconfig as the configuration `config` names it, as an absolute path.
pub fn expanded(config: &Path, kubeconfig: &str, env: &Environment) -> PathBuf {
    config.parent().unwrap_or(Path::new("/")).join(file::expand(kubeconfig, env))
}
