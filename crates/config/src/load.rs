//! Our own configuration (`kind: BrokerConfig`): where it is, and what it becomes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    access,
    cluster_profiles::{ClusterProfiles, cluster_profiles},
    endpoints::{AuditTo, Listen, MetricsListen, audit_section, listeners, metrics_section},
    file,
    kubeconfig::{Kubeconfig, Mode, variables},
    problem::{ConfigError, Findings, Location, Problem, Report, Sources},
    provider::{cluster_info, inventory, is_inventory, issuers, policy, section},
    proxy::{ProxySection, proxy},
    schema::{Cursor, Dialect},
    table::{Limits, root},
};
use credbroker_credential::document::Node;
use credbroker_plugin::{ClusterInfo, Environment, Globs, Provider, Providers, access::Rule};
use serde_json::value::RawValue;

/// A configuration, checked. Immutable.
#[derive(Debug, Default)]
pub struct Config {
    /// The sockets that the broker listens on; at least one.
    pub listen: Vec<Listen>,
    /// Every configured plugin.
    pub providers: Providers,
    /// Limits of the whole broker.
    pub limits: Limits,
    /// Where metrics and health are served over HTTP; `None`: nowhere.
    pub metrics: Option<MetricsListen>,
    /// The hub that ClusterProfiles are read from; `None`: no ClusterProfiles are read.
    pub cluster_profiles: Option<ClusterProfiles>,
    /// The access rules; empty: the broker's own user and root may do everything.
    pub access: Vec<Rule>,
    /// Where the proxy listens; `None`: nothing is said about it.
    pub proxy: Option<ProxySection>,
    /// Where decisions and runs are recorded.
    pub audit: AuditTo,
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
/// warnings: the broker must be able to lose its last users. A mistake in a user that the broker runs with is a problem.
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
    let Findings { warnings, sources, .. } = report.finish()?;
    config.files.clone_from(&sources.filled);
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
    let contexts = kubeconfig.read_contexts(&providers, Mode::Ambient, report);
    let source = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    if providers.is_empty() && !contexts.serve() && report.problems() == 0 {
        let first = paths.first().map_or(Path::new("~/.kube/config"), PathBuf::as_path);
        let problem = if kubeconfig.files.is_empty() {
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
    let providers = Providers::new(providers).with_contexts(contexts.contexts, contexts.stored);
    (Config { providers, ..Config::default() }, source)
}

/// Reads a whole configuration, and the kubeconfigs that it names; `None`: it is something else.
fn config(path: &Path, node: &Node, env: &Environment, report: &Report) -> Option<Config> {
    let at = Cursor::new(path, Dialect::Strict, node, report);
    let is = |key, value| node.get(key).and_then(Node::as_str) == Some(value);
    if is("apiVersion", "v1") && is("kind", "Config") {
        return at.reject(format!(
            "is a kubeconfig; name it in a config (`kubeconfigs: [{}]`), or in KUBECONFIG with no config",
            path.display()
        ));
    }
    let root = at.fields(root::SECTION.names)?;
    root::API_VERSION.read(&root);
    root::KIND.read(&root);
    let listen = listeners(&root, env);
    let limits = Limits::read(root::LIMITS.read(&root).as_ref());
    let access = access::rules(&root);
    let has_rules = !access.is_empty();
    let items = root::PROVIDERS.read(&root).unwrap_or_default();
    let mut providers: Vec<_> = items.iter().filter_map(|item| section(item, env, has_rules)).collect();
    let paths = root::KUBECONFIGS.read(&root).unwrap_or_default();
    let paths: Vec<_> = paths.iter().map(|path| root.dir().join(file::expand(path, env))).collect();
    let kubeconfig = users(&root, &paths, env, has_rules, &mut providers);
    let contexts =
        kubeconfig.map(|read| read.read_contexts(&providers, Mode::Named, report)).unwrap_or_default();
    if providers.is_empty() && !contexts.serve() && report.problems() == 0 {
        let problem = "names no provider; add `providers`, or `kubeconfigs: [~/.kube/config]`";
        if paths.is_empty() { at.problem(problem) } else { report.problem_at_start(at.place(), problem) }
    }
    let proxy = proxy(&root, env, &listen);
    let metrics = metrics_section(&root, has_rules);
    let audit = audit_section(&root, has_rules, env);
    let mut cluster_profiles = cluster_profiles(&root, &providers, env);
    let has_hub = cluster_profiles.is_some();
    let policy = Arc::new(policy(&root));
    let hub = cluster_profiles.as_mut().and_then(|section| section.hub.as_mut()?.plugin.as_deref_mut());
    let mut plugins: Vec<_> = providers.iter_mut().chain(hub).collect();
    for provider in &mut plugins {
        provider.policy = Arc::clone(&policy);
    }
    issuers(&root, plugins.into_iter());
    warn_of_unknown_clusters(&at, &providers, has_hub);
    if report.problems() == 0 {
        let names = providers.iter().chain(&contexts.stored).map(|provider| Arc::clone(&provider.name));
        access::warn_of_nothing(&root, &names.collect::<Vec<_>>(), &listen, proxy.as_ref(), has_hub);
    }
    let providers = Providers::new(providers).with_contexts(contexts.contexts, contexts.stored);
    Some(Config {
        listen,
        providers,
        limits,
        metrics,
        cluster_profiles,
        access,
        proxy,
        audit,
        files: Vec::new(),
    })
}

/// Adds the users of the kubeconfigs that run plugins to `all`, and returns the kubeconfigs.
fn users(
    root: &Cursor<'_>,
    paths: &[PathBuf],
    env: &Environment,
    has_rules: bool,
    all: &mut Vec<Provider>,
) -> Option<Kubeconfig> {
    let caller_env = root::CALLER_ENV.read(root).map(Globs::new).unwrap_or_default();
    let report = root.report;
    if paths.is_empty() {
        if let Some(value) = root.get(root::CALLER_ENV.name) {
            value.problem("applies only to the users of `kubeconfigs`, but there are no `kubeconfigs`; set `callerEnv` of each provider instead");
        }
        return None;
    }
    let variables = variables(env, caller_env);
    let kubeconfig = Kubeconfig::read(paths, Mode::Named, report);
    let mut providers = kubeconfig.providers(&variables, Mode::Named, report);
    for provider in &mut providers {
        provider.cluster_info = cluster_info(provider, has_rules);
    }
    kubeconfig.warn_of_unlisted(&variables, report);
    all.extend(providers);
    Some(kubeconfig)
}

/// Warns about `clusterInfo: Match` without clusters to match with.
fn warn_of_unknown_clusters(at: &Cursor<'_>, providers: &[Provider], has_hub: bool) {
    let is_blind = |provider: &&Provider| {
        provider.cluster_info == ClusterInfo::Match && provider.clusters.is_empty() && !has_hub
    };
    for provider in providers.iter().filter(is_blind) {
        at.warning(format!("provider `{}` has `clusterInfo: Match`, but without `clusterProfiles` the broker does not know any cluster, so every caller that sends one is refused", provider.name));
    }
}

/// Reads kubeconfigs for a command that rewrites them.
pub fn read_kubeconfig(paths: &[PathBuf], mode: Mode) -> Result<Kubeconfig, ConfigError> {
    let report = Report::default();
    let kubeconfig = Kubeconfig::read(paths, mode, &report);
    report.finish().map(|_| kubeconfig)
}

/// A kubeconfig as the configuration `config` names it, as an absolute path.
pub fn expanded(config: &Path, kubeconfig: &str, env: &Environment) -> PathBuf {
    config.parent().unwrap_or(Path::new("/")).join(file::expand(kubeconfig, env))
}
