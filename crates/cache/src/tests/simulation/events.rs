//! What happens beside the requests: evictions, refreshes, upgrades, jumps of the clocks, and issuers that change.

use std::time::Duration;

use super::{driver::World, fleet::ISSUERS, keys::KeyModel, plugins::IssuerMode};
use crate::Selector;

impl World {
    pub(super) fn evict_all(&self) {
        self.evict(&Selector::All, |_, _| true);
    }

    pub(super) fn evict_provider(&self, plugin: usize) {
        self.evict(&self.catalog.selector(plugin), |key, _| key.plugin == plugin);
    }

    /// Selects the key by its text, or by its profile.
    pub(super) fn evict_key(&self, key: usize) {
        let selector = match self.catalog.profile_of(key) {
            Some(profile) => Selector::ClusterProfile(profile),
            None => Selector::Key(self.catalog.spec(key).key.to_string().parse().unwrap()),
        };
        self.evict(&selector, |_, index| index == key);
    }

    pub(super) fn evict(&self, selector: &Selector, is_selected: impl Fn(&KeyModel, usize) -> bool) {
        let mut model = self.model.lock().unwrap();
        model.event(|| format!("evict {selector:?}"));
        model.evicted(is_selected);
        drop(model);
        self.cache.evict(selector);
    }

    pub(super) fn refresh(&self, plugin: usize) {
        let world = self.clone();
        let mut model = self.model.lock().unwrap();
        model.event(|| format!("refresh {plugin}"));
        model.refresh_asked(plugin);
        drop(model);
        self.tasks.spawn(async move {
            world.cache.refresh(&world.catalog.selector(plugin)).await;
            world.model.lock().unwrap().refreshed(plugin);
        });
    }

    pub(super) fn upgrade(&self, plugin: usize) {
        let mut model = self.model.lock().unwrap();
        model.event(|| format!("upgrade of {plugin}"));
        let now = model.now();
        model.replaced[plugin] = now.awake;
        self.catalog.plugins[plugin].file.replace();
    }

    pub(super) fn clocks_jump(&self) {
        let mut model = self.model.lock().unwrap();
        let time =
            Duration::from_secs(fastrand::choice([5, 60, 600, 4000]).unwrap() * fastrand::u64(1..10) / 5);
        let millis = i64::try_from(time.as_millis()).unwrap();
        match fastrand::u8(..4) {
            0 => model.step(millis),
            1 => model.step(-millis),
            _ => model.suspend(time),
        }
    }

    /// An API server no longer accepts the newest token of a key.
    pub(super) fn revoke(&self) {
        let mut model = self.model.lock().unwrap();
        if let Some(token) = model.keys[self.some_key()].last_token {
            model.tokens[token].revoked = true;
            model.event(|| format!("token {token} is revoked"));
        }
    }

    pub(super) fn issuer_changes(&self) {
        let mut model = self.model.lock().unwrap();
        let issuer = fastrand::usize(..ISSUERS.len());
        let mode = match fastrand::u8(..20) {
            0 => IssuerMode::Slow,
            1 | 2 => IssuerMode::Failing,
            3 => IssuerMode::Flaky,
            4 => IssuerMode::Throttling(None),
            5 => IssuerMode::Throttling(Some(fastrand::u64(1..120))),
            6 => IssuerMode::Same,
            7 => IssuerMode::Extending,
            8 => IssuerMode::Expired(fastrand::choice([10, 200, 400]).unwrap()),
            _ if model.issuers[issuer].mode == IssuerMode::Healthy => return,
            _ => IssuerMode::Healthy,
        };
        model.change(issuer, mode);
    }
}
