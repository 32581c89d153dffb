//! The providers, issuers and keys of one simulation.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, time::Duration};

use super::super::target;
use crate::{
    cache::Selector,
    plugin::{
        Command, Issuer, PluginFile, PluginKey, PluginSpec, ProfileName, Provider, Target, test_provider,
    },
};

/// The issuer of each provider: two of them share one issuer.
const ISSUERS: [(&str, usize); 4] = [("alpha", 0), ("beta", 0), ("gamma", 1), ("delta", 2)];
/// One of this many keys is for a ClusterProfile.
const PROFILES: usize = 7;

/// A provider, and the plugin's file.
pub(super) struct Plugin {
    pub(super) provider: Arc<Provider>,
    pub(super) file: Arc<PluginFile>,
    /// The index of its issuer.
    pub(super) issuer: usize,
    /// How long its credentials live.
    pub(super) lifetime: Duration,
}

/// All keys, with their plugins and issuers.
pub(super) struct Catalog {
    pub(super) plugins: Vec<Plugin>,
    pub(super) issuers: Vec<Arc<Issuer>>,
    pub(super) keys: usize,
    targets: Vec<Option<Arc<Target>>>,
}

impl Catalog {
    pub(super) fn new(keys: usize, large: bool) -> Self {
        let issuers: Vec<_> = ["idp", "cloud", "vault"].into_iter().map(|name| issuer(name, large)).collect();
        let plugins = ISSUERS.into_iter().map(|(name, issuer)| {
            let command = Command::Path("/fake".into());
            let provider =
                Provider { issuer: Arc::clone(&issuers[issuer]), ..test_provider(name, command.clone()) };
            let lifetime = Duration::from_secs(fastrand::choice([45, 100, 300, 900, 3600]).unwrap());
            let file = Arc::new(PluginFile::new(command, None));
            Plugin { provider: Arc::new(provider), file, issuer, lifetime }
        });
        let targets = (0..keys).map(|key| {
            (key % PROFILES == PROFILES - 1).then(|| target(&format!("profile-{key}"), &key.to_string()))
        });
        Self { plugins: plugins.collect(), targets: targets.collect(), issuers, keys }
    }

    pub(super) fn plugin_of(&self, key: usize) -> usize {
        key % self.plugins.len()
    }

    /// Selects the keys of a plugin's provider.
    pub(super) fn selector(&self, plugin: usize) -> Selector {
        Selector::Provider(Arc::clone(&self.plugins[plugin].provider.name))
    }

    /// The name of the profile that `key` is for.
    pub(super) fn profile_of(&self, key: usize) -> Option<ProfileName> {
        self.targets[key].as_ref().map(|target| target.profile.clone())
    }

    pub(super) fn spec(&self, key: usize) -> PluginSpec {
        let plugin = &self.plugins[self.plugin_of(key)];
        let mut name = [0; 32];
        // These bytes are part of the text of a key.
        name[..8].copy_from_slice(&(key << 16).to_be_bytes());
        PluginSpec {
            key: PluginKey(name),
            provider: Arc::clone(&plugin.provider),
            file: Arc::clone(&plugin.file),
            cluster: None,
            caller_env: BTreeMap::new(),
            target: self.targets[key].clone(),
        }
    }
}

/// The number of the key that `spec` is for.
pub(super) fn index(spec: &PluginSpec) -> usize {
    usize::from_be_bytes(spec.key.0[..8].try_into().unwrap()) >> 16
}

fn issuer(name: &str, large: bool) -> Arc<Issuer> {
    let (rate, concurrency) =
        if large { (200, 100) } else { (fastrand::usize(8..20), fastrand::usize(3..8)) };
    let count = |count| NonZeroUsize::new(count).unwrap();
    Arc::new(Issuer { name: name.into(), runs_per_second: count(rate), concurrency: count(concurrency) })
}
