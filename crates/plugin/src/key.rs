//! Keys: which runs are equal, and what a key is made of.

use std::{borrow::Cow, collections::BTreeMap, fmt, iter, os::unix::ffi::OsStrExt as _};

use aws_lc_rs::digest::{Context, SHA256};

use super::{file::Command, profile::ProfileName, provider::Provider, variables::is_standing};
use credbroker_credential::{Cluster, Sha256};
pub use credbroker_proto::v1alpha1::id_part::{Kind as PartKind, Origin as PartOrigin};

/// SHA-256 over everything in a request and the configuration that can change a plugin's answer, and nothing else.
///
/// The plugin's file is not a part: an upgraded plugin returns the same credential. Nor are install hint and limits.
#[derive(Clone, Copy, derive_more::Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[debug("PluginKey({self})")]
pub struct PluginKey(pub [u8; 32]);

impl PluginKey {
    /// The key of a provider's runs to which no caller and no profile adds.
    pub(super) fn of_provider(provider: &Provider) -> Self {
        Self::hash("credbroker provider 4", None, IdPart::of_run(provider, provider, &BTreeMap::new()))
    }

    /// The key of runs for a profile to which no caller adds. It covers the profile's name and the whole endpoint, even if
    /// the plugin does not receive them: a credential for one cluster is never served for another.
    pub(super) fn of_profile(provider: &Provider, profile: &ProfileName, endpoint: &Cluster) -> Self {
        let cluster = IdPart::of_cluster(endpoint, PartOrigin::ClusterProfile);
        let parts = iter::once(IdPart::of_profile(profile)).chain(cluster);
        Self::hash("credbroker profile 3", Some(Self::of_provider(provider)), parts)
    }

    /// This key of a provider or a profile, for one run. `cluster` and `caller_env`, which is sorted, are what the plugin
    /// receives, not all that the caller sent. If it receives neither, which is the usual case, nothing is hashed.
    pub(super) fn with<'a>(
        self,
        cluster: Option<&'a Cluster>,
        caller_env: impl Iterator<Item = (&'a String, &'a String)>,
    ) -> Self {
        let fields = cluster.into_iter().flat_map(|cluster| IdPart::of_cluster(cluster, PartOrigin::Caller));
        let variable = |(name, value): (&'a String, &'a String)| {
            IdPart::new(PartKind::Variable, name.as_bytes(), PartOrigin::CallerEnv, value.as_bytes())
        };
        let mut parts = fields.chain(caller_env.map(variable)).peekable();
        if parts.peek().is_none() {
            return self;
        }
        Self::hash("credbroker run 3", Some(self), parts)
    }

    /// A new `version`, which names layout and level, changes every key. With its length, no text can look like two.
    fn hash<'a>(version: &str, base: Option<Self>, parts: impl IntoIterator<Item = IdPart<'a>>) -> Self {
        let mut digest = Context::new(&SHA256);
        let mut put = |text: &[u8]| {
            digest.update(&(text.len() as u64).to_le_bytes());
            digest.update(text);
        };
        put(version.as_bytes());
        put(base.as_ref().map_or(&[], |base| &base.0));
        for IdPart { kind, name, origin: _, value } in parts {
            put(&i32::from(kind).to_le_bytes());
            put(&name);
            put(&value);
        }
        Self(Sha256::from(digest.finish()).0)
    }
}

impl fmt::Display for PluginKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(6).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// One part of a [`PluginKey`]. Two runs of a provider have one key if and only if their parts are equal. `Debug` shows no
/// value.
#[derive(Clone, derive_more::Debug, Eq, PartialEq)]
#[debug("{kind:?} {:?} {origin:?}", String::from_utf8_lossy(name))]
pub struct IdPart<'a> {
    /// What it is.
    pub kind: PartKind,
    /// Name of the variable or of the field of a cluster, or position of the argument; otherwise empty.
    pub name: Cow<'a, [u8]>,
    /// Where the value comes from.
    pub origin: PartOrigin,
    /// The value, which may be a secret.
    pub value: Cow<'a, [u8]>,
}

impl<'a> IdPart<'a> {
    fn new(
        kind: PartKind,
        name: impl Into<Cow<'a, [u8]>>,
        origin: PartOrigin,
        value: impl Into<Cow<'a, [u8]>>,
    ) -> Self {
        Self { kind, name: name.into(), origin, value: value.into() }
    }

