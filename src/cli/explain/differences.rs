//! Which parts of keys differ. Pure.

use std::collections::{BTreeMap, BTreeSet};

use credbroker_client::admin::{CredentialExplanation, KeyPart, KeyPartKind};

/// What a part is, without its value. Arguments are in the order of their positions.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct PartName<'a> {
    pub(super) kind: KeyPartKind,
    position: Option<u32>,
    pub(super) name: &'a str,
}

impl<'a> PartName<'a> {
    pub(super) fn of(part: &'a KeyPart) -> Self {
        let KeyPart { kind, name, .. } = part;
        Self { kind: *kind, position: name.parse().ok(), name }
    }
}

/// The credentials of one provider, in the order of `explained`, which is sorted by provider.
pub(super) fn by_provider(
    explained: &[CredentialExplanation],
) -> impl Iterator<Item = &[CredentialExplanation]> {
    explained.chunk_by(|one, other| one.state.provider == other.state.provider)
}

/// The parts that not all of `explained` have, or whose values or origins differ between them.
pub(super) fn differing(explained: &[CredentialExplanation]) -> BTreeSet<PartName<'_>> {
    let mut found = BTreeMap::<_, Vec<&KeyPart>>::new();
    for part in explained.iter().flat_map(|explained| &explained.key_parts) {
        found.entry(PartName::of(part)).or_default().push(part);
    }
    let is_equal = |parts: &[&KeyPart]| {
        parts.len() == explained.len()
            && parts.windows(2).all(|pair| match pair {
                [one, other] => (one.origin, &one.fingerprint) == (other.origin, &other.fingerprint),
                _ => true,
            })
    };
    found.into_iter().filter(|(_, parts)| !is_equal(parts)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::view::tests::explained, *};

    fn shown(explained: &[CredentialExplanation]) -> Vec<String> {
        differing(explained).iter().map(|part| format!("{:?} {}", part.kind, part.name)).collect()
    }

    #[test]
    fn a_part_differs_by_its_value_by_its_origin_and_by_its_absence() {
        let base =
            [("arg", "2", "stanza", "a"), ("env", "A", "passEnv", "a"), ("env", "B", "callerEnv", "a")];
        let other = |at: usize, change: (&'static str, &'static str, &'static str, &'static str)| {
            let mut parts = base;
            parts[at] = change;
            [explained("p", &base), explained("p", &parts)]
        };
        assert_eq!(shown(&[explained("p", &base), explained("p", &base)]), [""; 0]);
        assert_eq!(shown(&other(0, ("arg", "2", "stanza", "b"))), ["Argument 2"]);
        assert_eq!(shown(&other(1, ("env", "A", "callerEnv", "a"))), ["Variable A"]);
        assert_eq!(shown(&other(2, ("env", "C", "callerEnv", "a"))), ["Variable B", "Variable C"]);
        assert_eq!(shown(&[explained("p", &base)]), [""; 0], "one differs from no other");
        let without = [explained("p", &base[..2]), explained("p", &base)];
        assert_eq!(shown(&without), ["Variable B"]);
    }

    #[test]
    fn arguments_are_in_the_order_of_their_positions() {
        let arg = |name, value| ("arg", name, "stanza", value);
        let one = explained("p", &[arg("2", "a"), arg("10", "a"), arg("1", "a")]);
        let other = explained("p", &[arg("2", "b"), arg("10", "b"), arg("1", "b")]);
        assert_eq!(shown(&[one, other]), ["Argument 1", "Argument 2", "Argument 10"]);
    }

    #[test]
    fn credentials_are_compared_with_those_of_their_provider() {
        let all = ["aws", "aws", "gke"].map(|provider| explained(provider, &[]));
        let sizes: Vec<_> = by_provider(&all).map(<[_]>::len).collect();
        assert_eq!(sizes, [2, 1]);
    }
}
