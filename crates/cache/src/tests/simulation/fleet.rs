//! The providers, issuers and keys of one simulation, as the newest configuration and the hub define them.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{super::target, scene::Scene};
use crate::Selector;
use credbroker_plugin::{
    Command, Interactive, Issuer, PluginFile, PluginKey, PluginSpec, ProfileName, Provider, Target,
    testing::provider as test_provider,
};

/// The issuer of each provider, and whether its plugin reads from a terminal. Some share one issuer.
const PROVIDERS: [(&str, usize, Interactive); 6] = [
    ("alpha", 0, Interactive::Never),
    ("beta", 0, Interactive::Never),
    ("gamma", 1, Interactive::Never),
    ("delta", 2, Interactive::Never),
    ("device", PERSONS, Interactive::IfAvailable),
    ("terminal", PERSONS, Interactive::Always),
];
pub(super) const ISSUERS: [&str; 4] = ["idp", "cloud", "vault", "sso"];
/// The issuer that asks users.
const PERSONS: usize = 3;
/// One of this many keys is for a ClusterProfile.
const PROFILES: usize = 7;
/// The variable of a caller selects one of this many keys.
const VARIABLES: usize = 4;
/// The length of the shortest piece of a value that counts as a quotation.
const QUOTED: usize = 3;
/// The variable.
pub(super) const VARIABLE: &str = "AWS_PROFILE";

/// A provider, and the plugin's file.
pub(super) struct Plugin {
    provider: Mutex<Arc<Provider>>,
    pub(super) file: Arc<PluginFile>,
    /// The index of its issuer.
    pub(super) issuer: usize,
    /// How long its credentials live.
    pub(super) lifetime: Duration,
    pub(super) interactive: Interactive,
}

/// The target of a profile, and how many it had before.
type Moving = (Arc<Target>, usize);

/// All keys, with their plugins and issuers.
pub(super) struct Catalog {
    pub(super) plugins: Vec<Plugin>,
    issuers: Mutex<Vec<Arc<Issuer>>>,
    pub(super) keys: usize,
    /// Of each key of a profile.
    targets: Mutex<Vec<Option<Moving>>>,
    /// The plugins that ask users are the last ones; a large simulation has none of them.
    in_use: usize,
}

impl Plugin {
    pub(super) fn provider(&self) -> Arc<Provider> {
        Arc::clone(&self.provider.lock().unwrap())
    }

    /// Whether its runs may need a user.
    pub(super) fn asks_persons(&self) -> bool {
        self.interactive != Interactive::Never
    }
}

impl Catalog {
    pub(super) fn new(scene: Scene) -> Self {
        let issuers: Vec<_> = ISSUERS.into_iter().map(|name| issuer(name, scene.is_large)).collect();
        let plugins = PROVIDERS.into_iter().map(|(name, issuer, interactive)| {
            let command = Command::Path("/fake".into());
            let known = test_provider(name, command.clone());
            let provider = Provider { issuer: Arc::clone(&issuers[issuer]), interactive, ..known };
            let lifetime = Duration::from_secs(fastrand::choice([45, 100, 300, 900, 3600]).unwrap());
            let file = Arc::new(PluginFile::new(command, None));
            Plugin { provider: Mutex::new(Arc::new(provider)), file, issuer, lifetime, interactive }
        });
        let targets = (0..scene.keys).map(|key| {
            (key % PROFILES == PROFILES - 1).then(|| (target(&format!("profile-{key}"), &key.to_string()), 0))
        });
        Self {
            plugins: plugins.collect(),
            targets: Mutex::new(targets.collect()),
            issuers: Mutex::new(issuers),
            keys: scene.keys,
            in_use: if scene.is_large { PERSONS + 1 } else { PROVIDERS.len() },
        }
    }

    pub(super) fn plugin_of(&self, key: usize) -> usize {
        key % self.in_use
    }

    pub(super) fn issuer(&self, issuer: usize) -> Arc<Issuer> {
        Arc::clone(&self.issuers.lock().unwrap()[issuer])
    }

    /// Selects the keys of a plugin's provider.
    pub(super) fn selector(&self, plugin: usize) -> Selector {
        Selector::Provider(Arc::clone(&self.plugins[plugin].provider().name))
    }

