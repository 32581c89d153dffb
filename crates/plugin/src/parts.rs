//! What a key is made of, to explain why two runs are not equal.

use std::{borrow::Cow, collections::BTreeMap, ffi::OsStr, fmt, os::unix::ffi::OsStrExt as _};

use super::{file::Command, provider::Provider, route::PluginSpec, variables::is_standing};
use credbroker_credential::Cluster;
pub use credbroker_proto::v1::key_part::{Kind as PartKind, Origin as PartOrigin};

/// One part of a [`PluginKey`](super::PluginKey). Two runs of a provider have one key if and only if their parts are equal.
#[derive(Clone, Eq, PartialEq)]
pub struct KeyPart<'a> {
    /// What it is.
    pub kind: PartKind,
    /// Name of the variable or of the field of a cluster, or position of the argument; otherwise empty.
    pub name: Cow<'a, str>,
    /// Where the value comes from.
    pub origin: PartOrigin,
    /// The value, which may be a secret.
    pub value: Cow<'a, [u8]>,
}

impl PluginSpec {
    /// The parts of its key.
    pub fn key_parts(&self) -> Vec<KeyPart<'_>> {
        let provider = &*self.provider;
        // Without what a ClusterProfile adds.
        let configured = self.target.as_ref().map_or(&self.provider, |target| &target.configured);
        let mut parts = PartList(Vec::new());
        parts.of_stanza(PartKind::Provider, &provider.name);
        if let Some(definition) = &provider.definition {
            parts.of_stanza(PartKind::Definition, definition.digest());
        }
        parts.add(PartKind::Command, "", PartOrigin::Stanza, command(&provider.command));
        parts.of_stanza(PartKind::ApiVersion, provider.api_version.as_str());
        parts.of_stanza(PartKind::ProvideClusterInfo, flag(provider.provide_cluster_info));
        for (index, arg) in provider.args.iter().enumerate() {
            let is_own = index < configured.args.len();
            let origin = if is_own { PartOrigin::Stanza } else { PartOrigin::ClusterProfile };
            parts.add(PartKind::Argument, (index + 1).to_string(), origin, arg.as_bytes());
        }
        for (name, (origin, value)) in self.variables(configured) {
            parts.add(PartKind::Variable, name.to_string_lossy(), origin, value.as_bytes());
        }
        if let Some(target) = &self.target {
            let profile = target.profile.to_string().into_bytes();
            parts.add(PartKind::ClusterProfile, "", PartOrigin::ClusterProfile, profile);
        }
        if let Some(cluster) = self.endpoint() {
            let origin = match &self.target {
                Some(_) => PartOrigin::ClusterProfile,
                None if provider.clusters.contains(cluster) => PartOrigin::Kubeconfig,
                None => PartOrigin::Caller,
            };
            parts.of_cluster(cluster, origin);
        }
        parts.0
    }

    /// The parts that reach the plugin and that come from a caller or from the ClusterProfile. Without any, the
    /// configuration alone defines the run.
    pub fn foreign_parts(&self) -> Vec<KeyPart<'_>> {
        let mut parts = self.key_parts();
        parts.retain(|part| match part.origin {
            PartOrigin::Caller | PartOrigin::CallerEnv => true,
            PartOrigin::ClusterProfile => match part.kind {
                PartKind::Argument | PartKind::Variable => true,
                PartKind::Cluster => self.cluster.is_some(),
                _ => false,
            },
            PartOrigin::Unspecified
            | PartOrigin::Stanza
            | PartOrigin::Always
            | PartOrigin::PassEnv
            | PartOrigin::Kubeconfig => false,
        });
        parts
    }

    /// The plugin's variables that are in the key, each with the value that wins.
    fn variables(&self, configured: &Provider) -> BTreeMap<&OsStr, (PartOrigin, &OsStr)> {
        let (provider, mut variables) = (&*self.provider, BTreeMap::new());
        for (name, value) in &provider.inherited.0 {
            let origin = match name.to_str() {
                Some("KUBECONFIG") if provider.definition.is_some() => PartOrigin::Kubeconfig,
                Some(name) if is_standing(name) => PartOrigin::Always,
                _ => PartOrigin::PassEnv,
            };
            variables.insert(name.as_os_str(), (origin, value.as_os_str()));
        }
        for (name, value) in &self.caller_env {
            variables.insert(name.as_ref(), (PartOrigin::CallerEnv, value.as_ref()));
        }
        for (name, value) in &provider.env {
            let is_own = configured.env.iter().any(|(own, own_value)| (own, own_value) == (name, value));
            let origin = if is_own { PartOrigin::Stanza } else { PartOrigin::ClusterProfile };
            variables.insert(name.as_ref(), (origin, value.as_ref()));
        }
        variables
    }
}

struct PartList<'a>(Vec<KeyPart<'a>>);

impl<'a> PartList<'a> {
    fn add(
        &mut self,
        kind: PartKind,
        name: impl Into<Cow<'a, str>>,
        origin: PartOrigin,
        value: impl Into<Cow<'a, [u8]>>,
    ) {
        self.0.push(KeyPart { kind, name: name.into(), origin, value: value.into() });
    }

    fn of_stanza(&mut self, kind: PartKind, value: &'a str) {
        self.add(kind, "", PartOrigin::Stanza, value.as_bytes());
    }

    /// Fields that are set, by their names in `KUBERNETES_EXEC_INFO`. The server is one of them even if it is empty: a run
    /// with a cluster differs from a run without.
    fn of_cluster(&mut self, cluster: &'a Cluster, origin: PartOrigin) {
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
        let set = |flag: bool| if flag { self::flag(true) } else { "" };
        let fields = [
            ("server", server.as_bytes()),
            ("tls-server-name", tls_server_name.as_bytes()),
            ("insecure-skip-tls-verify", set(*insecure_skip_tls_verify).as_bytes()),
            ("certificate-authority-data", certificate_authority_data),
            ("proxy-url", proxy_url.as_bytes()),
            ("disable-compression", set(*disable_compression).as_bytes()),
            ("config", config),
        ];
        for (name, value) in fields.into_iter().filter(|(name, value)| *name == "server" || !value.is_empty())
        {
            self.add(PartKind::Cluster, name, origin, value);
        }
    }
}

/// A path begins with `/`, and a bare name has none.
fn command(command: &Command) -> &[u8] {
    match command {
        Command::Name(name) => name.as_bytes(),
        Command::Path(path) => path.as_os_str().as_bytes(),
    }
}

const fn flag(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
}

/// Shows no value.
impl fmt::Debug for KeyPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, origin, value: _ } = self;
        f.debug_struct("KeyPart").field("kind", kind).field("name", name).field("origin", origin).finish()
    }
}

#[cfg(test)]
mod tests;
