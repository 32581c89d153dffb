//! Writes the hub's profiles into the fleet, and updates cache and prewarming.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::api::DynamicObject;
use serde_json::Value;
use tracing::{debug, info, warn};

use super::{
    error::{Excess, PROFILES, TOTAL},
    prewarm::{HubParts, Prewarmer},
};
use crate::fleet::{KnownProfile, ProfileChange};
use credbroker_config::Prewarm;
use credbroker_plugin::{ProfileError, ProfileName, Target, cluster_profile::ClusterProfile};
use credbroker_runner::PluginRunner;

#[derive(Debug)]
pub(super) struct Inventory<R> {
    parts: Arc<HubParts<R>>,
    pub(super) prewarmer: Prewarmer<R>,
    counts: Mutex<Counts>,
}

impl<R: PluginRunner> Inventory<R> {
    pub(super) fn new(prewarm: Vec<Prewarm>, parts: Arc<HubParts<R>>) -> Self {
        Self { prewarmer: Prewarmer::new(prewarm, Arc::clone(&parts)), parts, counts: Mutex::default() }
    }

    /// Writes a new or changed object, unless that exceeds a limit, and returns its name. `is_listed`: what is known from
    /// before stays until the list ends, also if it fails in the middle, so the limits are doubled.
    pub(super) fn apply(
        &self,
        object: &DynamicObject,
        is_listed: bool,
    ) -> Result<Option<ProfileName>, Excess> {
        let Some(name) = name(object) else { return Ok(None) };
        self.counts().put(&name, size(&object.data), if is_listed { 2 } else { 1 })?;
        let part = |key| object.data.get(key).unwrap_or(&Value::Null);
        let profile = ClusterProfile::read(name.clone(), part("spec"), part("status"));
        let before = self.parts.fleet.get(&name);
        let change = self.parts.fleet.apply(profile);
        self.follow_up(&name, before.as_deref(), change);
        Ok(Some(name))
    }

    /// Resolves every profile again, because the providers have changed.
    pub(super) fn resolve_again(&self) {
        for known in self.parts.fleet.list(None) {
            let change = self.parts.fleet.resolve_again(&known);
            self.follow_up(&known.profile.name, Some(&known), change);
        }
    }

    fn follow_up(&self, name: &ProfileName, before: Option<&KnownProfile>, change: ProfileChange) {
        let Some(known) = self.parts.fleet.get(name).filter(|_| change != ProfileChange::None) else {
            return;
        };
        log(&known, before);
        let (before, target) = (before.and_then(KnownProfile::target), known.target());
        if change == ProfileChange::Moved {
            self.parts.cache.forget(name, target);
        }
        let leads_elsewhere = |target: &&Arc<Target>| before.is_none_or(|before| !before.is_same(target));
        if let Some(target) = target.filter(leads_elsewhere) {
            self.prewarmer.offer(target);
        }
    }

    pub(super) fn delete(&self, object: &DynamicObject) {
        if let Some(name) = name(object) {
            // A list that already returned its name needs no change: at its end only known profiles are removed.
            self.remove(&name);
        }
    }

    /// A list ended: profiles that are not `listed` are removed.
    pub(super) fn end(&self, namespace: Option<&str>, listed: &HashSet<ProfileName>) {
        for known in self.parts.fleet.list(namespace) {
            if !listed.contains(&known.profile.name) {
                self.remove(&known.profile.name);
            }
        }
    }

    /// Continues with what an earlier reader of the same hub has read: offers the profiles in `namespaces`, and removes the
    /// others. Empty: all namespaces are read.
    pub(super) fn take_over(&self, namespaces: &[String]) {
        for known in self.parts.fleet.list(None) {
            let name = &known.profile.name;
            let is_in = |namespace: &String| **namespace == *name.namespace;
            if !namespaces.is_empty() && !namespaces.iter().any(is_in) {
                self.remove(name);
            } else if let Some(target) = known.target() {
                self.prewarmer.offer(target);
            }
        }
    }

    /// Removes every profile: they are those of another hub.
    pub(super) fn clear(&self) {
        let known = self.parts.fleet.list(None);
        info!(profiles = known.len(), "the hub is no longer configured: its ClusterProfiles are removed");
        for known in known {
            self.forget(&known.profile.name);
        }
        self.parts.fleet.set_hub(false, None);
    }

    fn remove(&self, name: &ProfileName) {
        if self.forget(name) {
            info!(profile = %name, "ClusterProfile deleted: its credentials are removed and its watches end");
        }
    }

    fn forget(&self, name: &ProfileName) -> bool {
        let was_known = self.parts.fleet.remove(name);
        self.counts().remove(name);
        self.parts.cache.forget(name, None);
        was_known
    }

    /// Every update is complete when the lock is released, so a poisoned lock is usable.
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(object: &DynamicObject) -> Option<ProfileName> {
    let metadata = &object.metadata;
    ProfileName::of_object(metadata.namespace.as_deref()?, metadata.name.as_deref()?)
}

#[derive(Debug, Default)]
struct Counts {
    /// The sizes of the known profiles in memory, in bytes.
    sizes: HashMap<ProfileName, usize>,
    total: usize,
}

impl Counts {
    /// Notes the size of a profile, unless that exceeds a limit, times `scale`.
    fn put(&mut self, name: &ProfileName, size: usize, scale: usize) -> Result<(), Excess> {
        let before = self.sizes.get(name).copied();
        if before.is_none() && self.sizes.len() >= scale * PROFILES {
            return Err(Excess::Profiles);
        }
        let total = self.total - before.unwrap_or_default() + size;
        if total > scale * TOTAL && size > before.unwrap_or_default() {
            return Err(Excess::Total);
        }
        self.total = total;
        self.sizes.insert(name.clone(), size);
        Ok(())
    }

    fn remove(&mut self, name: &ProfileName) {
        self.total -= self.sizes.remove(name).unwrap_or_default();
    }
}

/// The approximate size of a value in memory.
fn size(value: &Value) -> usize {
    let content = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value)).sum(),
    };
    size_of::<Value>() + content
}

/// Logs warnings and errors that `before` did not have. A status may be written often.
fn log(known: &KnownProfile, before: Option<&KnownProfile>) {
    let profile = &known.profile.name;
    let is_logged = |warning: &&String| before.is_some_and(|before| before.warnings.contains(warning));
    for warning in known.warnings.iter().filter(|warning| !is_logged(warning)) {
        warn!(%profile, "{warning}");
    }
    let logged = before.and_then(|before| before.outcome.as_ref().err());
    match &known.outcome {
        Ok(_) => {}
        Err(error) if Some(error) == logged => {}
        // Normal for a new object: its status is written later.
        Err(ProfileError::NoMatch(listed, _)) if listed.is_empty() => {
            debug!(%profile, "ClusterProfile does not list an access provider yet");
        }
        Err(error) => warn!(%profile, "ClusterProfile cannot be used: {error}"),
    }
}

#[cfg(test)]
mod tests;
