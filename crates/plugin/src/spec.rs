//! One invocation of a plugin, fully resolved.

use std::{collections::BTreeMap, ffi::OsString, fmt, sync::Arc};

use super::{file::PluginFile, key::PluginKey, provider::Provider, session::Session, target::Target};
use credbroker_credential::Cluster;

/// Everything that a run needs, resolved for one request. Equal keys mean equal runs.
pub struct PluginSpec {
    /// Key of the run: a hash of everything that can change the answer, and nothing else.
    pub key: PluginKey,
    /// The configured plugin.
    pub provider: Arc<Provider>,
    /// The file that runs. It is not part of the key: after an upgrade, a credential in the cache is due but usable.
    pub file: Arc<PluginFile>,
    /// Cluster that the plugin receives; `None` unless the provider wants it.
    pub cluster: Option<Arc<Cluster>>,
    /// Variables of the caller that reach the plugin.
    pub caller_env: BTreeMap<String, String>,
    /// ClusterProfile that the run is for; `None`: the request named the provider.
    pub target: Option<Arc<Target>>,
}

/// Shows the names of variables, never their values.
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
    /// Version of the plugin's file that was found last; see [`PluginFile::version`]. Reads memory only.
    pub fn file_version(&self) -> u64 {
        self.file.version()
    }

    /// Cluster that the credential is for, if known: the ClusterProfile's endpoint, else what the plugin receives.
    pub fn endpoint(&self) -> Option<&Cluster> {
        let endpoint = self.target.as_ref().map(|target| &*target.endpoint);
        endpoint.or(self.cluster.as_deref())
    }

    /// Name of the plugin in messages: its executable, without arguments or environment.
    pub fn command(&self) -> Arc<str> {
        self.file.to_string().into()
    }

    /// The plugin's environment without `KUBERNETES_EXEC_INFO`. The stanza's values override those of `session` and of the
    /// caller, which override the inherited ones.
    pub fn environment(&self, session: Option<&Session>) -> BTreeMap<OsString, OsString> {
        let mut env = self.provider.inherited.0.clone();
        env.extend(self.caller_env.iter().map(|(name, value)| (name.into(), value.into())));
        env.extend(self.provider.env.iter().map(|(name, value)| (name.into(), value.into())));
        let is_set = |name: &str| self.provider.env.iter().any(|(set, _)| set == name);
        Session::put(session, &mut env, is_set);
        env
    }
}
