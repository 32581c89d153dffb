//! The provider that serves a profile.

use std::sync::Arc;

use super::profile::AccessProvider;
use crate::Provider;
use credbroker_credential::text::shown;

/// Maximum number of unknown providers that are reported: a profile can list any number.
const FOREIGN: usize = 50;

/// The outcome of a selection.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    /// The first provider of the configuration that is listed, and its entry in the profile.
    pub(super) chosen: Option<(&'a Arc<Provider>, &'a AccessProvider)>,
    /// All other providers: those of the configuration in its order, then those that only the profile lists.
    pub(super) skipped: Vec<Skipped>,
}

/// A provider that was not chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Why not.
    pub reason: String,
}

/// The first of `configured`, in the configuration's order, that is among `listed`. The order of the profile means
/// nothing: the configuration belongs to the operator of the broker, and the profile to another party.
pub(super) fn choose<'a>(configured: &'a [Arc<Provider>], listed: &'a [AccessProvider]) -> Choice<'a> {
    let mut choice = Choice { chosen: None, skipped: Vec::new() };
    for provider in configured {
        let entry = listed.iter().find(|entry| entry.name == *provider.name);
        let reason = match (entry, choice.chosen) {
            (Some(entry), None) => {
                choice.chosen = Some((provider, entry));
                continue;
            }
            (Some(_), Some((first, _))) => format!("comes after `{}` in the configuration", first.name),
            (None, _) => "not listed by the profile".to_owned(),
        };
        choice.skipped.push(Skipped { name: provider.name.to_string(), reason });
    }
    let is_ours = |entry: &&AccessProvider| configured.iter().any(|provider| *provider.name == *entry.name);
    let foreign = listed.iter().filter(|entry| !is_ours(entry)).take(FOREIGN).map(|entry| shown(&entry.name));
    let reason = || "not configured here".to_owned();
    choice.skipped.extend(foreign.map(|name| Skipped { name, reason: reason() }));
    choice
}
