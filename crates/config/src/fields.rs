//! The values of a map by their keys.

use super::{
    keys::{ConfigKey, Declared, Required},
    problem::Report,
    reader::Cursor,
};

/// The values of a map whose keys were checked.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    map: Cursor<'a>,
}

impl<'a> Fields<'a> {
    /// Of a map whose keys were checked.
    pub(super) fn of(map: Cursor<'a>) -> Self {
        Self { map }
    }

    /// The value of `key`; null is the same as no value.
    pub(super) fn at(&self, key: &impl Declared) -> Option<Cursor<'a>> {
        self.get(key.name())
    }

    /// The value of a required key; without one that is a problem.
    pub(super) fn required<K>(
        &self,
        key: &ConfigKey<K, Required>,
        report: &mut Report,
    ) -> Option<Cursor<'a>> {
        let value = self.get(key.name);
        if value.is_none() {
            self.missing(key, report);
        }
        value
    }

    /// Reports that a required key has no value.
    pub(super) fn missing<K>(&self, key: &ConfigKey<K, Required>, report: &mut Report) {
        let ConfigKey { name, absent: Required(hint), .. } = key;
        let hint = if hint.is_empty() { String::new() } else { format!(": {hint}") };
        self.map.problem(report, format!("{name} must be specified{hint}"));
    }

    /// The value of `key`; null is the same as no value.
    pub(super) fn get(&self, key: &str) -> Option<Cursor<'a>> {
        let map = &self.map;
        let entries = map.node().as_mapping().unwrap_or_default();
        // Of keys that differ in case only the last one counts, as in Go.
        let (_, node) = entries.iter().rfind(|(name, _)| map.is(&name.name, key))?;
        (!node.is_null()).then(|| map.value(key, node))
    }

    pub(super) fn text(&self, key: &str, report: &mut Report) -> Option<&'a str> {
        self.get(key)?.text(report)
    }
}
