//! Why a request leads to no run.

use std::{io, sync::Arc};

use super::{Command, nearest};

/// Why a request leads to no run. The same request leads nowhere again until somebody changes something.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The exec extension is not JSON, so the plugin could not read what it is told.
    #[error(
        "the exec extension of the cluster that the caller sent is not valid JSON (line {line}, column {column})"
    )]
    ClusterConfig {
        /// Where it stops being JSON.
        line: usize,
        /// Where it stops being JSON.
        column: usize,
    },
    /// A cluster without an address.
    #[error("the caller sent a cluster whose `server` is empty")]
    ClusterServer,
    /// A variable that no process can be given.
    #[error(
        "the caller's variable `{}` cannot be passed on: a name has no `=` and is not empty, and neither it nor its value has a NUL",
        shown(.name)
    )]
    InvalidVariable {
        /// Its name.
        name: String,
    },
    /// `interactiveMode: Always`.
    #[error(
        "exec plugin cannot support interactive mode: standard input is unavailable: provider `{provider}` has `interactiveMode: Always`, and a broker has no terminal"
    )]
    NeedsTerminal {
        /// Name of the provider.
        provider: Arc<str>,
    },
    /// The plugin is to be told its cluster, which nobody knows.
    #[error("provider `{provider}` has `provideClusterInfo: true`, but the caller sent no cluster and {}; call with `provideClusterInfo: true` in the kubeconfig's `exec` stanza", known_clusters(*.known))]
    NoCluster {
        /// Name of the provider.
        provider: Arc<str>,
        /// How many clusters the kubeconfig uses this user for.
        known: usize,
    },
    /// No such file.
    #[error("plugin `{command}` of provider `{provider}` is not installed{}", place(.command, .install_hint.as_deref()))]
    PluginNotFound {
        /// Name of the provider.
        provider: Arc<str>,
        /// As configured.
        command: Command,
        /// `installHint` of the stanza, sanitised.
        install_hint: Option<String>,
    },
    /// The file cannot even be looked at.
    #[error("plugin `{command}` of provider `{provider}` cannot be looked up")]
    PluginUnreadable {
        /// Name of the provider.
        provider: Arc<str>,
        /// As configured.
        command: Command,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
    /// No provider of that name.
    #[error("no provider is named `{}`{}; known: {}", shown(.name), did_you_mean(.name, .known), listed(.known))]
    UnknownProvider {
        /// What was asked for.
        name: String,
        /// Every configured name, sorted.
        known: Vec<String>,
    },
}

fn place(command: &Command, install_hint: Option<&str>) -> String {
    let place = match command {
        Command::Name(_) => " in the broker's PATH",
        Command::Path(_) => "",
    };
    install_hint.map_or_else(|| place.to_owned(), |hint| format!("{place}. {hint}"))
}

fn known_clusters(known: usize) -> String {
    match known {
        0 => "the broker knows none for it".to_owned(),
        several => format!("the broker's kubeconfig uses it for {several} clusters"),
    }
}

/// What a caller sent, as it may stand in a log line and at a terminal.
fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(100).flat_map(char::escape_debug).collect();
    if name.chars().nth(100).is_some() {
        shown.push('…');
    }
    shown
}

/// Not more than fits a gRPC status, which travels in a header.
fn listed(known: &[String]) -> String {
    const MOST: usize = 20;
    let list = known.iter().take(MOST).map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    if known.len() > MOST { format!("{list} and {} more", known.len() - MOST) } else { list }
}

fn did_you_mean(name: &str, known: &[String]) -> String {
    let nearest = nearest(name, known.iter().map(String::as_str));
    nearest.map(|nearest| format!(", did you mean `{nearest}`?")).unwrap_or_default()
}
