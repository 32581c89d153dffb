//! The section `access`: who may use the broker.

use std::{collections::HashMap, sync::Arc};

use super::{
    endpoints::Listen,
    problem::{Location, suggestion},
    proxy::{ProxySection, ProxyTls},
    schema::Cursor,
    table::{access as table, allow, peers, root},
};
use credbroker_plugin::{
    Globs,
    access::{Grant, Peers, ProfileGlobs, Rule, Verb},
};

pub(super) fn rules(root: &Cursor<'_>) -> Vec<Rule> {
    let mut places: HashMap<String, Location<'_>> = HashMap::new();
    let mut rules = Vec::new();
    for fields in root::ACCESS.read(root).unwrap_or_default() {
        let at = &fields;
        let name = table::NAME.read(&fields);
        if let Some(name) = &name
            && let Some(first) = places.insert(name.clone(), at.place())
        {
            at.problem(format!("rule `{name}` is defined already at {first}; rename one of them"));
        }
        let peers = table::PEERS.read(&fields).map(|fields| peers_of(&fields));
        let allow = table::ALLOW.read(&fields).map(|fields| grant(&fields));
        if let (Some(name), Some(peers), Some(allow)) = (name, peers, allow) {
            rules.push(Rule { name: name.into(), peers, allow });
        }
    }
    if let Some(section) = root.get(root::ACCESS.name)
        && !rules.is_empty()
        && !rules.iter().any(|rule| rule.allow.verbs.contains(&Verb::Admin))
    {
        section.warning("no rule allows `admin`, so `credbroker refresh` and `credbroker evict` are denied to everyone, including root");
    }
    rules
}

fn peers_of(fields: &Cursor<'_>) -> Peers {
    let executables = peers::EXECUTABLES.read(fields).unwrap_or_default();
    if let Some(value) = fields.get(peers::EXECUTABLES.name).filter(|_| !executables.is_empty()) {
        value.warning("matches only processes whose executable the broker may read: processes of the broker's user, or all processes with CAP_SYS_PTRACE. It does not protect against processes of the same user");
    }
    let real = |path: String| std::fs::canonicalize(&path).unwrap_or_else(|_| path.into());
    let peers = Peers {
        uids: peers::UIDS.read(fields).unwrap_or_default(),
        gids: peers::GIDS.read(fields).unwrap_or_default(),
        executables: executables.into_iter().map(real).collect(),
        listeners: peers::LISTENERS.read(fields).unwrap_or_default(),
    };
    if peers.is_empty() {
        fields.problem("must not be empty: add `uids`, `gids`, `executables` or `listeners`");
    }
    peers
}

fn grant(fields: &Cursor<'_>) -> Grant {
    let items = |key| fields.get(key).and_then(|value| value.node.as_sequence().map(<[_]>::len));
    let providers = allow::PROVIDERS.read(fields).unwrap_or_default();
    let profiles = allow::CLUSTER_PROFILES.read(fields).unwrap_or_default();
    let verbs = allow::VERBS.read(fields).unwrap_or_default();
    if let (Some(value), Some(0)) = (fields.get(allow::VERBS.name), items(allow::VERBS.name)) {
        value.problem("must not be empty");
    }
    if [allow::PROVIDERS.name, allow::CLUSTER_PROFILES.name].iter().all(|key| items(key).unwrap_or(0) == 0) {
        fields.problem("must not be empty: add `providers` or `clusterProfiles`");
    }
    Grant {
        providers: Globs::new(providers),
        cluster_profiles: ProfileGlobs::new(profiles.iter().map(String::as_str)),
        verbs,
    }
}

/// Warns of names in rules that match nothing. The section was read without problems. `reads_profiles`: there is a hub.
pub(super) fn warn_of_nothing(
    root: &Cursor<'_>,
    providers: &[Arc<str>],
    listeners: &[Listen],
    proxy: Option<&ProxySection>,
    reads_profiles: bool,
) {
    let sockets = proxy.into_iter().flat_map(|proxy| &proxy.sockets).chain(listeners);
    let port = proxy.and_then(|proxy| proxy.tls).map(|_| ProxyTls::NAME);
    let listeners: Vec<_> = sockets.map(|listener| listener.name.as_str()).chain(port).collect();
    let text = |item: &Cursor<'_>| item.node.as_str().unwrap_or_default().to_owned();
    for rule in root::ACCESS.read(root).unwrap_or_default() {
        let (peers, allow) = (table::PEERS.read(&rule), table::ALLOW.read(&rule));
        for item in peers.iter().flat_map(|fields| fields.items_of(peers::LISTENERS.name)) {
            let name = text(&item);
            if !listeners.contains(&name.as_str()) {
                item.warning(format!("no listener has the name `{name}`, so this matches no process"));
            }
        }
        for item in allow.iter().flat_map(|fields| fields.items_of(allow::PROVIDERS.name)) {
            let name = text(&item);
            let glob = Globs::new([&name]);
            if !providers.iter().any(|provider| glob.matches(provider)) {
                let meant = suggestion(';', &name, providers.iter().map(|provider| &**provider));
                item.warning(format!("no provider has the name `{name}`, so this has no effect{meant}"));
            }
        }
        let profiles = allow.and_then(|fields| fields.get(allow::CLUSTER_PROFILES.name));
        if let Some(value) = profiles.filter(|_| !reads_profiles) {
            value.warning("has no effect without `clusterProfiles` at the top of the configuration");
        }
    }
}

#[cfg(test)]
mod tests;
