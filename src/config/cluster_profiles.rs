//! The section `clusterProfiles`: the hub that the fleet's inventory is read from.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    file::expand,
    kubeconfig::{Kubeconfig, Mode},
    problem::Report,
    reader::{Cursor, Fields},
    table::{cluster_profiles as table, prewarm},
};
use crate::{
    fleet::EndpointRules,
    plugin::{Environment, Globs, ProfileName, Provider},
    text::nearest,
};

/// Which ClusterProfiles are read, and from where.
#[derive(Clone, Debug)]
pub struct ClusterProfiles {
    /// The hub.
    pub hub: HubAccess,
    /// What distinguishes it from another hub.
    pub source: HubSource,
    /// Namespaces to read; empty: all.
    pub namespaces: Vec<String>,
    /// Label selector, as kubectl's `-l`; empty: everything.
    pub label_selector: String,
    /// How profiles are resolved.
    pub rules: EndpointRules,
    /// Credentials that are fetched before they are requested.
    pub prewarm: Vec<Prewarm>,
}

/// What distinguishes a hub from another one. Empty for the cluster that the broker runs in.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HubSource {
    /// The server of the kubeconfig's context.
    pub server: Arc<str>,
    /// SHA-256 of the kubeconfig.
    pub contents: Box<[u8]>,
}

/// How the hub is reached.
#[derive(Clone, Debug)]
pub enum HubAccess {
    /// With the service account of the pod that the broker runs in.
    InCluster,
    /// With a kubeconfig.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context; `None`: the current one.
        context: Option<String>,
        /// The plugin of the context's user, if it has one. The broker runs it like any other.
        plugin: Option<Box<Provider>>,
    },
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

impl Prewarm {
    /// Whether the rule covers a profile that leads to that provider.
    pub fn covers(&self, profile: &ProfileName, provider: &str) -> bool {
        let provider = self.providers.is_empty() || self.providers.iter().any(|name| name == provider);
        provider && self.profiles.matches(&profile.to_string())
    }
}

impl ClusterProfiles {
    /// Whether `newer` is the same hub: its objects are the same ones.
    pub fn is_same_hub(&self, newer: &Self) -> bool {
        let is_in_cluster = |section: &Self| matches!(section.hub, HubAccess::InCluster);
        is_in_cluster(self) == is_in_cluster(newer) && self.source.server == newer.source.server
    }

    /// Whether `newer` is read in the same way, so that its reader can go on. The rules for endpoints are not compared.
    pub fn is_read_alike(&self, newer: &Self) -> bool {
        let access = match (&self.hub, &newer.hub) {
            (HubAccess::InCluster, HubAccess::InCluster) => true,
            (
                HubAccess::Kubeconfig { path, context, plugin },
                HubAccess::Kubeconfig { path: new_path, context: new_context, plugin: new_plugin },
            ) => {
                (path, context) == (new_path, new_context)
                    && match (plugin, new_plugin) {
                        (Some(plugin), Some(newer)) => plugin.is_same_definition(newer),
                        (plugin, newer) => plugin.is_none() && newer.is_none(),
                    }
            }
            _ => false,
        };
        access
            && self.source == newer.source
            && (&self.namespaces, &self.label_selector, &self.prewarm)
                == (&newer.namespaces, &newer.label_selector, &newer.prewarm)
    }

    /// The plugin of the hub's user, if it has one.
    pub(super) fn plugin_mut(&mut self) -> Option<&mut Provider> {
        match &mut self.hub {
            HubAccess::InCluster => None,
            HubAccess::Kubeconfig { plugin, .. } => plugin.as_deref_mut(),
        }
    }
}

/// The name of the plugin of the hub's user. No configured provider has this name.
pub const HUB_PROVIDER: &str = "(hub)";
const IN_CLUSTER: &str = "in-cluster";

