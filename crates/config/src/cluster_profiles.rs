//! The section `clusterProfiles`: the hub that the fleet's inventory is read from.

mod hub;
mod prewarm;

use std::path::Path;

use super::{fields::Fields, problem::Report, reader::Cursor, table::cluster_profiles as table};
use credbroker_plugin::{Environment, Provider, cluster_profile::EndpointRules};

pub use hub::{HUB_PROVIDER, HubAccess, HubSource};
pub use prewarm::Prewarm;

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

impl ClusterProfiles {
    /// Whether `newer` is the same hub: its objects are the same ones.
    pub fn is_same_hub(&self, newer: &Self) -> bool {
        let is_in_cluster = |section: &Self| matches!(section.hub, HubAccess::InCluster);
        is_in_cluster(self) == is_in_cluster(newer) && self.source.server == newer.source.server
    }

    /// Whether `newer` is read in the same way, so that its reader can go on. The rules for endpoints are not compared.
    pub fn is_read_alike(&self, newer: &Self) -> bool {
        self.hub.is_alike(&newer.hub)
            && self.source == newer.source
            && (&self.namespaces, &self.label_selector, &self.prewarm)
                == (&newer.namespaces, &newer.label_selector, &newer.prewarm)
    }

    /// The plugin of the hub's user, if it has one.
    pub(super) fn plugin_mut(&mut self) -> Option<&mut Provider> {
        self.hub.plugin_mut()
    }
}

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
    let prewarm = prewarm.iter().filter_map(|rule| Prewarm::read(rule, &access, report)).collect();
    let mut source = HubSource::default();
    Some(ClusterProfiles {
        hub: HubAccess::read(&fields, dir, env, &mut source, report)?,
        source,
        namespaces: namespaces(&fields, report),
        label_selector: table::LABEL_SELECTOR.read(&fields, report).unwrap_or_default(),
        rules,
        prewarm,
    })
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

#[cfg(test)]
mod tests;
