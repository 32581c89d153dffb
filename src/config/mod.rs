//! From files to a checked `Config`. All problems are reported at once, with their positions.

mod broker;
mod cluster_profiles;
mod file;
mod inventory;
mod issuers;
mod keys;
mod kinds;
pub mod kubeconfig;
mod listen;
mod policy;
mod problem;
mod provider;
mod reader;
mod reference;
mod stanza;
mod table;
mod unlisted;

use std::path::{Path, PathBuf};

use crate::{
    document::json,
    plugin::{Definition, Environment, Globs, Providers},
};
use broker::Sections;
use kubeconfig::{Kubeconfig, Mode, variables};
use problem::Report;
use reader::whole;

pub use broker::Limits;
pub use cluster_profiles::{ClusterProfiles, HUB_PROVIDER, HubAccess, Prewarm};
pub use listen::{Listen, group_id};
pub use problem::{ConfigError, Problem};
pub use reference::{json_schema, markdown};

/// A configuration, checked. Immutable.
#[derive(Debug)]
pub struct Config {
    /// The sockets that the broker listens on; at least one.
    pub listen: Vec<Listen>,
    /// Every configured plugin.
    pub providers: Providers,
    /// Limits of the whole broker.
    pub limits: Limits,
    /// The hub that ClusterProfiles are read from; `None`: no ClusterProfiles are read.
    pub cluster_profiles: Option<ClusterProfiles>,
    /// The files that it was read from, including kubeconfigs.
    pub files: Vec<PathBuf>,
}

/// A configuration and the files that it was read from.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// For a log line: which file or files.
    pub source: String,
    /// Warnings, which do not stop the broker.
    pub warnings: Vec<Problem>,
}

/// Finds and reads the configuration: `flag`, else `CREDBROKER_CONFIG`, else the first that exists of
/// `$XDG_CONFIG_HOME/credbroker/config.yaml` and `/etc/credbroker/config.yaml`. With none of them every user of
/// `KUBECONFIG` or `~/.kube/config` that runs a plugin is a provider.
///
/// `env` is the broker's own environment; what plugins inherit of it is decided here.
pub fn load(flag: Option<&Path>, env: &Environment) -> Result<Loaded, ConfigError> {
    let mut report = Report::default();
    let (mut sections, source) = match path(flag, env) {
        Some(path) => (read(&path, env, &mut report), path.display().to_string()),
        None => ambient(env, &mut report),
    };
    report.refuse_duplicates();
    let providers = Providers::new(std::mem::take(&mut sections.providers));
    let Sections { mut listen, limits, cluster_profiles, .. } = sections;
    if listen.is_empty() {
        listen.push(Listen::default());
    }
    let files = std::mem::take(&mut report.files);
    let config = Config { listen, providers, limits, cluster_profiles, files };
    let (config, warnings) = report.finish(Some(config))?;
    Ok(Loaded { config, source, warnings })
}

/// Reads kubeconfigs for a command that rewrites them.
pub fn read_kubeconfig(paths: &[PathBuf], mode: Mode) -> Result<Kubeconfig, ConfigError> {
    let mut report = Report::default();
    let kubeconfig = Kubeconfig::read(paths, mode, &mut report);
    report.finish(Some(kubeconfig)).map(|(kubeconfig, _)| kubeconfig)
}

/// The users of `kubeconfig` that become providers, each with what identifies it, and why others do not. Of several users
/// of one name it is the first one, as client-go reads the list.
pub fn definitions(kubeconfig: &Kubeconfig, env: &Environment) -> (Vec<(String, Definition)>, Vec<Problem>) {
    let mut report = Report::default();
    let providers = kubeconfig.providers(&variables(env, Globs::default()), Mode::Ambient, &mut report);
    let users = kubeconfig.users();
    let is_first =
        |name: &str, file: &Path| users.iter().any(|user| user.name == name && user.identity == file);
    let defined = providers.into_iter().filter_map(|provider| {
        let definition = provider.definition?;
        is_first(&provider.name, definition.file()).then(|| (provider.name.to_string(), definition))
    });
    (defined.collect(), report.warnings)
}

fn path(flag: Option<&Path>, env: &Environment) -> Option<PathBuf> {
    let named = flag.or_else(|| env.set("CREDBROKER_CONFIG").map(Path::new));
    if let Some(path) = named {
        return Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    }
    let home = || env.set("HOME").map(|home| Path::new(home).join(".config"));
    let user = env.set("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home);
    let user = user.map(|dir| dir.join("credbroker/config.yaml"));
    let system = PathBuf::from("/etc/credbroker/config.yaml");
    // A file that cannot be checked counts as present: to skip it would run with another configuration.
    user.into_iter().chain([system]).find(|path| path.try_exists().unwrap_or(true))
}

fn read(path: &Path, env: &Environment, report: &mut Report) -> Sections {
    let Some(bytes) = file::config(path, report) else { return Sections::default() };
    if let Ok(node) = json(&bytes)
        && inventory::is_inventory(&node)
    {
        let providers = inventory::providers(path, &node, env, report);
        if providers.is_empty() && report.problems.is_empty() {
            report.warning(whole(path), "names no provider");
        }
        return Sections { providers, ..Sections::default() };
    }
    match file::tree(path, &bytes, report) {
        Some(node) => broker::sections(path, &node, env, report),
        None => Sections::default(),
    }
}

fn ambient(env: &Environment, report: &mut Report) -> (Sections, String) {
    let paths = Kubeconfig::default_paths(env);
    let kubeconfig = Kubeconfig::read(&paths, Mode::Ambient, report);
    let variables = variables(env, Globs::default());
    let providers = kubeconfig.providers(&variables, Mode::Ambient, report);
    kubeconfig.warn_of_unlisted(&variables, report);
    let source = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    if providers.is_empty() && report.problems.is_empty() {
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
        report.problem(whole(first), problem);
    }
    (Sections { providers, ..Sections::default() }, source)
}

#[cfg(test)]
mod tests;
