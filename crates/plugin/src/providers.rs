//! All configured plugins, and the look-up of one by name.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::OsStr,
    path::PathBuf,
    sync::Arc,
};

use super::{
    context::{Context, ContextId},
    definition::ProviderRef,
    error::{ProviderProblem, ResolveError},
    file::{FileError, FileQuery, PluginFile, PluginPolicy},
    key::PluginKey,
    provider::{Provider, Retirement},
};

/// All configured plugins by name. No request changes them.
#[derive(Debug, Default)]
pub struct Providers {
    /// Providers by name; those of one name are sorted by file.
    by_name: HashMap<Arc<str>, Vec<Entry>>,
    /// Providers that may serve ClusterProfiles, in the configuration's order.
    pub access: Vec<Arc<Provider>>,
    /// Each plugin's file once: providers with the same plugin share it.
    pub files: Vec<Arc<PluginFile>>,
    /// The contexts of the kubeconfigs, sorted by name and digest.
    contexts: BTreeMap<ContextId, Arc<Context>>,
    /// Users of contexts whose credential is in their kubeconfig, by that file and their name. No request names them.
    stored: BTreeMap<(PathBuf, Arc<str>), Entry>,
}

/// One provider, with the values that all of its runs share.
#[derive(Debug)]
pub struct Entry {
    /// The provider.
    pub provider: Arc<Provider>,
    /// The key of its runs to which no caller adds.
    pub(super) key: PluginKey,
    pub(super) file: Arc<PluginFile>,
    position: usize,
}

impl Entry {
    /// Whether a run could start: the last look-up found its plugin. Reads memory only.
    pub fn runnable(&self) -> Result<(), ResolveError> {
        if self.provider.stored.is_some() {
            return Ok(());
        }
        let command = self.provider.command.clone();
        let problem = match self.file.found() {
            Err(FileError::Unanswered) => return Ok(()),
            Err(FileError::Unreadable(source)) => ProviderProblem::PluginUnreadable(command, source),
            found => match (self.provider.refusal(found.as_ref().ok()), found) {
                (Some(refusal), _) => ProviderProblem::PluginNotAllowed(command, refusal),
                (None, Ok(_)) => return Ok(()),
                (None, Err(_)) => ProviderProblem::PluginNotFound(command, self.provider.not_installed()),
            },
        };
        Err(self.provider.error(problem))
    }

    fn digest(&self) -> Option<&str> {
        self.provider.definition.as_ref().map(|known| &*known.digest)
    }
}

impl Providers {
    /// Takes providers in the configuration's order. Of two with one name and definition, the last is kept.
    pub fn new(providers: impl IntoIterator<Item = Provider>) -> Self {
        let (mut all, mut files) = (Self::default(), HashMap::new());
        for (position, provider) in providers.into_iter().enumerate() {
            let file = files.entry(query(&provider));
            let file = Arc::clone(file.or_insert_with_key(|query| Arc::new(PluginFile::of(query.clone()))));
            let entry = Entry::new(provider, file, position);
            let provider = &entry.provider;
            let of_name = all.by_name.entry(Arc::clone(&provider.name)).or_default();
            of_name.retain(|other| !other.provider.has_identity_of(provider));
            let at = of_name.partition_point(|other| other.provider.definition < provider.definition);
            of_name.insert(at, entry);
        }
        all.link();
        all
    }

    /// These providers, and contexts. `stored` are the users of contexts who run no plugin.
    #[must_use]
    pub fn with_contexts(
        mut self,
        contexts: impl IntoIterator<Item = Context>,
        stored: impl IntoIterator<Item = Provider>,
    ) -> Self {
        self.contexts = contexts.into_iter().map(|context| (context.id.clone(), Arc::new(context))).collect();
        let stored = stored.into_iter().filter_map(|provider| {
            let identity = provider.definition.as_ref()?.identity.clone();
            let file = Arc::new(PluginFile::of(query(&provider)));
            Some((identity, Entry::new(provider, file, 0)))
        });
        self.stored = stored.collect();
        self
    }

    /// The contexts, sorted by name and digest.
    pub fn contexts(&self) -> impl Iterator<Item = &Arc<Context>> {
        self.contexts.values()
    }

    /// The context of this name and digest.
    pub fn context(&self, id: &ContextId) -> Result<&Arc<Context>, ResolveError> {
        self.contexts.get(id).ok_or_else(|| ResolveError::UnknownContext(id.name.to_string()))
    }

