//! Our own config: `kind: BrokerConfig`.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use super::{
    cluster_profiles::{ClusterProfiles, cluster_profiles},
    file::expand,
    issuers::issuers,
    kubeconfig::{Kubeconfig, Mode, variables},
    problem::Report,
    provider::{globs, section},
    reader::{Cursor, Dialect, Fields},
};
use crate::{
    document::Node,
    plugin::{ClusterInfo, Environment, Provider},
};

/// Where the broker listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listen {
    /// `listen.socket`; `None`: the default for who we are.
    pub socket: Option<PathBuf>,
    /// Permission bits of the socket.
    pub mode: u32,
    /// Group of the socket, by name; `None`: as it comes.
    pub group: Option<String>,
    /// The socket's directory may be writable by others: who can reach it may use it.
    pub shared_directory: bool,
}

impl Default for Listen {
    fn default() -> Self {
        Self { socket: None, mode: 0o600, group: None, shared_directory: false }
    }
}

/// How much of anything there may be at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Connections in total; one more is closed at once.
    pub connections: NonZeroUsize,
    /// Watches on one connection; one more is refused.
    pub watches_per_connection: NonZeroUsize,
    /// Plugin processes at a time, all providers together.
    pub plugin_runs: NonZeroUsize,
    /// Plugin processes at a time of one issuer, where its section does not say otherwise. A provider that names no
    /// issuer is its own.
    pub plugin_runs_per_provider: NonZeroUsize,
    /// Credentials held; the one unused for longest goes first.
    pub entries: NonZeroUsize,
}

impl Default for Limits {
    fn default() -> Self {
        let count = |count| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        Self {
            connections: count(4096),
            watches_per_connection: count(1000),
            plugin_runs: count(8),
            plugin_runs_per_provider: count(4),
            entries: count(10_000),
        }
    }
}

/// What a config says, with each provider's place.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub(super) listen: Listen,
    pub(super) limits: Limits,
    pub(super) providers: Vec<Provider>,
    pub(super) cluster_profiles: Option<ClusterProfiles>,
}

const API_VERSION: &str = "credbroker.io/v1alpha1";
const KIND: &str = "BrokerConfig";

/// Sections of the schema that this release does not build yet: refused, not ignored.
const UNSUPPORTED: [&str; 1] = ["access"];

/// Reads a whole config, and the kubeconfigs that it names.
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
    let mut known = vec![
        "apiVersion",
        "kind",
        "listen",
        "limits",
        "issuers",
        "providers",
        "kubeconfigs",
        "callerEnv",
        "clusterProfiles",
    ];
    known.extend(UNSUPPORTED);
    let Some(fields) = root.fields(&known, report) else { return Sections::default() };
    for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match fields.get(key) {
            Some(value) if value.node().as_str() == Some(expected) => {}
            Some(value) => value.problem(report, format!("must be `{expected}`")),
            None => root.problem(report, format!("{key} must be specified: `{key}: {expected}`")),
        }
    }
    for key in UNSUPPORTED {
        if let Some(value) = fields.get(key) {
            report.problem(value.place(), format!("`{key}` is not supported by this release; remove it"));
        }
    }
    let listen = fields.get("listen").map(|section| listen(&section, env, report)).unwrap_or_default();
    let limits = fields.get("limits").map(|section| limits(&section, report)).unwrap_or_default();
    let dir = path.parent().unwrap_or(Path::new("/"));
    let items = fields.get("providers").map(|items| items.items(report)).unwrap_or_default();
    let mut providers: Vec<_> = items.iter().filter_map(|item| section(item, dir, env, report)).collect();
    let caller_env = fields.get("callerEnv").map(|value| globs(&value, report)).unwrap_or_default();
    let paths = kubeconfigs(&fields, dir, env, report);
    if !paths.is_empty() {
        let variables = variables(env, caller_env);
        let kubeconfig = Kubeconfig::read(&paths, Mode::Named, report);
        providers.extend(kubeconfig.providers(&variables, Mode::Named, report));
        kubeconfig.warn_of_unlisted(&variables, report);
    } else if let Some(value) = fields.get("callerEnv") {
        value.problem(report, "is for the users of `kubeconfigs`, and there are none; a provider has a `callerEnv` of its own");
    }
    if providers.is_empty() && report.problems.is_empty() {
        root.problem(report, "names no provider; add `providers`, or `kubeconfigs: [~/.kube/config]`");
    }
    let section = fields.get("clusterProfiles");
    let mut cluster_profiles =
        section.and_then(|section| cluster_profiles(&section, dir, &providers, env, report));
    let hub = cluster_profiles.as_mut().and_then(ClusterProfiles::plugin_mut);
    let per_issuer = limits.plugin_runs_per_provider;
    issuers(fields.get("issuers").as_ref(), per_issuer, providers.iter_mut().chain(hub), report);
    warn_of_unknown_clusters(&root, &providers, cluster_profiles.is_some(), report);
    Sections { listen, limits, providers, cluster_profiles }
}

