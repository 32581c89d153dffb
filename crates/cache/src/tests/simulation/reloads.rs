//! A newer configuration, and a hub whose profiles appear, change and vanish.

use std::sync::Arc;

use super::{driver::World, model::Model};
use credbroker_plugin::{Provider, ProviderState, ProviderUpdate, Providers};

impl World {
    /// A newer configuration is active.
    pub(super) fn reload(&self) {
        let plugin = fastrand::usize(..self.catalog.plugins.len());
        match fastrand::u8(..4) {
            0 => self.remove(plugin),
            1 | 2 => self.redefine(plugin),
            _ if self.scene.is_large => {}
            _ => self.limit(),
        }
    }

    /// The configuration no longer has the provider.
    fn remove(&self, plugin: usize) {
        let old = self.catalog.plugins[plugin].provider();
        {
            let mut model = self.model.lock().unwrap();
            model.event(|| format!("provider {plugin} is removed"));
            model.retired(plugin, true);
        }
        self.succeed(None, &old);
    }

    /// The provider has another definition, or is there again.
    pub(super) fn redefine(&self, plugin: usize) {
        let number = fastrand::u64(..);
        let [old, new] = self.catalog.redefine(plugin, |provider| {
            (provider.args, provider.state) = (vec![number.to_string()], ProviderState::default());
        });
        {
            let mut model = self.model.lock().unwrap();
            model.event(|| format!("provider {plugin} has another definition"));
            model.retired(plugin, false);
        }
        self.succeed(Some(&new), &old);
    }

    /// Retires what `new` does not continue, as a reload does.
    fn succeed(&self, new: Option<&Arc<Provider>>, old: &Arc<Provider>) {
        let providers = |provider: Option<&Arc<Provider>>| {
            Providers::new(provider.map(|provider| Provider::clone(provider)))
        };
        ProviderUpdate::of(providers(new), &providers(Some(old))).commit();
        self.cache.forget_retired();
    }

    /// The limits of the queue and of the issuers are others.
    fn limit(&self) {
        let issuers = self.catalog.limit_issuers();
        let concurrency = issuers.iter().map(|issuer| issuer.concurrency.get()).sum();
        let slots = self.scene.slots(concurrency);
        {
            let mut model = self.model.lock().unwrap();
            model.event(|| format!("there are {slots} slots, and {issuers:?}"));
            (model.slots, model.limited) = (slots, model.now().awake);
        }
        self.scheduler.set_limits(slots, issuers);
    }

    /// The profile of a key changes or vanishes. The hub fetches the credential of a new target ahead.
    pub(super) fn profile_changes(&self, key: usize) {
        let Some(profile) = self.catalog.profile_of(key) else { return };
        let new = if fastrand::bool() { self.catalog.move_target(key) } else { None };
        {
            let mut model = self.model.lock().unwrap();
            model.event(|| format!("the profile of {key} changes: {}", new.is_some()));
            model.evicted(|_, index| index == key);
            model.keys[key].moved = model.keys[key].evictions;
        }
        self.cache.forget(&profile, new.as_ref());
        if new.is_some() && fastrand::bool() {
            self.prewarm(key);
        }
    }

    /// Each provider that was removed is there again.
    pub(super) fn restore(&self) {
        for plugin in 0..self.catalog.plugins.len() {
            let is_gone = self.model.lock().unwrap().gone[plugin];
            if is_gone {
                self.redefine(plugin);
            }
        }
    }
}

impl Model {
    fn retired(&mut self, plugin: usize, gone: bool) {
        let now = self.now();
        self.gone[plugin] = gone;
        for (index, key) in self.keys.iter().enumerate().filter(|(_, key)| key.plugin == plugin) {
            if key.running == [key.evictions] && key.detached.is_empty() {
                self.started.retire(index);
            }
        }
        self.evicted(|key, _| key.plugin == plugin);
        for key in self.keys.iter_mut().filter(|key| key.plugin == plugin) {
            (key.retired, key.active) = (Some(now.awake), key.evictions);
        }
    }
}
