//! Why a request leads to no run.

use std::{io, sync::Arc, time::Duration};

use super::{
    definition::Definition,
    file::{Command, Refusal},
    profile::{ProfileError, ProfileName},
};
use credbroker_credential::text::{listed, listed_all, nearest, shown, shown_path};

/// Why a request leads to no run. The same request fails again until something changes.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ResolveError {
    /// Several kubeconfigs define a provider of that name. Their definitions are sorted by file.
    #[error(
        "provider `{}`: several kubeconfigs define it: {}; name a context instead, or set KUBECONFIG to one of these files",
        shown(.0), listed_all(.1.iter().map(Definition::shown_file))
    )]
    AmbiguousProvider(String, Vec<Definition>),
    /// The broker reads no profiles.
    #[error(
        "ClusterProfile `{}` not found: this broker does not read ClusterProfiles; add `clusterProfiles` to its configuration",
        shown(&.0.to_string())
    )]
    NoHub(ProfileName),
    /// The profile leads to no plugin.
    #[error("ClusterProfile `{0}` cannot be used")]
    Profile(ProfileName, #[source] ProfileError),
    /// The access rules do not allow the profile to the caller, or it does not exist: the caller may not know which.
    #[error(
        "ClusterProfile `{}` does not exist, or no access rule allows this process to use it; ask the operator of the broker for a rule",
        shown(&.0.to_string())
    )]
    ProfileNotAllowed(ProfileName),
    /// The hub was not read yet, so the profile may exist. With the reason, and the time until the next attempt to read it.
    #[error("ClusterProfile `{}` is not known yet: {}", shown(&.0.to_string()), .1)]
    ProfileUnread(ProfileName, Arc<str>, Duration),
    /// The provider does not run its plugin for this request.
    #[error("provider `{}`{}{}", .0, .1.separator(), .1)]
    Provider(Arc<str>, #[source] ProviderProblem),
    /// The access rules do not allow the provider to the caller, or it does not exist: the caller may not know which.
    #[error(
        "provider `{}` does not exist, or no access rule allows this process to use it; ask the operator of the broker for a rule",
        shown(.0)
    )]
    ProviderNotAllowed(String),
    /// The access rules do not allow the context to the caller, or it does not exist: the caller may not know which.
    #[error(
        "context `{}` does not exist, or no access rule allows this process to use it; ask the operator of the broker for a rule",
        shown(.0)
    )]
    ContextNotAllowed(String),
    /// The caller's cluster is not the cluster of the context. With how they differ.
    #[error("the caller sent a cluster that is not the cluster of context `{}`: {}", shown(.0), .1)]
    ContextMismatch(String, &'static str),
    /// The hub has no such profile.
    #[error(
        "ClusterProfile `{}` not found in the namespaces that the broker reads, or it lacks the label that `clusterProfiles.labelSelector` asks for",
        shown(&.0.to_string())
    )]
    UnknownProfile(ProfileName),
    /// The broker follows no kubeconfig with this context, or the context has another definition now.
    #[error("context `{}` not found in the kubeconfigs that the broker follows; to list its contexts, run `credbroker clusters`", shown(.0))]
    UnknownContext(String),
    /// The context exists, and the broker cannot serve its credential.
    #[error("context `{}` cannot be used: {}", shown(.0), .1)]
    UnusableContext(String, Arc<str>),
    /// The broker has not read the definition of the provider with this digest, but these, sorted by file.
    #[error(
        "provider `{}`: unknown definition {}: {}",
        shown(.0), shown(.1), known_definitions(.2)
    )]
    UnknownDefinition(String, String, Vec<Definition>),
    /// The broker has no provider of that name. With every configured name, sorted.
    #[error("provider `{}` not found{}; known: {}", shown(.0), did_you_mean(.0, .1), listed(.1))]
    UnknownProvider(String, Vec<String>),
}

