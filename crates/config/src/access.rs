//! The section `access`: who may use the broker.

mod names;

use std::collections::HashMap;

pub(super) use self::names::{match_by_default, warn_of_nothing};
use super::{
    fields::Fields,
    problem::Report,
    reader::Cursor,
    table::{access as table, allow, peers},
};
use credbroker_plugin::{
    Globs,
    access::{Grant, Peers, ProfileGlobs, Rule, Verb},
};

/// Reads the section.
pub(super) fn rules(section: Option<&Cursor<'_>>, report: &mut Report) -> Vec<Rule> {
    let items = section.map(|section| section.items(report)).unwrap_or_default();
    let mut places: HashMap<String, &Cursor<'_>> = HashMap::new();
    let mut rules = Vec::new();
    for at in &items {
        let Some(fields) = at.section(&table::SECTION, report) else { continue };
        let name = table::NAME.read(&fields, report);
        if let Some(name) = &name
            && let Some(first) = places.insert(name.clone(), at)
        {
            at.problem(
                report,
                format!("rule `{name}` is defined already at {}; rename one of them", first.place()),
            );
        }
        let peers = fields.required(&table::PEERS, report).and_then(|at| peers_of(&at, report));
        let allow = fields.required(&table::ALLOW, report).and_then(|at| grant(&at, report));
        if let (Some(name), Some(peers), Some(allow)) = (name, peers, allow) {
            rules.push(Rule { name: name.into(), peers, allow });
        }
    }
    if let Some(section) = section
        && !rules.is_empty()
        && !rules.iter().any(|rule| rule.allow.verbs.names(Verb::Admin))
    {
        section.warning(report, "no rule allows `admin`, so `credbroker refresh` and `credbroker evict` are denied to everyone, root included");
    }
    rules
}

fn peers_of(at: &Cursor<'_>, report: &mut Report) -> Option<Peers> {
    let fields = at.section(&peers::SECTION, report)?;
    let mut executables = Vec::new();
    for (item, path) in texts(&fields, &peers::EXECUTABLES, report) {
        if path.starts_with('/') {
            executables.push(std::fs::canonicalize(path).unwrap_or_else(|_| path.into()));
        } else {
            item.problem(report, "must be an absolute path");
        }
    }
    if let Some(value) = fields.at(&peers::EXECUTABLES).filter(|_| !executables.is_empty()) {
        value.warning(report, "matches processes whose executable the broker may read: those of the broker's user, or all with CAP_SYS_PTRACE. It does not protect against processes of the same user");
    }
    let mut listeners = Vec::new();
    for (item, name) in texts(&fields, &peers::LISTENERS, report) {
        if name.is_empty() || name.contains(char::is_whitespace) {
            item.problem(report, "must be the name of a listener");
        }
        listeners.push(name.to_owned());
    }
    let peers = Peers {
        uids: peers::UIDS.read(&fields, report).unwrap_or_default(),
        gids: peers::GIDS.read(&fields, report).unwrap_or_default(),
        executables,
        listeners,
    };
    if peers.is_empty() {
        at.problem(report, "must not be empty: add `uids`, `gids`, `executables` or `listeners`");
    }
    Some(peers)
}

fn grant(at: &Cursor<'_>, report: &mut Report) -> Option<Grant> {
    let fields = at.section(&allow::SECTION, report)?;
    let mut providers = Vec::new();
    for (item, name) in texts(&fields, &allow::PROVIDERS, report) {
        if name.is_empty() {
            item.problem(report, "must be the name of a provider, in which `*` matches any text");
        }
        providers.push(name);
    }
    let mut profiles = Vec::new();
    for (item, glob) in texts(&fields, &allow::CLUSTER_PROFILES, report) {
        let parts = glob.split_once('/');
        let is_name = parts.is_some_and(|(namespace, name)| {
            !namespace.is_empty() && !name.is_empty() && !name.contains('/')
        });
        if !is_name && glob != "*" {
            item.problem(report, "must be `NAMESPACE/NAME`, in which `*` matches any text, or `*`");
        }
        profiles.push(glob);
    }
    let verbs = allow::VERBS.read(&fields, report);
    if let Some(value) = fields.at(&allow::VERBS) {
        match verbs.as_deref() {
            Some([]) if value.node().as_sequence().is_some_and(<[_]>::is_empty) => {
                value.problem(report, "must not be empty");
            }
            _ => {}
        }
    }
    if providers.is_empty() && profiles.is_empty() {
        at.problem(report, "must not be empty: add `providers` or `clusterProfiles`");
    }
    Some(Grant {
        providers: Globs::new(providers),
        cluster_profiles: ProfileGlobs::new(profiles),
        verbs: verbs.unwrap_or_default().into_iter().collect(),
    })
}

/// The strings of a list, each with its place.
fn texts<'a>(
    fields: &Fields<'a>,
    key: &impl super::keys::Declared,
    report: &mut Report,
) -> Vec<(Cursor<'a>, &'a str)> {
    let items = fields.at(key).map(|items| items.items(report)).unwrap_or_default();
    items.into_iter().filter_map(|item| item.text(report).map(|text| (item.clone(), text))).collect()
}

#[cfg(test)]
mod tests;
