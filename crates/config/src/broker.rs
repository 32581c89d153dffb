//! Our own configuration: `kind: BrokerConfig`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    access,
    cluster_profiles::{ClusterProfiles, cluster_profiles},
    endpoints::{AuditTo, Listen, MetricsListen, audit_section, listeners, metrics_section},
    file::expand,
    kubeconfig::{Kubeconfig, Mode, variables},
    problem::Report,
    provider::{cluster_info, issuers, policy, section},
    reader::{Cursor, Dialect},
    table::{Limits, root},
};
use credbroker_credential::document::Node;
use credbroker_plugin::{ClusterInfo, Environment, Globs, Provider, Providers, access::Rule};

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
    /// Where decisions and runs are recorded.
    pub audit: AuditTo,
    /// The files that it was read from, including kubeconfigs.
    pub files: Vec<PathBuf>,
}

/// Reads a whole configuration, and the kubeconfigs that it names; `None`: it is something else.
pub(super) fn config(path: &Path, node: &Node, env: &Environment, report: &Report) -> Option<Config> {
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
    let dir = path.parent().unwrap_or(Path::new("/"));
    let access = access::rules(&root);
    let has_rules = !access.is_empty();
    let items = root::PROVIDERS.read(&root).unwrap_or_default();
    let mut providers: Vec<_> = items.iter().filter_map(|item| section(item, dir, env, has_rules)).collect();
    let paths = root::KUBECONFIGS.read(&root).unwrap_or_default();
    let paths: Vec<_> = paths.iter().map(|path| dir.join(expand(path, env))).collect();
    providers.extend(users(&root, &paths, env, has_rules));
    if providers.is_empty() && report.problems() == 0 {
        let problem = "names no provider; add `providers`, or `kubeconfigs: [~/.kube/config]`";
        if paths.is_empty() { at.problem(problem) } else { report.problem_at_start(at.place(), problem) }
    }
    let metrics = metrics_section(&root, has_rules);
    let audit = audit_section(&root, has_rules, env);
    let mut cluster_profiles = cluster_profiles(&root, dir, &providers, env);
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
        access::warn_of_nothing(&root, &providers, &listen, has_hub);
    }
    let providers = Providers::new(providers);
    Some(Config { listen, providers, limits, metrics, cluster_profiles, access, audit, files: Vec::new() })
}

/// The providers of the kubeconfigs `paths`.
fn users(root: &Cursor<'_>, paths: &[PathBuf], env: &Environment, has_rules: bool) -> Vec<Provider> {
    let caller_env = root::CALLER_ENV.read(root).map(Globs::new).unwrap_or_default();
    let report = root.report;
    if paths.is_empty() {
        if let Some(value) = root.get(root::CALLER_ENV.name) {
            value.problem("is for the users of `kubeconfigs`, and there are none; each provider has its own `callerEnv`");
        }
        return Vec::new();
    }
    let variables = variables(env, caller_env);
    let kubeconfig = Kubeconfig::read(paths, Mode::Named, report);
    let mut providers = kubeconfig.providers(&variables, Mode::Named, report);
    for provider in &mut providers {
        provider.cluster_info = cluster_info(provider, has_rules);
    }
    kubeconfig.warn_of_unlisted(&variables, report);
    providers
}

/// Warns about `clusterInfo: match` without clusters to match with.
fn warn_of_unknown_clusters(at: &Cursor<'_>, providers: &[Provider], has_hub: bool) {
    let is_blind = |provider: &&Provider| {
        provider.cluster_info == ClusterInfo::Match && provider.clusters.is_empty() && !has_hub
    };
    for provider in providers.iter().filter(is_blind) {
        at.warning(format!("provider `{}` has `clusterInfo: match`, but without `clusterProfiles` the broker does not know any cluster, so every caller that sends one is refused", provider.name));
    }
}
