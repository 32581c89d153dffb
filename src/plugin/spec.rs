//! One invocation, fully resolved.

use std::{collections::BTreeMap, ffi::OsString, fmt, sync::Arc};

use super::{file::PluginFile, key::PluginKey, provider::Provider, target::Target};
use crate::credential::Cluster;

/// Everything a run needs, resolved for one request into a fresh value. Equal keys mean equal runs.
pub struct PluginSpec {
    /// Names this invocation: everything that can change the answer, and nothing else.
    pub key: PluginKey,
    /// The configured plugin.
    pub provider: Arc<Provider>,
    /// The file that runs. It is not part of the key: with another version of it, a credential in the cache is due but usable.
    pub file: Arc<PluginFile>,
    /// What the plugin gets its cluster: `None` unless the provider wants it.
    pub cluster: Option<Arc<Cluster>>,
    /// The caller's variables that the provider's `callerEnv` names.
    pub caller_env: BTreeMap<String, String>,
    /// The ClusterProfile that it is for; `None`: it was asked for by the provider's name.
    pub target: Option<Arc<Target>>,
}

/// Names of variables, never their values.
impl fmt::Debug for PluginSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PluginSpec");
        shown.field("key", &self.key).field("provider", &self.provider.name);
        shown.field("profile", &self.target.as_ref().map(|target| &target.profile));
        shown.field("file", &self.file);
        shown.field("cluster", &self.cluster.as_ref().map(|cluster| &cluster.server));
        shown.field("caller_env", &self.caller_env.keys()).finish()
    }
}

impl PluginSpec {
    /// Which of the plugin's files was found last; see [`PluginFile::version`]. Reads memory only.
    pub fn file_version(&self) -> u64 {
        self.file.version()
    }

    /// Where the credential is for, as far as that is known: the ClusterProfile's endpoint, else the cluster that the
    /// plugin gets.
    pub fn endpoint(&self) -> Option<&Cluster> {
        let endpoint = self.target.as_ref().map(|target| &*target.endpoint);
        endpoint.or(self.cluster.as_deref())
    }

    /// How messages name the plugin: its executable, without arguments or environment.
    pub fn command(&self) -> Arc<str> {
        self.file.to_string().into()
    }

    /// The plugin's whole environment but for `KUBERNETES_EXEC_INFO`: inherited, then the caller's, then the stanza's.
    pub fn environment(&self) -> BTreeMap<OsString, OsString> {
        let mut env = self.provider.inherited.0.clone();
        env.extend(self.caller_env.iter().map(|(name, value)| (name.into(), value.into())));
        env.extend(self.provider.env.iter().map(|(name, value)| (name.into(), value.into())));
        env
    }
}
