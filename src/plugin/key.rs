//! Which runs are the same run.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::OsStrExt as _,
    time::{SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::digest::{SHA256, digest};

use super::{Executable, ProfileName, Provider};
use crate::credential::Cluster;

/// SHA-256 over everything that can change a plugin's answer, and nothing else.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PluginKey(pub(crate) [u8; 32]);

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

/// What a provider, or a ClusterProfile with its provider, contributes to the key of each of its runs: all that no
/// request changes, hashed once.
///
/// Not in it: the install hint and the limits, which change no answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct RunDigest([u8; 32]);

impl RunDigest {
    /// Of runs for a profile. Its name and its whole endpoint are in it, whatever of them the plugin is told: what is
    /// held for one cluster is never handed out for another place.
    pub(super) fn of_target(provider: &Provider, profile: &ProfileName, endpoint: &Cluster) -> Self {
        let mut fields = Fields::new(b"credbroker profile 1", endpoint.certificate_authority_data.len());
        fields.text(&Self::of(provider).0);
        fields.text(profile.namespace.as_bytes());
        fields.text(profile.name.as_bytes());
        fields.cluster(endpoint);
        Self(fields.hash())
    }

    pub(super) fn of(provider: &Provider) -> Self {
        let mut environment: BTreeMap<OsString, OsString> = provider.inherited.0.clone();
        environment.extend(provider.env.iter().map(|(name, value)| (name.into(), value.into())));
        let mut fields = Fields::new(b"credbroker provider 1", 0);
        fields.text(provider.name.as_bytes());
        fields.text(provider.api_version.as_str().as_bytes());
        fields.flag(provider.provide_cluster_info);
        fields.count(provider.args.len());
        provider.args.iter().for_each(|arg| fields.text(arg.as_bytes()));
        fields.variables(environment.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())));
        Self(fields.hash())
    }
}

impl PluginKey {
    /// The key of one run. `cluster` and `caller_env` are what the plugin receives, not all that the caller sent.
    pub(super) fn of(
        provider: RunDigest,
        executable: &Executable,
        cluster: Option<&Cluster>,
        caller_env: &BTreeMap<String, String>,
    ) -> Self {
        let authorities = cluster.map_or(0, |cluster| cluster.certificate_authority_data.len());
        let mut fields = Fields::new(b"credbroker run 1", authorities);
        fields.text(&provider.0);
        fields.text(executable.path.as_os_str().as_bytes());
        fields.number(executable.inode);
        fields.time(executable.modified);
        fields.flag(cluster.is_some());
        if let Some(cluster) = cluster {
            fields.cluster(cluster);
        }
        fields.variables(caller_env.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value))));
        Self(fields.hash())
    }
}

/// The hash's input. Every field has a fixed size or says its length first, and every list its count, so two inputs
/// are equal only if all their fields are.
struct Fields(Vec<u8>);

impl Fields {
    /// `version` names the layout: a change of it is a change of every key. `large` is the size of what may be large;
    /// room for it is made at once, and no more than that, since every freed block is wiped.
    fn new(version: &[u8], large: usize) -> Self {
        let mut fields = Self(Vec::with_capacity(large + 1024));
        fields.text(version);
        fields
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    fn text(&mut self, text: &[u8]) {
        self.count(text.len());
        self.0.extend_from_slice(text);
    }

    fn time(&mut self, time: SystemTime) {
        let since = time.duration_since(UNIX_EPOCH);
        self.flag(since.is_ok());
        let distance = since.unwrap_or_else(|before| before.duration());
        self.number(distance.as_secs());
        self.number(u64::from(distance.subsec_nanos()));
    }

    fn variables<'a>(&mut self, sorted: impl ExactSizeIterator<Item = (&'a OsStr, &'a OsStr)>) {
        self.count(sorted.len());
        for (name, value) in sorted {
            self.text(name.as_bytes());
            self.text(value.as_bytes());
        }
    }

    fn cluster(&mut self, cluster: &Cluster) {
        // A field that is added to the cluster does not compile here until it is in the key.
        let Cluster {
            server,
            tls_server_name,
            insecure_skip_tls_verify,
            certificate_authority_data,
            proxy_url,
            disable_compression,
            config,
        } = cluster;
        self.text(server.as_bytes());
        self.text(tls_server_name.as_bytes());
        self.flag(*insecure_skip_tls_verify);
        self.text(certificate_authority_data);
        self.text(proxy_url.as_bytes());
        self.flag(*disable_compression);
        self.text(config);
    }

    fn hash(self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, &self.0).as_ref());
        hash
    }
}

#[cfg(test)]
mod tests;