    /// The parts of a run of `provider` with these variables of a caller. `configured` lacks what a profile adds.
    pub(super) fn of_run(
        provider: &'a Provider,
        configured: &Provider,
        caller_env: &'a BTreeMap<String, String>,
    ) -> Vec<Self> {
        use PartOrigin::{Always, CallerEnv, ClusterProfile, Kubeconfig, PassEnv, Stanza};
        let command = match &provider.command {
            Command::Name(name) => name.as_bytes(),
            // It begins with `/`, and a bare name has none.
            Command::Path(path) => path.as_os_str().as_bytes(),
        };
        let with_cluster = if provider.provide_cluster_info { "true" } else { "false" };
        let definition = provider.definition.as_ref().map(|definition| definition.digest.as_bytes());
        let stanza = [
            (PartKind::Provider, Some(provider.name.as_bytes())),
            (PartKind::Definition, definition),
            (PartKind::Command, Some(command)),
            (PartKind::ApiVersion, Some(provider.api_version.as_str().as_bytes())),
            (PartKind::ProvideClusterInfo, Some(with_cluster.as_bytes())),
        ];
        let stanza =
            stanza.into_iter().filter_map(|(kind, value)| Some(Self::new(kind, b"", Stanza, value?)));
        let mut parts: Vec<_> = stanza.collect();
        for (index, arg) in provider.args.iter().enumerate() {
            let origin = if index < configured.args.len() { Stanza } else { ClusterProfile };
            let position = (index + 1).to_string().into_bytes();
            parts.push(Self::new(PartKind::Argument, position, origin, arg.as_bytes()));
        }
        // Of each variable, the value that wins.
        let mut variables = BTreeMap::new();
        for (name, value) in &provider.inherited.0 {
            let origin = match name.to_str() {
                Some("KUBECONFIG") if provider.definition.is_some() => Kubeconfig,
                Some(name) if is_standing(name) => Always,
                _ => PassEnv,
            };
            variables.insert(name.as_bytes(), (origin, value.as_bytes()));
        }
        for (name, value) in caller_env {
            variables.insert(name.as_bytes(), (CallerEnv, value.as_bytes()));
        }
        for variable in &provider.env {
            let origin = if configured.env.contains(variable) { Stanza } else { ClusterProfile };
            variables.insert(variable.0.as_bytes(), (origin, variable.1.as_bytes()));
        }
        let variable = |(name, (origin, value))| Self::new(PartKind::Variable, name, origin, value);
        parts.extend(variables.into_iter().map(variable));
        parts
    }

    /// The part of a run for `profile`. With the length of the namespace, no two names have one value.
    pub(super) fn of_profile(profile: &ProfileName) -> Self {
        let name = format!("{}:{profile}", profile.namespace.len());
        Self::new(PartKind::ClusterProfile, b"", PartOrigin::ClusterProfile, name.into_bytes())
    }

    /// The fields that are set, and the server: a run with a cluster differs from one without. Named as for the plugin.
    pub(super) fn of_cluster(cluster: &'a Cluster, origin: PartOrigin) -> impl Iterator<Item = Self> {
        // A new field of `Cluster` does not compile here until it is a part.
        let Cluster {
            server,
            tls_server_name,
            insecure_skip_tls_verify,
            certificate_authority_data,
            proxy_url,
            disable_compression,
            config,
        } = cluster;
        let flag = |flag: &bool| if *flag { "true".as_bytes() } else { b"" };
        let fields: [(&str, &[u8]); 7] = [
            ("server", server.as_bytes()),
            ("tls-server-name", tls_server_name.as_bytes()),
            ("insecure-skip-tls-verify", flag(insecure_skip_tls_verify)),
            ("certificate-authority-data", certificate_authority_data),
            ("proxy-url", proxy_url.as_bytes()),
            ("disable-compression", flag(disable_compression)),
            ("config", config),
        ];
        let set = fields.into_iter().filter(|(name, value)| *name == "server" || !value.is_empty());
        set.map(move |(name, value)| Self::new(PartKind::Cluster, name.as_bytes(), origin, value))
    }
}

#[cfg(test)]
mod tests;