    /// The name of the profile that `key` is for.
    pub(super) fn profile_of(&self, key: usize) -> Option<ProfileName> {
        self.target_of(key).map(|target| target.profile.clone())
    }

    fn target_of(&self, key: usize) -> Option<Arc<Target>> {
        self.targets.lock().unwrap()[key].as_ref().map(|(target, _)| Arc::clone(target))
    }

    pub(super) fn spec(&self, key: usize) -> PluginSpec {
        let plugin = &self.plugins[self.plugin_of(key)];
        let target = self.targets.lock().unwrap()[key].clone();
        let mut name = [0; 32];
        let version = target.as_ref().map_or(0, |(_, version)| *version);
        // These bytes are part of the text of a key.
        name[..8].copy_from_slice(&(key << 16 | version).to_be_bytes());
        let variables = is_made(key).then(|| (VARIABLE.to_owned(), value(key)));
        PluginSpec {
            key: PluginKey(name),
            provider: plugin.provider(),
            file: Arc::clone(&plugin.file),
            cluster: None,
            caller_env: BTreeMap::from_iter(variables),
            target: target.map(|(target, _)| target),
        }
    }

    /// The profile of `key` gets another target.
    pub(super) fn move_target(&self, key: usize) -> Option<Arc<Target>> {
        let mut targets = self.targets.lock().unwrap();
        let (moved, version) = targets[key].as_mut()?;
        *version += 1;
        *moved = target(&format!("profile-{key}"), &format!("{key}-{version}"));
        Some(Arc::clone(moved))
    }

    /// A newer configuration has another definition of the provider of `plugin`, or the same with another budget.
    pub(super) fn redefine(&self, plugin: usize, change: impl FnOnce(&mut Provider)) -> [Arc<Provider>; 2] {
        let mut provider = self.plugins[plugin].provider.lock().unwrap();
        let old = Arc::clone(&provider);
        let mut new = Provider::clone(&old);
        change(&mut new);
        *provider = Arc::new(new);
        [old, Arc::clone(&provider)]
    }

    /// A newer configuration has other limits of all issuers.
    pub(super) fn limit_issuers(&self) -> Vec<Arc<Issuer>> {
        let issuers: Vec<_> = ISSUERS.into_iter().map(|name| issuer(name, false)).collect();
        self.issuers.lock().unwrap().clone_from(&issuers);
        issuers
    }
}

/// The value of the variable that selects `key`. The plugin prints it when it fails.
fn value(key: usize) -> String {
    match key / VARIABLES % 3 {
        0 => format!("Throttling {key}"),
        1 => format!("x) Retry-After: 600 ({key}"),
        _ => format!("profile {key}"),
    }
}

/// Whether the variables of a caller select `key`.
pub(super) fn is_made(key: usize) -> bool {
    key % VARIABLES == VARIABLES - 1 && key % PROFILES != PROFILES - 1
}

/// Whether `text` has a piece of the value that selects `key`: it may be a quotation then, and says nothing about the issuer.
pub(super) fn hides(key: usize, text: &str) -> bool {
    let (value, text) = (value(key).to_ascii_lowercase(), text.to_ascii_lowercase());
    let mut pieces = text.as_bytes().windows(QUOTED);
    is_made(key) && pieces.any(|piece| value.as_bytes().windows(QUOTED).any(|other| other == piece))
}

/// The number of the key that `spec` is for.
pub(super) fn index(spec: &PluginSpec) -> usize {
    usize::from_be_bytes(spec.key.0[..8].try_into().unwrap()) >> 16
}

/// What a credential of `spec` is for: another definition or another target has another identity.
pub(super) fn identity(spec: &PluginSpec) -> u64 {
    let mut hasher = DefaultHasher::new();
    (spec.key.0, &spec.provider.args).hash(&mut hasher);
    hasher.finish()
}

fn issuer(name: &str, large: bool) -> Arc<Issuer> {
    let (rate, concurrency) =
        if large { (200, 100) } else { (fastrand::usize(8..20), fastrand::usize(3..8)) };
    let count = |count| NonZeroUsize::new(count).unwrap();
    Arc::new(Issuer { name: name.into(), runs_per_second: count(rate), concurrency: count(concurrency) })
}
