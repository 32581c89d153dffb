//! The rules beside the rest of the configuration.

use std::collections::HashSet;

use super::texts;
use crate::{
    listen::Listen,
    problem::Report,
    reader::Cursor,
    table::{access as table, allow, peers, provider},
};
use credbroker_credential::text::nearest;
use credbroker_plugin::{ClusterInfo, Globs, Provider};

/// Warns of names in rules that match nothing. `section` was read without problems.
pub(crate) fn warn_of_nothing(
    section: &Cursor<'_>,
    (providers, listeners): (&[Provider], &[Listen]),
    reads_profiles: bool,
    report: &mut Report,
) {
    let mut unread = Report::default();
    for rule in section.items(&mut unread) {
        let Some(fields) = rule.section(&table::SECTION, &mut unread) else { continue };
        let (peers, allow) = (fields.at(&table::PEERS), fields.at(&table::ALLOW));
        let peers = peers.and_then(|at| at.section(&peers::SECTION, &mut unread));
        let named = peers.map(|fields| texts(&fields, &peers::LISTENERS, &mut unread)).unwrap_or_default();
        for (item, name) in named {
            if !listeners.iter().any(|listen| listen.name == name) {
                item.warning(
                    report,
                    format!("no listener has the name `{name}`, so this matches no process"),
                );
            }
        }
        let Some(allow) = allow else { continue };
        let Some(fields) = allow.section(&allow::SECTION, &mut unread) else { continue };
        for (item, name) in texts(&fields, &allow::PROVIDERS, &mut unread) {
            let glob = Globs::new([name]);
            if !providers.iter().any(|provider| glob.matches(&provider.name)) {
                let meant = nearest(name, providers.iter().map(|provider| &*provider.name));
                let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
                item.warning(
                    report,
                    format!("no provider has the name `{name}`, so this has no effect{meant}"),
                );
            }
        }
        if let Some(value) = fields.at(&allow::CLUSTER_PROFILES).filter(|_| !reads_profiles) {
            value.warning(report, "has no effect without `clusterProfiles` at the top of the configuration");
        }
    }
}

/// Sets what applies without `clusterInfo` once there are rules: a plugin that gets the cluster gets one that the broker
/// knows, because the caller may be another user. `items` are the `providers` of the configuration.
pub(crate) fn match_by_default(items: &[Cursor<'_>], providers: &mut [Provider]) {
    let written = items
        .iter()
        .filter(|item| item.node().get(provider::CLUSTER_INFO.name).is_some_and(|value| !value.is_null()));
    let written: HashSet<_> =
        written.filter_map(|item| item.node().get(provider::NAME.name)?.as_str()).collect();
    for provider in providers {
        let is_written = provider.definition.is_none() && written.contains(&*provider.name);
        if provider.provide_cluster_info && !is_written {
            provider.cluster_info = ClusterInfo::Match;
        }
    }
}
