//! From the providers in force to those of a newer configuration.

use std::sync::Arc;

use super::{
    provider::Provider,
    providers::{Entry, Providers},
    retirement::Retirement,
};

/// The providers of a newer configuration, and those that they retire.
#[derive(Debug)]
pub struct Succession {
    /// The new providers. Those that have not changed are the same as before, with the file that they have seen.
    pub providers: Arc<Providers>,
    retired: Vec<(Arc<Provider>, Retirement)>,
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
}

impl Succession {
    /// Compares `new` with `old`. Changes nothing.
    pub fn of(mut new: Providers, old: &Providers) -> Self {
        let mut retired: Vec<_> = Vec::new();
        for entry in new.entries_mut() {
            match old.same_identity(&entry.provider) {
                Some(earlier) if earlier.provider.is_same_definition(&entry.provider) => {
                    entry.succeed(earlier);
                }
                Some(earlier) => retired.push((Arc::clone(&earlier.provider), Retirement::Changed)),
                None => {}
            }
        }
        let gone = old.entries().filter(|entry| new.same_identity(&entry.provider).is_none());
        retired.extend(gone.map(|entry| (Arc::clone(&entry.provider), Retirement::Removed)));
        new.relink();
        Self { providers: Arc::new(new), retired }
    }

    /// Retires the providers that are gone or have another definition. A request that resolves to a retired provider is
    /// refused until the new ones are in force.
    pub fn commit(&self) {
        for (provider, why) in &self.retired {
            provider.standing.retire(*why);
        }
    }

    /// What differs from `old`, by name; each list is sorted.
    pub fn changes(&self, old: &Providers) -> ProviderChanges {
        let retired = |wanted| {
            let names = self.retired.iter().filter(move |(_, why)| *why == wanted);
            sorted(names.map(|(provider, _)| &provider.name))
        };
        let added = self.providers.entries().filter(|entry| old.same_identity(&entry.provider).is_none());
        ProviderChanges {
            added: sorted(added.map(|entry| &entry.provider.name)),
            changed: retired(Retirement::Changed),
            removed: retired(Retirement::Removed),
        }
    }
}

impl ProviderChanges {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

fn sorted<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> Vec<Arc<str>> {
    let mut names: Vec<_> = names.cloned().collect();
    names.sort_unstable();
    names
}

impl Entry {
    /// Continues `earlier`, which has the same definition: its credentials stay valid.
    fn succeed(&mut self, earlier: &Self) {
        self.file = Arc::clone(&earlier.file);
        self.provider = if earlier.provider.is_same(&self.provider) {
            Arc::clone(&earlier.provider)
        } else {
            let standing = earlier.provider.standing.clone();
            Arc::new(Provider { standing, ..(*self.provider).clone() })
        };
    }
}

#[cfg(test)]
mod tests;
