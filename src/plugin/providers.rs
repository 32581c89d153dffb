//! All configured plugins, and one invocation of one of them.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    sync::Arc,
    time::Duration,
};

use serde::de::IgnoredAny;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{
    Command, FileError, PluginFile, PluginKey, PluginSpec, Provider, ResolveError, Target,
    environment::reaches, key::RunDigest,
};
use crate::credential::Cluster;

/// How often the plugins' files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the look at one file may hold up those at the others.
const LOOK_PATIENCE: Duration = Duration::from_millis(100);

/// All configured plugins by name. What a request adds goes into a value of its own.
#[derive(Debug, Default)]
pub struct Providers {
    by_name: HashMap<Arc<str>, Entry>,
    /// In the configuration's order.
    access: Vec<Arc<Provider>>,
    /// Every file once: users of one plugin share it.
    files: Vec<Arc<PluginFile>>,
}

/// One provider, with what is the same for each of its runs.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) provider: Arc<Provider>,
    digest: RunDigest,
    file: Arc<PluginFile>,
}

/// The run that a request leads to, without what only the request has.
pub(super) struct Lead<'a> {
    entry: &'a Entry,
    place: Place<'a>,
}

/// What of a cluster is in a run.
enum Place<'a> {
    /// Nothing.
    Nowhere,
    /// The plugin is told the cluster that the caller sent.
    Sent,
    /// The plugin is told one that the configuration names.
    Known(&'a Cluster),
    /// It is for a ClusterProfile.
    Profile(Arc<Target>),
}

impl Providers {
    /// In the configuration's order. Names are distinct, which the configuration has checked; of two the last one stays.
    pub fn new(providers: impl IntoIterator<Item = Provider>) -> Self {
        Self::with(providers, PluginFile::new)
    }

    /// The same, with files that are made by `file` of a command and a `PATH`.
    fn with(
        providers: impl IntoIterator<Item = Provider>,
        file: impl Fn(Command, Option<&OsStr>) -> PluginFile,
    ) -> Self {
        let (mut all, mut files) = (Self::default(), HashMap::new());
        for provider in providers {
            let path = provider.inherited.get("PATH");
            let new = || Arc::new(file(provider.command.clone(), path));
            let named = (provider.command.clone(), path.map(OsStr::to_owned));
            let file = Arc::clone(files.entry(named).or_insert_with(new));
            let (digest, provider) = (RunDigest::of(&provider), Arc::new(provider));
            all.access.retain(|earlier| earlier.name != provider.name);
            if provider.profile_sourced.is_some() {
                all.access.push(Arc::clone(&provider));
            }
            let name = Arc::clone(&provider.name);
            all.by_name.insert(name, Entry { provider, digest, file });
        }
        all.files = files.into_values().collect();
        all
    }

    /// Looks at the plugins' files about once a second, until `draining` is cancelled. A file on a hung mount holds up
    /// its own plugin only.
    pub async fn keep_looking(&self, draining: &CancellationToken) {
        let mut turns = interval(LOOK_EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while draining.run_until_cancelled(turns.tick()).await.is_some() {
            for file in &self.files {
                file.look_unless_looking(LOOK_PATIENCE).await;
            }
        }
    }

    /// Looks at every file, on this thread.
    #[cfg(test)]
    pub(crate) fn look(&self) {
        self.files.iter().for_each(|file| file.look_now());
    }

    /// Those that may serve ClusterProfiles, in the configuration's order.
    pub fn access_providers(&self) -> &[Arc<Provider>] {
        &self.access
    }

    /// Every provider, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Provider>> {
        let sorted: BTreeMap<_, _> = self.by_name.iter().collect();
        sorted.into_values().map(|entry| &entry.provider)
    }

    /// Every name, sorted.
    pub fn names(&self) -> Vec<String> {
        self.iter().map(|provider| provider.name.to_string()).collect()
    }

    /// The provider of that name.
    pub fn find(&self, name: &str) -> Result<&Arc<Provider>, ResolveError> {
        self.entry(name).map(|entry| &entry.provider)
    }

    /// Whether a request for that provider would start something: its plugin needs no terminal, and was there when it
    /// was looked at last. Reads memory only.
    pub fn runnable(&self, name: &str) -> Result<(), ResolveError> {
        let entry = self.entry(name)?;
        entry.can_run_unattended()?;
        let Provider { name, command, install_hint, .. } = &*entry.provider;
        let (provider, command) = (Arc::clone(name), command.clone());
        match entry.file.found() {
            Ok(_) | Err(FileError::Unanswered) => Ok(()),
            Err(FileError::NotFound) => {
                Err(ResolveError::PluginNotFound { provider, command, install_hint: install_hint.clone() })
            }
            Err(FileError::Unreadable(source)) => {
                Err(ResolveError::PluginUnreadable { provider, command, source })
            }
        }
    }

