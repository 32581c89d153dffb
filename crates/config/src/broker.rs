//! Our own configuration: `kind: BrokerConfig`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    access,
    audit::{self, AuditTo},
    cluster_profiles::{ClusterProfiles, cluster_profiles},
    fields::Fields,
    file::expand,
    issuers::issuers,
    kubeconfig::{Kubeconfig, Mode, variables},
    limits::{Limits, limits_section},
    listen::{Listen, listeners},
    metrics::{MetricsListen, metrics_section},
    policy::policy,
    problem::Report,
    provider::section,
    reader::{Cursor, Dialect},
    table,
};
use credbroker_credential::document::Node;
use credbroker_plugin::{ClusterInfo, Environment, Provider, access::Rule};

/// The sections of a configuration.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub(super) listen: Vec<Listen>,
    pub(super) limits: Limits,
    pub(super) metrics: Option<MetricsListen>,
    pub(super) providers: Vec<Provider>,
    pub(super) cluster_profiles: Option<ClusterProfiles>,
    pub(super) access: Vec<Rule>,
    pub(super) audit: AuditTo,
}

/// Reads a whole configuration, and the kubeconfigs that it names.
pub(super) fn sections(path: &Path, node: &Node, env: &Environment, report: &mut Report) -> Sections {
    let root = Cursor::new(path, Dialect::Strict, node);
    if [("apiVersion", "v1"), ("kind", "Config")]
        .iter()
        .all(|(key, is)| node.get(key).and_then(Node::as_str) == Some(is))
    {
        root.problem(
            report,
            format!(
                "is a kubeconfig; name it in a config (`kubeconfigs: [{}]`), or in KUBECONFIG with no config",
                path.display()
            ),
        );
        return Sections::default();
    }
    let Some(fields) = root.section(&table::root::SECTION, report) else { return Sections::default() };
    table::root::API_VERSION.read(&fields, report);
    table::root::KIND.read(&fields, report);
    let listen = listeners(&fields, env, report);
    let limits =
        fields.at(&table::root::LIMITS).map(|section| limits_section(&section, report)).unwrap_or_default();
    let dir = path.parent().unwrap_or(Path::new("/"));
    let items = fields.at(&table::root::PROVIDERS).map(|items| items.items(report)).unwrap_or_default();
    let mut providers: Vec<_> = items.iter().filter_map(|item| section(item, dir, env, report)).collect();
    let caller_env = table::root::CALLER_ENV.read(&fields, report).unwrap_or_default();
    let paths = kubeconfigs(&fields, dir, env, report);
    if !paths.is_empty() {
        let variables = variables(env, caller_env);
        let kubeconfig = Kubeconfig::read(&paths, Mode::Named, report);
        providers.extend(kubeconfig.providers(&variables, Mode::Named, report));
        kubeconfig.warn_of_unlisted(&variables, report);
    } else if let Some(value) = fields.at(&table::root::CALLER_ENV) {
        value.problem(
            report,
            "is for the users of `kubeconfigs`, and there are none; each provider has its own `callerEnv`",
        );
    }
    if providers.is_empty() && report.problems.is_empty() {
        let problem = "names no provider; add `providers`, or `kubeconfigs: [~/.kube/config]`";
        if paths.is_empty() {
            root.problem(report, problem);
        } else {
            report.problem_at_start(root.place(), problem);
        }
    }
    let at = fields.at(&table::root::ACCESS);
    let access = access::rules(at.as_ref(), report);
    if !access.is_empty() {
        access::match_by_default(&items, &mut providers);
    }
    let metrics = fields.at(&table::root::METRICS);
    let metrics = metrics.and_then(|section| metrics_section(&section, !access.is_empty(), report));
    let audit = audit::audit(fields.at(&table::root::AUDIT).as_ref(), !access.is_empty(), env, report);
    let section = fields.at(&table::root::CLUSTER_PROFILES);
    let mut cluster_profiles =
        section.and_then(|section| cluster_profiles(&section, dir, &providers, env, report));
    let policy = Arc::new(policy(&fields, report));
    for provider in
        providers.iter_mut().chain(cluster_profiles.as_mut().and_then(ClusterProfiles::plugin_mut))
    {
        provider.policy = Arc::clone(&policy);
    }
    let hub = cluster_profiles.as_mut().and_then(ClusterProfiles::plugin_mut);
    let per_issuer = limits.plugin_runs_per_provider;
    issuers(fields.at(&table::root::ISSUERS).as_ref(), per_issuer, providers.iter_mut().chain(hub), report);
    warn_of_unknown_clusters(&root, &providers, cluster_profiles.is_some(), report);
    if let Some(at) = at.filter(|_| report.problems.is_empty()) {
        access::warn_of_nothing(&at, (&providers, &listen), cluster_profiles.is_some(), report);
    }
    Sections { listen, limits, metrics, providers, cluster_profiles, access, audit }
}

/// Warns about `clusterInfo: match` without clusters to match with.
fn warn_of_unknown_clusters(root: &Cursor<'_>, providers: &[Provider], fleet: bool, report: &mut Report) {
    let blind = |provider: &&Provider| {
        provider.cluster_info == ClusterInfo::Match && provider.clusters.is_empty() && !fleet
    };
    for provider in providers.iter().filter(blind) {
        root.warning(report, format!("provider `{}` has `clusterInfo: match`, but without `clusterProfiles` the broker does not know any cluster, so every caller that sends one is refused", provider.name));
    }
}

fn kubeconfigs(fields: &Fields<'_>, dir: &Path, env: &Environment, report: &mut Report) -> Vec<PathBuf> {
    let items = fields.at(&table::root::KUBECONFIGS).map(|items| items.items(report)).unwrap_or_default();
    let mut paths = Vec::new();
    for item in &items {
        match item.text(report) {
            Some("") => item.problem(report, "must be the path of a kubeconfig"),
            Some(path) => paths.push(dir.join(expand(path, env))),
            None => {}
        }
    }
    paths
}
