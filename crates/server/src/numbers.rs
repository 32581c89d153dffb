//! The parts of keys, with numbers in place of values.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
};

use credbroker_proto::v1 as pb;

use credbroker_plugin::{KeyPart, PluginSpec};

/// The values of one response. It keeps hashes with a random key, and no value.
#[derive(Debug, Default)]
pub(super) struct ValueNumbers {
    hasher: RandomState,
    /// For each part of a provider, the number of each value.
    numbers: HashMap<u64, HashMap<u64, u32>>,
}

impl ValueNumbers {
    /// The parts of the key of `spec`.
    pub(super) fn key_parts(&mut self, spec: &PluginSpec) -> Vec<pb::KeyPart> {
        let parts = spec.key_parts();
        parts.iter().map(|part| self.part(&spec.provider.name, part)).collect()
    }

    fn part(&mut self, provider: &str, part: &KeyPart<'_>) -> pb::KeyPart {
        let KeyPart { kind, name, origin, value } = part;
        let values = self.numbers.entry(self.hasher.hash_one((provider, kind, name))).or_default();
        let next = u32::try_from(values.len() + 1).unwrap_or(u32::MAX);
        let value_number = *values.entry(self.hasher.hash_one(value)).or_insert(next);
        pb::KeyPart { kind: (*kind).into(), name: name.to_string(), origin: (*origin).into(), value_number }
    }
}

#[cfg(test)]
mod tests {
    use credbroker_plugin::{PartKind, PartOrigin};

    use super::*;

    #[test]
    fn equal_values_of_one_part_of_a_provider_have_equal_numbers() {
        let mut numbers = ValueNumbers::default();
        let mut number = |provider, kind, name: &'static str, value: &'static str| {
            let (name, value) = (name.into(), value.as_bytes().into());
            let part = KeyPart { kind, name, origin: PartOrigin::Stanza, value };
            numbers.part(provider, &part).value_number
        };
        for (expected, provider, kind, name, value) in [
            (1, "eks", PartKind::Variable, "A", "x"),
            (2, "eks", PartKind::Variable, "A", "y"),
            (1, "eks", PartKind::Variable, "A", "x"),
            (1, "eks", PartKind::Variable, "B", "y"),
            (1, "eks", PartKind::Argument, "A", "y"),
            (1, "gke", PartKind::Variable, "A", "y"),
            (3, "eks", PartKind::Variable, "A", ""),
        ] {
            assert_eq!(number(provider, kind, name, value), expected, "{provider} {kind:?} {name} {value}");
        }
    }
}
