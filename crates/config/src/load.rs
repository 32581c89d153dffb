//! Finds the files, and reads them.

use std::path::{Path, PathBuf};

use super::{
    Config, ConfigError, Listen, Problem, Sources,
    broker::{self, Sections},
    file, inventory,
    kubeconfig::{Kubeconfig, Mode, variables},
    problem::Report,
    reader::whole,
};
use credbroker_credential::document::json;
use credbroker_plugin::{Environment, Globs, Providers};

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

fn load_with(flag: Option<&Path>, env: &Environment, mut report: Report) -> Result<Loaded, ConfigError> {
    let (mut sections, source) = match path(flag, env, &mut report) {
        Some(path) => (read(&path, env, &mut report), path.display().to_string()),
        None => ambient(env, &mut report),
    };
    report.refuse_duplicates();
    let providers = Providers::new(std::mem::take(&mut sections.providers));
    let Sections { mut listen, limits, metrics, cluster_profiles, access, audit, .. } = sections;
    if listen.is_empty() {
        listen.push(Listen::default());
    }
    let files = std::mem::take(&mut report.files);
    let config = Config { listen, providers, limits, metrics, cluster_profiles, access, audit, files };
    let sources = report.sources.clone();
    let (config, warnings) = report.finish(Some(config))?;
    Ok(Loaded { config, source, warnings, sources })
}

/// The configuration file that [`load`] reads, and whether it exists. If there is none, it is where a user's own one would
/// be; `None`: there is no home directory.
pub fn place(flag: Option<&Path>, env: &Environment) -> Option<(PathBuf, bool)> {
    let mut report = Report::default();
    match path(flag, env, &mut report) {
        Some(path) => {
            let exists = path.try_exists().unwrap_or(true);
            Some((path, exists))
        }
        None if report.sources.followed.len() > 1 => Some((report.sources.followed.swap_remove(0), false)),
        None => None,
    }
}

fn path(flag: Option<&Path>, env: &Environment, report: &mut Report) -> Option<PathBuf> {
    let named = flag.or_else(|| env.set("CREDBROKER_CONFIG").map(Path::new));
    if let Some(path) = named {
        return Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    }
    let user = env.base_directory("XDG_CONFIG_HOME", ".config");
    let user = user.map(|dir| dir.join("credbroker/config.yaml"));
    let system = PathBuf::from("/etc/credbroker/config.yaml");
    let places = user.into_iter().chain([system]).inspect(|path| report.sources.follow(path));
    let places: Vec<_> = places.collect();
    // A file that cannot be checked counts as present: to skip it would run with another configuration.
    places.into_iter().find(|path| path.try_exists().unwrap_or(true))
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
        report.problem_at_start(whole(first), problem);
    }
    (Sections { providers, ..Sections::default() }, source)
}