    pub(super) fn entry(&self, name: &str) -> Result<&Entry, ResolveError> {
        let unknown = || ResolveError::UnknownProvider { name: name.to_owned(), known: self.names() };
        self.by_name.get(name).ok_or_else(unknown)
    }
}

impl Entry {
    /// The provider as it is configured, for a caller that sent this cluster. The plugin is told nothing unless the
    /// provider wants it; else what the caller sent, which is for this request alone, or the one cluster that the
    /// kubeconfig uses this user for.
    pub(super) fn of_provider(&self, sent: Option<&Cluster>) -> Result<Lead<'_>, ResolveError> {
        let known = self.provider.clusters.as_slice();
        match (sent, known) {
            _ if !self.provider.provide_cluster_info => self.lead(Place::Nowhere),
            (Some(sent), _) if sent.server.is_empty() => Err(ResolveError::ClusterServer),
            (Some(_), _) => self.lead(Place::Sent),
            (None, [only]) => self.lead(Place::Known(only)),
            (None, several) => {
                let provider = Arc::clone(&self.provider.name);
                Err(ResolveError::NoCluster { provider, known: several.len() })
            }
        }
    }

    /// The provider for one of the clusters that it is configured with.
    pub(super) fn of_known<'a>(&'a self, known: &'a Cluster) -> Result<Lead<'a>, ResolveError> {
        if !self.provider.provide_cluster_info {
            return self.lead(Place::Nowhere);
        }
        if known.server.is_empty() {
            return Err(ResolveError::ClusterServer);
        }
        self.lead(Place::Known(known))
    }

    /// What a ClusterProfile leads to, which is this provider.
    pub(super) fn of_target(&self, target: Arc<Target>) -> Result<Lead<'_>, ResolveError> {
        self.lead(Place::Profile(target))
    }

    fn lead<'a>(&'a self, place: Place<'a>) -> Result<Lead<'a>, ResolveError> {
        self.can_run_unattended()?;
        Ok(Lead { entry: self, place })
    }

    /// There is no terminal here.
    fn can_run_unattended(&self) -> Result<(), ResolveError> {
        if self.provider.needs_terminal {
            return Err(ResolveError::NeedsTerminal { provider: Arc::clone(&self.provider.name) });
        }
        Ok(())
    }
}

impl Lead<'_> {
    /// The key of the run for a caller that sent these.
    pub(super) fn key(&self, sent: Option<&Cluster>, env: &BTreeMap<String, String>) -> PluginKey {
        let provider = self.provider();
        let reaches = |name: &str| reaches(name, &provider.caller_env, &provider.env);
        let caller_env = env.iter().filter(|(name, _)| reaches(name));
        let caller_env = caller_env.map(|(name, value)| (name.as_str(), value.as_str()));
        let digest = self.entry.digest;
        match &self.place {
            Place::Nowhere => PluginKey::of(digest, None, caller_env),
            Place::Sent => PluginKey::of(digest, sent, caller_env),
            Place::Known(cluster) => PluginKey::of(digest, Some(cluster), caller_env),
            // The endpoint is part of the digest, whether the plugin is told it or not.
            Place::Profile(target) => PluginKey::of(target.digest, None, caller_env),
        }
    }

    /// The run for a caller that sent these.
    pub(super) fn spec(
        self,
        sent: Option<Cluster>,
        mut env: BTreeMap<String, String>,
    ) -> Result<PluginSpec, ResolveError> {
        if let (Place::Sent, Some(sent)) = (&self.place, &sent) {
            check_config(sent)?;
        }
        let key = self.key(sent.as_ref(), &env);
        let provider = Arc::clone(self.provider());
        env.retain(|name, _| reaches(name, &provider.caller_env, &provider.env));
        if let Some((name, _)) = env.iter().find(|(name, value)| !is_possible(name, value)) {
            return Err(ResolveError::InvalidVariable { name: name.clone() });
        }
        let (cluster, target) = match self.place {
            Place::Nowhere => (None, None),
            Place::Sent => (sent.map(Arc::new), None),
            Place::Known(cluster) => (Some(Arc::new(cluster.clone())), None),
            Place::Profile(target) => {
                let told = provider.provide_cluster_info.then(|| Arc::clone(&target.endpoint));
                (told, Some(target))
            }
        };
        Ok(PluginSpec { key, provider, file: Arc::clone(&self.entry.file), cluster, caller_env: env, target })
    }

    /// A profile may add to what is configured.
    fn provider(&self) -> &Arc<Provider> {
        match &self.place {
            Place::Profile(target) => &target.provider,
            _ => &self.entry.provider,
        }
    }
}

/// The plugin could not read what it is told, if the extension is not JSON.
fn check_config(cluster: &Cluster) -> Result<(), ResolveError> {
    if cluster.config.is_empty() {
        return Ok(());
    }
    serde_json::from_slice::<IgnoredAny>(&cluster.config)
        .map(drop)
        .map_err(|error| ResolveError::ClusterConfig { line: error.line(), column: error.column() })
}

/// Whether the kernel can give a process this variable.
fn is_possible(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}
