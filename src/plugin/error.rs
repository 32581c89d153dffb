//! Why a request leads to no run.

use std::{io, sync::Arc};

use super::{
    command::Command,
    definition::{Definition, shown_path},
    profile::{ProfileError, ProfileName},
};
use crate::text::{listed, listed_all, nearest, shown};

/// Why a request leads to no run. The same request fails again until something changes.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// Several kubeconfigs define a provider of that name.
    #[error(
        "provider `{}`: several kubeconfigs define it: {}; name the definition, or write your kubeconfig again with `credbroker kubeconfig wrap`",
        shown(.name), all_of(.candidates)
    )]
    AmbiguousProvider {
        /// The name.
        name: String,
        /// Its definitions, sorted by file.
        candidates: Vec<Definition>,
    },
    /// The exec extension is not JSON, so the plugin could not read it.
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
    /// The caller's cluster is not the one that the broker knows.
    #[error(
        "the caller sent another cluster than {known}: {difference}; the plugin was not run. If that is from an old \
         kubeconfig, write it again with `credbroker kubeconfig`"
    )]
    ClusterMismatch {
        /// What it was compared with.
        known: String,
        /// In what they differ.
        difference: &'static str,
    },
    /// The hub was not read yet, so it is not known.
    #[error("{wanted} is not known yet: {problem}")]
    HubUnavailable {
        /// What was asked for.
        wanted: String,
        /// Why it was not read.
        problem: Arc<str>,
    },
    /// The caller selects an identity with a variable that the plugin would not receive so.
    #[error(
        "provider `{provider}`: the caller sets `{variable}`, but the plugin would run {} it; to use the caller's, add `callerEnv: [{variable}]` to the provider; to use the broker's identity for every caller, write `callerEnv: []` there",
        if *.runs_with { "with another value of" } else { "without" }
    )]
    IdentityConflict {
        /// Name of the provider.
        provider: Arc<str>,
        /// Name of the variable.
        variable: String,
        /// Whether the plugin would receive another value, or none.
        runs_with: bool,
    },
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
        "provider `{provider}`: exec plugin cannot support interactive mode: standard input is unavailable: `interactiveMode` is Always, and a broker has no terminal"
    )]
    NeedsTerminal {
        /// Name of the provider.
        provider: Arc<str>,
    },
    /// The plugin needs its cluster, which is not known.
    #[error("provider `{provider}` has `provideClusterInfo: true`, but the caller sent no cluster and {}; call with `provideClusterInfo: true` in the kubeconfig's `exec` stanza", known_clusters(*.known))]
    NoCluster {
        /// Name of the provider.
        provider: Arc<str>,
        /// How many clusters the kubeconfig uses this user for.
        known: usize,
    },
    /// No such file.
    #[error("provider `{provider}`: plugin `{command}` is not installed{}", place(.command, .install_hint.as_deref()))]
    PluginNotFound {
        /// Name of the provider.
        provider: Arc<str>,
        /// As configured.
        command: Command,
        /// `installHint` of the stanza, sanitised.
        install_hint: Option<String>,
    },
    /// The file cannot even be looked at.
    #[error("provider `{provider}`: plugin `{command}` cannot be looked up")]
    PluginUnreadable {
        /// Name of the provider.
        provider: Arc<str>,
        /// As configured.
        command: Command,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
    /// The profile leads to no plugin.
    #[error("ClusterProfile `{profile}` cannot be used")]
    Profile {
        /// What was asked for.
        profile: ProfileName,
        /// Why.
        source: ProfileError,
    },
    /// No such profile, or none at all.
    #[error("ClusterProfile `{}` not found{}", shown(&.profile.to_string()), unknown_profile(*.is_configured))]
    UnknownProfile {
        /// What was asked for.
        profile: ProfileName,
        /// Whether the broker reads any.
        is_configured: bool,
    },
    /// A definition that is not among those that the broker has read.
    #[error(
        "provider `{}`: unknown definition {}: {}; add the kubeconfig that defines it to `kubeconfigs` in the broker's configuration, or to the KUBECONFIG of a broker without one, and restart the broker",
        shown(.name), shown(.definition), known_definitions(.known)
    )]
    UnknownDefinition {
        /// The name.
        name: String,
        /// The digest that was sent.
        definition: String,
        /// Its definitions that the broker has, sorted by file.
        known: Vec<Definition>,
    },
    /// No provider of that name.
    #[error("provider `{}` not found{}; known: {}", shown(.name), did_you_mean(.name, .known), listed(.known))]
    UnknownProvider {
        /// What was asked for.
        name: String,
        /// Every configured name, sorted.
        known: Vec<String>,
    },
    /// A variable that callers may not contribute.
    #[error(
        "provider `{provider}`: the caller's variable `{}` is not allowed: {danger}; unset it, or set it in `env` of the provider's `exec` stanza{remedy}",
        shown(.variable)
    )]
    VariableNotAllowed {
        /// Name of the provider.
        provider: Arc<str>,
        /// Name of the variable.
        variable: String,
        /// What it could do.
        danger: &'static str,
        /// What else helps; it begins with a comma.
        remedy: &'static str,
    },
}

fn all_of(definitions: &[Definition]) -> String {
    listed_all(definitions.iter().map(ToString::to_string))
}

fn known_definitions(definitions: &[Definition]) -> String {
    if definitions.is_empty() {
        return "the broker has read no kubeconfig that defines this provider".to_owned();
    }
    let files = definitions.iter().map(|definition| shown_path(definition.file()));
    format!("the broker has read only {}", listed_all(files))
}

fn place(command: &Command, install_hint: Option<&str>) -> String {
    let place = command.place();
    install_hint.map_or_else(|| place.to_owned(), |hint| format!("{place}. {hint}"))
}

fn known_clusters(known: usize) -> String {
    match known {
        0 => "the broker knows none for it".to_owned(),
        several => format!("the broker's kubeconfig uses it for {several} clusters"),
    }
}

fn unknown_profile(is_configured: bool) -> &'static str {
    if is_configured {
        " in the namespaces that the broker reads, or it lacks the label that `clusterProfiles.labelSelector` asks for"
    } else {
        ": this broker reads none; add `clusterProfiles` to its configuration"
    }
}

fn did_you_mean(name: &str, known: &[String]) -> String {
    let nearest = nearest(name, known.iter().map(String::as_str));
    nearest.map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default()
}
