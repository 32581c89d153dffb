//! All configured plugins, and one invocation of one of them.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    sync::Arc,
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{
    command::Command,
    error::ResolveError,
    file::{FileError, PluginFile},
    key::RunDigest,
    provider::Provider,
};

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
pub(crate) struct Entry {
    pub(crate) provider: Arc<Provider>,
    pub(super) digest: RunDigest,
    pub(super) file: Arc<PluginFile>,
}

impl Providers {
    /// In the configuration's order. Names are distinct, which the configuration has checked; of two the last one stays.
    pub fn new(providers: impl IntoIterator<Item = Provider>) -> Self {
        Self::with(providers, PluginFile::new)
    }

    /// The same, with files that are made by `file` of a command and a `PATH`.
    pub(super) fn with(
        providers: impl IntoIterator<Item = Provider>,
        file: impl Fn(Command, Option<&OsStr>) -> PluginFile,
    ) -> Self {
        let (mut all, mut files) = (Self::default(), HashMap::new());
        for provider in providers {
            let path = provider.inherited.get("PATH");
            let named = (provider.command.clone(), path.map(OsStr::to_owned));
            let file = Arc::clone(files.entry(named).or_insert_with(|| {
                let file = Arc::new(file(provider.command.clone(), path));
                all.files.push(Arc::clone(&file));
                file
            }));
            let (digest, provider) = (RunDigest::of(&provider), Arc::new(provider));
            all.access.retain(|earlier| earlier.name != provider.name);
            if provider.profile_sourced.is_some() {
                all.access.push(Arc::clone(&provider));
            }
            let name = Arc::clone(&provider.name);
            all.by_name.insert(name, Entry { provider, digest, file });
        }
        all
    }

    /// Looks at the plugins' files about once a second, until `draining` is cancelled. A file on a hung mount holds up
    /// its own plugin only.
    pub async fn keep_looking(&self, draining: &CancellationToken) {
        let mut turns = interval(LOOK_EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let looking = async {
            loop {
                turns.tick().await;
                for file in &self.files {
                    file.look_unless_looking(LOOK_PATIENCE).await;
                }
            }
        };
        draining.run_until_cancelled(looking).await;
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

    pub(crate) fn entry(&self, name: &str) -> Result<&Entry, ResolveError> {
        let unknown = || ResolveError::UnknownProvider { name: name.to_owned(), known: self.names() };
        self.by_name.get(name).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests;