/// Why a provider does not run its plugin for a request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProviderProblem {
    /// The exec extension is not JSON, so the plugin could not read it. With the line and column of the error.
    #[error(
        "the exec extension of the cluster that the caller sent is not valid JSON (line {0}, column {1})"
    )]
    ClusterConfig(usize, usize),
    /// The caller's cluster has no address.
    #[error("the caller sent a cluster whose `server` is empty")]
    ClusterServer,
    /// The caller's cluster is not the one that the broker knows.
    /// With the profile that the request names (`None`: it names the provider, whose known clusters were compared), and how
    /// the clusters differ.
    #[error(
        "the caller sent a cluster that differs from {}: {}; the plugin did not run. If the cluster is from an old \
         kubeconfig, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`",
        known_cluster(.0.as_ref()), .1
    )]
    ClusterMismatch(Option<ProfileName>, &'static str),
    /// The caller's cluster may be a profile's, and the hub was not read yet. As [`ResolveError::ProfileUnread`].
    #[error("the cluster that the caller sent is not known yet: {0}")]
    ClusterUnread(Arc<str>, Duration),
    /// The caller selects an identity with this variable, and the plugin would receive another value (true) or none.
    #[error(
        "the caller sets `{variable}`, but the plugin would run {with} it; to use the caller's value, add `callerEnv: [{variable}]` to the provider; to use the broker's identity for every caller, write `callerEnv: []` there",
        variable = .0, with = if *.1 { "with a different value of" } else { "without" }
    )]
    IdentityConflict(String, bool),
    /// A variable that the kernel cannot pass to a process.
    #[error(
        "the caller's variable `{}` cannot be passed on: a name must not be empty or contain `=`, and neither a name nor a value may contain a NUL",
        shown(.0)
    )]
    InvalidVariable(String),
    /// The plugin has `interactiveMode: Always`, and a ClusterProfile has no user whose terminal it could use.
    #[error(
        "exec plugin cannot support interactive mode: standard input is unavailable: `interactiveMode` is Always, and there is no terminal for a ClusterProfile"
    )]
    NeedsTerminal,
    /// The plugin needs its cluster, which is not known: the kubeconfig uses this user for that many.
    #[error("has `provideClusterInfo: true`, but the caller sent no cluster and {}; set `provideClusterInfo: true` in the `exec` stanza of the caller's kubeconfig", known_clusters(*.0))]
    NoCluster(usize),
    /// The plugin's file exists, and must not run.
    #[error("plugin `{0}` is not allowed: {1}")]
    PluginNotAllowed(Command, Refusal),
    /// The plugin's file does not exist. With where it was looked up, and the `installHint` of the stanza, sanitized.
    #[error("plugin `{0}` is not installed{1}")]
    PluginNotFound(Command, String),
    /// The plugin's file cannot be looked up.
    #[error("plugin `{0}` cannot be looked up")]
    PluginUnreadable(Command, #[source] Arc<io::Error>),
    /// Callers may not send the variable. With the effect that it could have, and a further remedy, which begins with a comma.
    #[error(
        "the caller's variable `{}` is not allowed: {}; unset it, or set it in `env` of the provider's `exec` stanza{}",
        shown(.0), .1, .2
    )]
    VariableNotAllowed(String, &'static str, &'static str),
}

impl ProviderProblem {
    fn separator(&self) -> &'static str {
        if matches!(self, Self::NoCluster(_)) { " " } else { ": " }
    }
}

/// What makes the broker read a definition.
const ADD: &str = "add the kubeconfig that defines it to `kubeconfigs` in the broker's configuration, or, if the broker has no configuration, restart it with that kubeconfig in its KUBECONFIG";

fn known_definitions(definitions: &[Definition]) -> String {
    if let Some(outdated) = definitions.iter().find(|definition| definition.is_outdated) {
        let file = outdated.shown_file();
        return format!(
            "the stanza in {file} was edited, and the arguments of its credbroker-exec do not describe it; run `credbroker kubeconfig inject`"
        );
    }
    if definitions.is_empty() {
        return format!("the broker has read no kubeconfig that defines this provider; {ADD}");
    }
    let files = definitions.iter().map(|definition| shown_path(definition.file()));
    format!(
        "the broker has read only {}, where the definition differs; if this kubeconfig is an older copy of that file, write it again with `credbroker kubeconfig wrap`; otherwise {ADD}",
        listed_all(files)
    )
}

fn known_cluster(profile: Option<&ProfileName>) -> String {
    profile.map_or_else(
        || "the provider's known clusters".to_owned(),
        |profile| format!("the cluster of ClusterProfile `{profile}`"),
    )
}

fn known_clusters(known: usize) -> String {
    match known {
        0 => "the broker knows none for it".to_owned(),
        several => format!("the broker's kubeconfig uses it for {several} clusters"),
    }
}

fn did_you_mean(name: &str, known: &[String]) -> String {
    let nearest = nearest(name, known.iter().map(String::as_str));
    nearest.map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default()
}
