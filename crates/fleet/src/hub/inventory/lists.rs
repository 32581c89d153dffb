//! The lists that are being read.

use std::collections::{HashMap, HashSet};

use crate::hub::bounds::{Excess, PROFILES};
use credbroker_plugin::ProfileName;

/// The names that each unfinished list has returned so far, by scope (a namespace, or all).
#[derive(Debug, Default)]
pub(super) struct Lists(HashMap<Option<String>, HashSet<ProfileName>>);

impl Lists {
    /// A list begins.
    pub(super) fn begin(&mut self, namespace: Option<&str>) {
        self.0.insert(namespace.map(str::to_owned), HashSet::new());
    }

    /// Notes a name in all lists. Returns whether there is one.
    ///
    /// # Errors
    ///
    /// A list has too many names.
    pub(super) fn note(&mut self, name: &ProfileName) -> Result<bool, Excess> {
        for listed in self.0.values_mut() {
            if listed.len() >= PROFILES && !listed.contains(name) {
                return Err(Excess::Profiles);
            }
            listed.insert(name.clone());
        }
        Ok(!self.0.is_empty())
    }

    /// A list ended. Returns the names in it; `None`: it did not begin.
    pub(super) fn end(&mut self, namespace: Option<&str>) -> Option<HashSet<ProfileName>> {
        self.0.remove(&namespace.map(str::to_owned))
    }
}
