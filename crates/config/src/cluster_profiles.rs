//! The section `clusterProfiles`: the hub that the fleet's inventory is read from, and what is fetched ahead.

use std::{collections::HashSet, num::NonZeroUsize, sync::Arc};

use super::{
    file::expand,
    kubeconfig::{HubKubeconfig, Kubeconfig, Mode},
    problem::suggestion,
    schema::Cursor,
    table::{cluster_profiles as table, prewarm, root},
};
use credbroker_plugin::{Environment, Globs, ProfileName, Provider, cluster_profile::EndpointRules};

/// The name of the plugin of the hub's user. No configured provider has this name.
pub const HUB_PROVIDER: &str = "(hub)";
const IN_CLUSTER: &str = "InCluster";

/// Which ClusterProfiles are read, and from where.
#[derive(Clone, Debug)]
pub struct ClusterProfiles {
    /// The kubeconfig of the hub; `None`: the service account of the pod that the broker runs in.
    pub hub: Option<HubKubeconfig>,
    /// Namespaces to read; empty: all.
    pub namespaces: Vec<String>,
    /// Label selector, as kubectl's `-l`; empty: everything.
    pub label_selector: String,
    /// How profiles are resolved.
    pub rules: EndpointRules,
    /// Credentials that are fetched before they are requested.
    pub prewarm: Vec<Prewarm>,
}

/// A rule for credentials that are fetched before they are requested.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Prewarm {
    /// `NAMESPACE/NAME`, with globs.
    pub profiles: Globs,
    /// Names of providers; empty: all.
    pub providers: Vec<String>,
    /// Plugin runs at a time, of each provider.
    pub concurrency: NonZeroUsize,
    /// Plugin runs that are started in a second, of each provider.
    pub runs_per_second: NonZeroUsize,
}

impl ClusterProfiles {
    /// Whether `newer` is the same hub: its objects are the same ones.
    pub fn is_same_hub(&self, newer: &Self) -> bool {
        let server = |section: &Self| section.hub.as_ref().map(|hub| Arc::clone(&hub.server));
        server(self) == server(newer)
    }

    /// Whether `newer` is read in the same way, so that its reader can go on. The rules for endpoints are not compared.
    pub fn is_read_alike(&self, newer: &Self) -> bool {
        let is_hub_alike = match (&self.hub, &newer.hub) {
            (Some(hub), Some(newer)) => hub.is_alike(newer),
            (hub, newer) => hub.is_none() && newer.is_none(),
        };
        is_hub_alike
            && self.namespaces == newer.namespaces
            && self.label_selector == newer.label_selector
            && self.prewarm == newer.prewarm
    }

    /// The plugin of the hub's user, if it has one.
    pub fn plugin(&self) -> Option<&Provider> {
        self.hub.as_ref()?.plugin.as_deref()
    }
}

impl Prewarm {
    /// Whether the rule covers a profile that leads to that provider.
    pub fn covers(&self, profile: &ProfileName, provider: &str) -> bool {
        let provider = self.providers.is_empty() || self.providers.iter().any(|name| name == provider);
        provider && self.profiles.matches(&profile.to_string())
    }
}

pub(super) fn cluster_profiles(
    root: &Cursor<'_>,
    providers: &[Provider],
    env: &Environment,
) -> Option<ClusterProfiles> {
    let fields = root::CLUSTER_PROFILES.read(root)?;
    let access = providers.iter().filter(|provider| provider.profile_sourced.is_some());
    let access: Vec<&str> = access.map(|provider| &*provider.name).collect();
    if access.is_empty() && root.report.problems() == 0 {
        fields.problem("`providers` has no item, so no ClusterProfile can be used; add one with the name of an access provider of the profiles");
    }
    let rules = EndpointRules { allow_http: table::ALLOW_HTTP.read(&fields) };
    let prewarm = table::PREWARM.read(&fields).unwrap_or_default();
    let prewarm = prewarm.iter().map(|rule| prewarm_rule(rule, &access)).collect();
    let mut namespaces = table::NAMESPACES.read(&fields).unwrap_or_default();
    let mut seen = HashSet::new();
    namespaces.retain(|name| seen.insert(name.clone()));
    let label_selector = table::LABEL_SELECTOR.read(&fields).unwrap_or_default();
    let hub = hub(&fields, env);
    Some(ClusterProfiles { hub, namespaces, label_selector, rules, prewarm })
}

/// `None`: the hub is the cluster that the broker runs in, or there is a problem.
fn hub(fields: &Cursor<'_>, env: &Environment) -> Option<HubKubeconfig> {
    let context = table::CONTEXT.read(fields).filter(|context| !context.is_empty());
    let (at, text) = table::KUBECONFIG.read(fields)?;
    match text {
        "" => at.reject("must be a path, or `InCluster`"),
        IN_CLUSTER => {
            if let Some(context) = fields.get(table::CONTEXT.name).filter(|_| context.is_some()) {
                context.problem("`InCluster` has no contexts; remove it");
            }
            None
        }
        path => {
            let path = at.dir().join(expand(path, env));
            let kubeconfig = Kubeconfig::read(std::slice::from_ref(&path), Mode::Named, at.report);
            let hub = HubKubeconfig { path, context, ..HubKubeconfig::default() };
            Some(kubeconfig.hub(hub, HUB_PROVIDER, env, &at))
        }
    }
}

/// Reads a rule. `access` are the providers that may serve profiles.
fn prewarm_rule(fields: &Cursor<'_>, access: &[&str]) -> Prewarm {
    let mut providers = Vec::new();
    for item in fields.items_of(prewarm::PROVIDERS.name) {
        let Some(name) = item.text() else { continue };
        if access.contains(&name) {
            providers.push(name.to_owned());
        } else {
            let meant = suggestion(',', name, access.iter().copied());
            item.problem(format!("`{name}` is not one of `providers`{meant}"));
        }
    }
    Prewarm {
        profiles: prewarm::CLUSTER_PROFILES.read(fields).map_or_else(|| Globs::new(["*"]), Globs::new),
        providers,
        concurrency: prewarm::CONCURRENCY.read(fields),
        runs_per_second: prewarm::RUNS_PER_SECOND.read(fields),
    }
}

#[cfg(test)]
mod tests;