    /// The provider of the user of a context.
    ///
    /// # Errors
    ///
    /// The context cannot be used.
    pub fn entry_of(&self, context: &Context) -> Result<&Entry, ResolveError> {
        let user = &context.target()?.user;
        let is_it = |entry: &&Entry| entry.identity() == Some(user);
        let entry = self.by_name.get(&user.1).and_then(|entries| entries.iter().find(is_it));
        // The configuration makes no other contexts.
        let unknown = || ResolveError::UnknownContext(context.id.name.to_string());
        entry.or_else(|| self.stored.get(user)).ok_or_else(unknown)
    }

    /// Every provider, sorted by name and then by the file that defines it.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Provider>> {
        let sorted: BTreeMap<_, _> = self.by_name.iter().collect();
        sorted.into_values().flatten().map(|entry| &entry.provider)
    }

    /// Every name once, sorted.
    pub fn names(&self) -> Vec<String> {
        let sorted: BTreeSet<_> = self.by_name.keys().collect();
        sorted.into_iter().map(ToString::to_string).collect()
    }

    /// A provider of that name; if it has several definitions, the first.
    pub fn find(&self, name: &str) -> Result<&Arc<Provider>, ResolveError> {
        let first = self.by_name.get(name).and_then(|entries| entries.first());
        first.map(|entry| &entry.provider).ok_or_else(|| self.unknown(name))
    }

    /// As [`Entry::runnable`], for a provider of [`iter`](Self::iter).
    pub fn is_runnable(&self, provider: &Provider) -> Result<(), ResolveError> {
        self.same_identity(provider).map_or(Ok(()), Entry::runnable)
    }

    /// The provider that a request names: the only one of its name, or the one with the requested definition.
    pub fn entry(&self, provider: &ProviderRef) -> Result<&Entry, ResolveError> {
        let ProviderRef { name, definition } = provider;
        let entries = self.by_name.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let is_named =
            |entry: &&Entry| definition.as_deref().is_none_or(|wanted| entry.digest() == Some(wanted));
        let is_outdated =
            |entry: &Entry| entry.provider.definition.as_ref().is_some_and(|known| known.is_outdated);
        let known = || entries.iter().filter_map(|entry| entry.provider.definition.clone()).collect();
        let mut named = entries.iter().filter(is_named);
        match (named.next(), named.next()) {
            (None, _) if definition.is_none() => Err(self.unknown(name)),
            (_, Some(_)) if definition.is_none() => {
                Err(ResolveError::AmbiguousProvider(name.clone(), known()))
            }
            (Some(first), _) if !entries.iter().filter(is_named).any(is_outdated) => Ok(first),
            (first, _) => {
                let digest = || first.and_then(Entry::digest).unwrap_or_default().to_owned();
                let definition = definition.clone().unwrap_or_else(digest);
                Err(ResolveError::UnknownDefinition(name.clone(), definition, known()))
            }
        }
    }

    /// The provider of that name in the broker's own configuration.
    pub fn configured(&self, name: &str) -> Result<&Entry, ResolveError> {
        let mut entries = self.by_name.get(name).into_iter().flatten();
        entries.find(|entry| entry.provider.definition.is_none()).ok_or_else(|| self.unknown(name))
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.by_name.values().flatten()
    }

    fn same_identity(&self, provider: &Provider) -> Option<&Entry> {
        if provider.stored.is_some() {
            return self.stored.get(&provider.definition.as_ref()?.identity);
        }
        let mut entries = self.by_name.get(&provider.name).into_iter().flatten();
        entries.find(|entry| entry.provider.has_identity_of(provider))
    }

    /// Takes the access providers and the files from the entries.
    fn link(&mut self) {
        let mut entries: Vec<_> = self.entries().collect();
        entries.sort_unstable_by_key(|entry| entry.position);
        let providers = entries.iter().map(|entry| &entry.provider);
        let access = providers.filter(|provider| provider.profile_sourced.is_some()).cloned().collect();
        let mut files: Vec<_> = entries.iter().map(|entry| Arc::clone(&entry.file)).collect();
        files.sort_by_key(Arc::as_ptr);
        files.dedup_by(|one, other| Arc::ptr_eq(one, other));
        (self.access, self.files) = (access, files);
    }

    fn unknown(&self, name: &str) -> ResolveError {
        ResolveError::UnknownProvider(name.to_owned(), self.names())
    }
}

/// The providers of a newer configuration, and those that they retire.
#[derive(Debug)]
pub struct ProviderUpdate {
    /// The new providers. Those that have not changed are the same as before, with the file that they have seen.
    pub providers: Arc<Providers>,
    /// What differs, by name; each list is sorted.
    pub changes: ProviderChanges,
    retired: Vec<(Arc<Provider>, Retirement)>,
    ended: Vec<Arc<Context>>,
}

