//! The selected entries, in order and page by page.

use std::{ops::Bound, sync::Arc};

use super::{
    super::{Selector, entry::KeyEntry},
    KeyEntries, ListPosition, position,
};
use credbroker_plugin::{PluginKey, ProfileName};

impl KeyEntries {
    /// At most `count` of the selected entries that follow `after`, in the order of [`ListPosition`].
    pub(crate) fn select(
        &self,
        selector: &Selector,
        after: Option<&ListPosition>,
        count: usize,
    ) -> Vec<Arc<KeyEntry>> {
        match selector {
            Selector::All => self.after(None, after, count),
            Selector::Provider(name) => self.after(Some(name), after, count),
            Selector::Definition { provider, definition } => {
                let mut entries = self.after(Some(provider), after, usize::MAX);
                entries.retain(|entry| {
                    let found = entry.spec.provider.definition.as_ref();
                    found.is_some_and(|found| found.digest() == &**definition)
                });
                entries.truncate(count);
                entries
            }
            Selector::ClusterProfile(name) => {
                page(self.of_profile(name).iter().map(|entry| (position(&entry.spec), entry)), after, count)
            }
            Selector::Keys(keys) => {
                let found = keys.iter().filter_map(|key| self.by_key.get(key));
                page(found.map(|entry| (position(&entry.spec), entry)), after, count)
            }
            Selector::Key(prefix) => {
                let matching = self.by_key.iter().filter(|(key, _)| prefix.matches(key));
                page(matching.map(|(_, entry)| (position(&entry.spec), entry)), after, count)
            }
        }
    }

    /// At most `count` entries that follow `after`, of one provider or of all.
    pub(crate) fn after(
        &self,
        provider: Option<&str>,
        after: Option<&ListPosition>,
        count: usize,
    ) -> Vec<Arc<KeyEntry>> {
        let first = |name: &str| (Arc::from(name), PluginKey([0; 32]));
        let start = match (after, provider) {
            (Some(after), Some(provider)) if *after.0 < *provider => Bound::Included(first(provider)),
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(provider)) => Bound::Included(first(provider)),
            (None, None) => Bound::Unbounded,
        };
        let entries = self.in_order.range((start, Bound::Unbounded));
        let wanted = entries.take_while(|((name, _), _)| provider.is_none_or(|provider| **name == *provider));
        wanted.take(count).map(|(_, entry)| Arc::clone(entry)).collect()
    }

    /// The entries of one profile.
    pub(crate) fn of_profile(&self, profile: &ProfileName) -> &[Arc<KeyEntry>] {
        self.by_profile.get(profile).map_or(&[], Vec::as_slice)
    }

    /// The entries of each profile.
    pub(crate) fn profiles(&self) -> impl Iterator<Item = &Vec<Arc<KeyEntry>>> {
        self.by_profile.values()
    }
}

/// At most `count` of a few `entries` that follow `after`, in order.
fn page<'a>(
    entries: impl Iterator<Item = (ListPosition, &'a Arc<KeyEntry>)>,
    after: Option<&ListPosition>,
    count: usize,
) -> Vec<Arc<KeyEntry>> {
    let mut page: Vec<_> =
        entries.filter(|(position, _)| after.is_none_or(|after| position > after)).collect();
    page.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    page.into_iter().take(count).map(|(_, entry)| Arc::clone(entry)).collect()
}
