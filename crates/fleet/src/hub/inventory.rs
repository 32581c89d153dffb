//! Writes the hub's profiles into the fleet, and updates cache and prewarming.

mod lists;
mod log;
mod sizes;

use std::sync::{Arc, Mutex, PoisonError};

use kube::api::DynamicObject;
use serde_json::Value;
use tracing::info;

use self::{
    lists::Lists,
    log::log,
    sizes::{Sizes, size},
};
use super::{Prewarmer, bounds::Excess};
use crate::{Fleet, HubState, KnownProfile, ProfileChange};
use credbroker_cache::CredentialCache;
use credbroker_plugin::{ProfileName, Target, cluster_profile::ClusterProfile};
use credbroker_runner::PluginRunner;

/// Writes the fleet.
#[derive(Debug)]
pub(super) struct Inventory<R> {
    fleet: Arc<Fleet>,
    cache: CredentialCache<R>,
    prewarmer: Prewarmer<R>,
    lists: Mutex<Lists>,
    sizes: Mutex<Sizes>,
}

impl<R: PluginRunner> Inventory<R> {
    pub(super) fn new(fleet: Arc<Fleet>, cache: CredentialCache<R>, prewarmer: Prewarmer<R>) -> Self {
        Self { fleet, cache, prewarmer, lists: Mutex::default(), sizes: Mutex::default() }
    }

    pub(super) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub(super) fn prewarmer(&self) -> &Prewarmer<R> {
        &self.prewarmer
    }

    /// A list begins. The known profiles stay until it ends, also if it fails in the middle.
    pub(super) fn begin(&self, namespace: Option<&str>) {
        self.lists().begin(namespace);
    }

    /// Writes a new or changed object.
    ///
    /// # Errors
    ///
    /// A limit is exceeded; nothing was written.
    pub(super) fn apply(&self, object: &DynamicObject) -> Result<(), Excess> {
        let Some(profile) = read(object) else { return Ok(()) };
        let name = profile.name.clone();
        let is_listing = self.lists().note(&name)?;
        self.sizes().put(&name, size(&object.data), is_listing)?;
        let before = self.fleet.get(&name);
        let change = self.fleet.apply(profile);
        self.follow_up(&name, before.as_deref(), change);
        Ok(())
    }

    /// Resolves every profile again, because the providers have changed.
    pub(super) fn resolve_again(&self) {
        for known in self.fleet.list(None) {
            let change = self.fleet.resolve_again(&known);
            self.follow_up(&known.profile.name, Some(&known), change);
        }
    }

    fn follow_up(&self, name: &ProfileName, before: Option<&KnownProfile>, change: ProfileChange) {
        let Some(known) = self.fleet.get(name).filter(|_| change != ProfileChange::None) else { return };
        log(&known, before);
        let before = before.and_then(|before| before.outcome.as_ref().ok());
        let target = known.outcome.as_ref().ok();
        if change == ProfileChange::Moved {
            self.cache.forget(name, target);
        }
        let leads_elsewhere = |target: &&Arc<Target>| before.is_none_or(|before| !before.is_same(target));
        if let Some(target) = target.filter(leads_elsewhere) {
            self.prewarmer.offer(target);
        }
    }

    /// The object was deleted.
    pub(super) fn delete(&self, object: &DynamicObject) {
        if let Some(name) = name(object) {
            // A list that already returned its name needs no change: at its end only known profiles are removed.
            self.remove(&name);
        }
    }

    /// A list ended: profiles that it did not return are removed.
    pub(super) fn end(&self, namespace: Option<&str>) {
        let Some(listed) = self.lists().end(namespace) else { return };
        for known in self.fleet.list(namespace) {
            if !listed.contains(&known.profile.name) {
                self.remove(&known.profile.name);
            }
        }
    }

    /// Offers the profiles that an earlier reader of the same hub has read.
    pub(super) fn offer_known(&self) {
        for known in self.fleet.list(None) {
            if let Ok(target) = &known.outcome {
                self.prewarmer.offer(target);
            }
        }
    }

    /// Removes the profiles outside of `namespaces`; empty: all namespaces are read.
    pub(super) fn keep_only(&self, namespaces: &[String]) {
        if namespaces.is_empty() {
            return;
        }
        for known in self.fleet.list(None) {
            let name = &known.profile.name;
            if !namespaces.iter().any(|namespace| **namespace == *name.namespace) {
                self.remove(name);
            }
        }
    }

    /// Removes every profile: they are those of another hub.
    pub(super) fn clear(&self) {
        let known = self.fleet.list(None);
        info!(profiles = known.len(), "the hub is no longer configured: its ClusterProfiles are removed");
        for known in known {
            let name = &known.profile.name;
            self.fleet.remove(name);
            self.sizes().remove(name);
            self.cache.forget(name, None);
        }
        self.fleet.set_hub(HubState::default());
    }

    fn remove(&self, name: &ProfileName) {
        if self.fleet.remove(name) {
            info!(profile = %name, "ClusterProfile deleted: its credentials are removed and its watches end");
        }
        self.sizes().remove(name);
        self.cache.forget(name, None);
    }

    /// Every update is complete when the lock is released, so a poisoned lock is usable.
    fn sizes(&self) -> std::sync::MutexGuard<'_, Sizes> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every update is complete when the lock is released, so a poisoned lock is usable.
    fn lists(&self) -> std::sync::MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(object: &DynamicObject) -> Option<ClusterProfile> {
    let part = |key| object.data.get(key).unwrap_or(&Value::Null);
    Some(ClusterProfile::read(name(object)?, part("spec"), part("status")))
}

fn name(object: &DynamicObject) -> Option<ProfileName> {
    let metadata = &object.metadata;
    ProfileName::of_object(metadata.namespace.as_deref()?, metadata.name.as_deref()?)
}

#[cfg(test)]
mod tests;
