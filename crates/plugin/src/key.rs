//! Keys: which runs are equal.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
    hash::{Hash, Hasher},
    os::unix::ffi::OsStrExt as _,
};

use super::{file::Command, hash::HashInput, profile::ProfileName, provider::Provider};
use credbroker_credential::Cluster;

/// SHA-256 over everything in a request and the configuration that can change a plugin's answer, and nothing else.
///
/// The plugin's file is not part of it: an upgraded plugin returns the same credential.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
pub struct PluginKey(pub [u8; 32]);

/// Uses the first bytes of the key, which are already uniform.
impl Hash for PluginKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.first_chunk().copied().map_or(0, u64::from_ne_bytes));
    }
}

/// Hasher that returns the first bytes of a [`PluginKey`] unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl fmt::Display for PluginKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(6).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PluginKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PluginKey({self})")
    }
}

/// The part of a key that no request changes: a provider, or a ClusterProfile with its provider, hashed once.
///
/// The install hint and the limits are not part of it, because they change no answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RunDigest([u8; 32]);

impl RunDigest {
    /// Digest of runs for a profile. It covers the profile's name and the whole endpoint, even if the plugin does not
    /// receive them: a credential for one cluster is never served for another.
    pub(crate) fn of_target(provider: &Provider, profile: &ProfileName, endpoint: &Cluster) -> Self {
        let mut fields = HashInput::new(b"credbroker profile 2", endpoint.certificate_authority_data.len());
        fields.text(&Self::of(provider).0);
        fields.text(profile.namespace.as_bytes());
        fields.text(profile.name.as_bytes());
        fields.cluster(endpoint);
        Self(fields.hash())
    }

    pub(crate) fn of(provider: &Provider) -> Self {
        let mut environment: BTreeMap<OsString, OsString> = provider.inherited.0.clone();
        environment.extend(provider.env.iter().map(|(name, value)| (name.into(), value.into())));
        let mut fields = HashInput::new(b"credbroker provider 3", 0);
        fields.text(provider.name.as_bytes());
        fields.text(provider.definition.as_ref().map_or("", |definition| definition.digest()).as_bytes());
        match &provider.command {
            Command::Name(name) => {
                fields.flag(false);
                fields.text(name.as_bytes());
            }
            Command::Path(path) => {
                fields.flag(true);
                fields.text(path.as_os_str().as_bytes());
            }
        }
        fields.text(provider.api_version.as_str().as_bytes());
        fields.flag(provider.provide_cluster_info);
        fields.count(provider.args.len());
        provider.args.iter().for_each(|arg| fields.text(arg.as_bytes()));
        fields.variables(environment.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())));
        Self(fields.hash())
    }
}

impl PluginKey {
    /// The key of one run. `cluster` and `caller_env`, which is sorted, are what the plugin receives, not all that the
    /// caller sent. If the plugin receives neither, which is the usual case, nothing is hashed.
    pub(super) fn of<'a>(
        run: RunDigest,
        cluster: Option<&Cluster>,
        caller_env: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut caller_env = caller_env.peekable();
        if cluster.is_none() && caller_env.peek().is_none() {
            return Self(run.0); // differs from the hashes below, which begin with another version
        }
        let authorities = cluster.map_or(0, |cluster| cluster.certificate_authority_data.len());
        let mut fields = HashInput::new(b"credbroker run 2", authorities);
        fields.text(&run.0);
        fields.flag(cluster.is_some());
        if let Some(cluster) = cluster {
            fields.cluster(cluster);
        }
        fields.variables(caller_env.map(|(name, value)| (OsStr::new(name), OsStr::new(value))));
        Self(fields.hash())
    }
}

#[cfg(test)]
mod tests;