/// `clusterInfo: match` needs something to match with.
fn warn_of_unknown_clusters(root: &Cursor<'_>, providers: &[Provider], fleet: bool, report: &mut Report) {
    let blind = |provider: &&Provider| provider.cluster_info == ClusterInfo::Match && !fleet;
    for provider in providers.iter().filter(blind) {
        root.warning(report, format!("provider `{}` has `clusterInfo: match`, but without `clusterProfiles` the broker knows no cluster: every caller that sends one is refused", provider.name));
    }
}

fn listen(at: &Cursor<'_>, env: &Environment, report: &mut Report) -> Listen {
    let mut listen = Listen::default();
    let Some(fields) = at.fields(&["socket", "mode", "group", "sharedDirectory"], report) else {
        return listen;
    };
    if let Some(value) = fields.get("socket") {
        let path = value.text(report).filter(|text| !text.is_empty()).map(|text| expand(text, env));
        if path.as_ref().is_some_and(|path| !path.is_absolute()) {
            value.problem(report, "must be an absolute path, like `/run/credbroker/credbroker.sock`");
        }
        listen.socket = path;
    }
    if let Some(value) = fields.get("mode") {
        match value.node().as_str().and_then(mode) {
            Some(mode) => listen.mode = mode,
            None => value.problem(report, "must be an octal number in quotes from \"0600\" to \"0666\" that lets the owner read and write, like \"0660\""),
        }
    }
    listen.group = fields.text("group", report).filter(|group| !group.is_empty()).map(str::to_owned);
    if let Some(value) = fields.get("sharedDirectory") {
        listen.shared_directory = value.boolean(report).unwrap_or_default();
    }
    listen
}

/// Bits of a socket: to connect is to write, so no other bits mean anything.
fn mode(text: &str) -> Option<u32> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| octal)?;
    (mode & 0o600 == 0o600 && mode & !0o666 == 0).then_some(mode)
}

fn limits(at: &Cursor<'_>, report: &mut Report) -> Limits {
    let mut limits = Limits::default();
    let known = ["connections", "watchesPerConnection", "pluginRuns", "pluginRunsPerProvider", "entries"];
    let Some(fields) = at.fields(&known, report) else { return limits };
    let [connections, watches, runs, runs_per_provider, entries] =
        known.map(|key| fields.get(key).and_then(|value| value.count(report)));
    limits.connections = connections.unwrap_or(limits.connections);
    limits.watches_per_connection = watches.unwrap_or(limits.watches_per_connection);
    limits.plugin_runs = runs.unwrap_or(limits.plugin_runs);
    limits.plugin_runs_per_provider = runs_per_provider.unwrap_or(limits.plugin_runs_per_provider);
    limits.entries = entries.unwrap_or(limits.entries);
    limits
}

fn kubeconfigs(fields: &Fields<'_>, dir: &Path, env: &Environment, report: &mut Report) -> Vec<PathBuf> {
    let items = fields.get("kubeconfigs").map(|items| items.items(report)).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_one_that_a_socket_can_use() {
        for (text, expected) in
            [("0600", 0o600), ("600", 0o600), ("0660", 0o660), ("0666", 0o666), ("0620", 0o620)]
        {
            assert_eq!(mode(text), Some(expected), "{text}");
        }
        for text in ["", "0", "0400", "0060", "0700", "0670", "4600", "00600", "0o600", "+600", "0680", "rw"]
        {
            assert_eq!(mode(text), None, "{text}");
        }
    }
}
