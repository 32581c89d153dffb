//! How much memory the known profiles take.

use std::collections::HashMap;

use serde_json::Value;

use crate::hub::bounds::{Excess, PROFILES, TOTAL};
use credbroker_plugin::ProfileName;

/// The sizes of the known profiles, in bytes.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    by_name: HashMap<ProfileName, usize>,
    total: usize,
}

impl Sizes {
    /// Records the size of `name`, unless that exceeds a limit. While a list is read, the profiles that it replaces are
    /// still counted, so the limits are doubled.
    pub(super) fn put(&mut self, name: &ProfileName, size: usize, is_listing: bool) -> Result<(), Excess> {
        let (profiles, bytes) = if is_listing { (2 * PROFILES, 2 * TOTAL) } else { (PROFILES, TOTAL) };
        let before = self.by_name.get(name).copied();
        if before.is_none() && self.by_name.len() >= profiles {
            return Err(Excess::Profiles);
        }
        let total = self.total - before.unwrap_or_default() + size;
        if total > bytes && size > before.unwrap_or_default() {
            return Err(Excess::Total);
        }
        self.total = total;
        self.by_name.insert(name.clone(), size);
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &ProfileName) {
        self.total -= self.by_name.remove(name).unwrap_or_default();
    }
}

/// The approximate size of a value in memory.
pub(super) fn size(value: &Value) -> usize {
    let content = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value)).sum(),
    };
    size_of::<Value>() + content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_has_a_limit_in_number_and_in_bytes() {
        let name = |number: usize| ProfileName::new("fleet", format!("c{number}"));
        let mut sizes = Sizes::default();
        for number in 0..PROFILES {
            sizes.put(&name(number), TOTAL / PROFILES, false).unwrap();
        }
        assert_eq!(sizes.put(&name(PROFILES), 1, false), Err(Excess::Profiles));
        assert_eq!(sizes.put(&name(0), TOTAL, false), Err(Excess::Total));
        sizes.put(&name(0), 1, false).unwrap();
        sizes.put(&name(PROFILES), 1, true).expect("a list may replace all that is known");
        sizes.remove(&name(PROFILES));
        sizes.remove(&name(1));
        sizes.put(&name(PROFILES), 1, false).unwrap();
        assert_eq!(sizes.by_name.values().sum::<usize>(), sizes.total);
    }
}