/// Reads the section. `dir` is that of the config, `providers` are those that may serve profiles.
pub(super) fn cluster_profiles(
    at: &Cursor<'_>,
    dir: &Path,
    providers: &[Provider],
    env: &Environment,
    report: &mut Report,
) -> Option<ClusterProfiles> {
    let fields = at.section(&table::SECTION, report)?;
    let access: Vec<&str> = providers
        .iter()
        .filter(|provider| provider.profile_sourced.is_some())
        .map(|provider| &*provider.name)
        .collect();
    if access.is_empty() && report.problems.is_empty() {
        at.problem(report, "`providers` has no item, so no ClusterProfile can be used; add one with the name of an access provider of the profiles");
    }
    let rules = EndpointRules { allow_http: table::ALLOW_HTTP.read(&fields, report) };
    let prewarm = fields.at(&table::PREWARM).map(|rules| rules.items(report)).unwrap_or_default();
    let prewarm = prewarm.iter().filter_map(|rule| prewarm_rule(rule, &access, report)).collect();
    let mut source = HubSource::default();
    Some(ClusterProfiles {
        hub: hub(&fields, dir, env, &mut source, report)?,
        source,
        namespaces: namespaces(&fields, report),
        label_selector: table::LABEL_SELECTOR.read(&fields, report).unwrap_or_default(),
        rules,
        prewarm,
    })
}

fn hub(
    fields: &Fields<'_>,
    dir: &Path,
    env: &Environment,
    source: &mut HubSource,
    report: &mut Report,
) -> Option<HubAccess> {
    let context = table::CONTEXT.read(fields, report).filter(|context| !context.is_empty());
    let value = fields.required(&table::KUBECONFIG, report)?;
    match value.text(report)? {
        "" => {
            value.problem(report, "must be a path, or `in-cluster`");
            None
        }
        IN_CLUSTER => {
            if let Some(context) = fields.at(&table::CONTEXT).filter(|_| context.is_some()) {
                context.problem(report, "`in-cluster` has no contexts; remove it");
            }
            Some(HubAccess::InCluster)
        }
        path => {
            let path = dir.join(expand(path, env));
            let kubeconfig = Kubeconfig::read(std::slice::from_ref(&path), Mode::Named, report);
            let plugin = kubeconfig.hub_plugin(context.as_deref(), HUB_PROVIDER, env, &value, source, report);
            Some(HubAccess::Kubeconfig { path, context, plugin: plugin.map(Box::new) })
        }
    }
}

fn namespaces(fields: &Fields<'_>, report: &mut Report) -> Vec<String> {
    let items = fields.at(&table::NAMESPACES).map(|items| items.items(report)).unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    for item in &items {
        let Some(name) = item.text(report) else { continue };
        let letters =
            name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if name.is_empty() || name.len() > 63 || !letters || name.starts_with('-') || name.ends_with('-') {
            item.problem(
                report,
                "must be the name of a namespace; to read all namespaces, remove `namespaces`",
            );
        } else if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn prewarm_rule(at: &Cursor<'_>, access: &[&str], report: &mut Report) -> Option<Prewarm> {
    let fields = at.section(&prewarm::SECTION, report)?;
    let profiles = fields.at(&prewarm::CLUSTER_PROFILES).map(|value| value.items(report));
    let mut globs = Vec::new();
    for item in profiles.iter().flatten() {
        match item.text(report) {
            Some(glob) if glob.matches('/').count() == 1 => globs.push(glob),
            Some(_) => item.problem(report, "must be `NAMESPACE/NAME`, in which `*` matches any text"),
            None => {}
        }
    }
    if profiles.is_none() {
        globs.push("*");
    }
    let names = fields.at(&prewarm::PROVIDERS).map(|value| value.items(report)).unwrap_or_default();
    let mut providers = Vec::new();
    for item in &names {
        match item.text(report) {
            Some(name) if access.contains(&name) => providers.push(name.to_owned()),
            Some(name) => {
                let meant = nearest(name, access.iter().copied());
                let meant = meant.map(|meant| format!(", did you mean `{meant}`?")).unwrap_or_default();
                item.problem(report, format!("`{name}` is not one of `providers`{meant}"));
            }
            None => {}
        }
    }
    Some(Prewarm {
        profiles: Globs::new(globs),
        providers,
        concurrency: prewarm::CONCURRENCY.read(&fields, report),
        runs_per_second: prewarm::RUNS_PER_SECOND.read(&fields, report),
    })
}

#[cfg(test)]
mod tests;