/// Providers of a newer configuration that differ from those before.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct ProviderChanges {
    /// Providers that were not there before.
    pub added: Vec<Arc<str>>,
    /// Providers with another definition.
    pub changed: Vec<Arc<str>>,
    /// Providers that are gone.
    pub removed: Vec<Arc<str>>,
    /// Whether a context was added, removed or changed, or its credential in the kubeconfig.
    pub has_other_contexts: bool,
}

impl ProviderUpdate {
    /// Compares `new` with `old`. Changes nothing.
    pub fn of(mut new: Providers, old: &Providers) -> Self {
        let (mut changes, mut retired) = (ProviderChanges::default(), Vec::new());
        for entry in new.by_name.values_mut().flatten() {
            match old.same_identity(&entry.provider) {
                None => changes.added.push(Arc::clone(&entry.provider.name)),
                Some(earlier) if earlier.provider.is_same_definition(&entry.provider) => {
                    entry.succeed(earlier);
                }
                Some(Entry { provider, .. }) => {
                    changes.changed.push(Arc::clone(&provider.name));
                    retired.push((Arc::clone(provider), Retirement::Changed));
                }
            }
        }
        let of_plugins = retired.len();
        for (identity, entry) in &mut new.stored {
            match old.stored.get(identity) {
                Some(earlier) if earlier.provider.is_same_definition(&entry.provider) => {
                    entry.succeed(earlier);
                }
                Some(earlier) => retired.push((Arc::clone(&earlier.provider), Retirement::Changed)),
                None => {}
            }
        }
        for (identity, Entry { provider, .. }) in &old.stored {
            if !new.stored.contains_key(identity) {
                retired.push((Arc::clone(provider), Retirement::Removed));
            }
        }
        let ended = new.continue_contexts(old);
        changes.has_other_contexts =
            retired.len() > of_plugins || !ended.is_empty() || new.contexts.len() != old.contexts.len();
        for Entry { provider, .. } in old.entries().filter(|old| new.same_identity(&old.provider).is_none()) {
            changes.removed.push(Arc::clone(&provider.name));
            retired.push((Arc::clone(provider), Retirement::Removed));
        }
        for names in [&mut changes.added, &mut changes.changed, &mut changes.removed] {
            names.sort_unstable();
        }
        new.link();
        Self { providers: Arc::new(new), changes, retired, ended }
    }

    /// Retires the old providers. A request that resolves to one is refused until the new ones are active.
    pub fn commit(&self) {
        for (provider, why) in &self.retired {
            provider.state.retire(*why);
        }
        // Afterwards, so that a watch says that its provider has changed if it has.
        self.ended.iter().for_each(|context| context.end());
    }
}

impl Providers {
    /// Keeps those contexts of `old` that have not changed, and returns the others.
    fn continue_contexts(&mut self, old: &Self) -> Vec<Arc<Context>> {
        let mut ended = Vec::new();
        for (id, earlier) in &old.contexts {
            match self.contexts.get_mut(id).filter(|newer| earlier.is_same(newer)) {
                Some(newer) => *newer = Arc::clone(earlier),
                None => ended.push(Arc::clone(earlier)),
            }
        }
        ended
    }
}

impl ProviderChanges {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
            && self.changed.is_empty()
            && self.removed.is_empty()
            && !self.has_other_contexts
    }
}

fn query(provider: &Provider) -> FileQuery {
    FileQuery {
        command: provider.command.clone(),
        path: provider.inherited.get("PATH").map(OsStr::to_owned).unwrap_or_default(),
        sha256: provider.sha256,
        is_listed: matches!(*provider.policy, PluginPolicy::Allowlist(_)),
    }
}

impl Entry {
    fn new(provider: Provider, file: Arc<PluginFile>, position: usize) -> Self {
        Self { key: PluginKey::of_provider(&provider), provider: Arc::new(provider), file, position }
    }

    fn identity(&self) -> Option<&(PathBuf, Arc<str>)> {
        self.provider.definition.as_ref().map(|known| &known.identity)
    }

    /// Continues `earlier`, which has the same definition: its credentials stay valid.
    fn succeed(&mut self, earlier: &Self) {
        self.file = Arc::clone(&earlier.file);
        let state = earlier.provider.state.clone();
        let provider = Provider { state, ..(*self.provider).clone() };
        let is_same = provider == *earlier.provider;
        self.provider = if is_same { Arc::clone(&earlier.provider) } else { Arc::new(provider) };
    }
}

#[cfg(test)]
mod tests;
