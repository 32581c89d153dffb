use super::*;

fn part(kind: PartKind, name: &'static str, value: &'static str) -> KeyPart<'static> {
    KeyPart { kind, name: name.into(), origin: PartOrigin::Stanza, value: value.as_bytes().into() }
}

fn key() -> hmac::Key {
    Fingerprints::default().key().unwrap().clone()
}

#[test]
fn fingerprints_are_equal_for_equal_values_of_one_part_and_one_start() {
    let key = key();
    let shown = |kind, name, value| fingerprint(&part(kind, name, value), &key);
    let first = shown(PartKind::Variable, "A", "x");
    assert_eq!(first.len(), 16);
    assert_eq!(shown(PartKind::Variable, "A", "x"), first);
    for other in [
        shown(PartKind::Variable, "A", "y"),
        shown(PartKind::Variable, "B", "x"),
        shown(PartKind::Argument, "A", "x"),
        fingerprint(&part(PartKind::Variable, "A", "x"), &self::key()),
    ] {
        assert_ne!(other, first);
    }
}

#[test]
fn only_values_that_are_names_are_sent() {
    let key = key();
    let shown = |kind| key_part(&part(kind, "n", "c4n4ry"), &key).value;
    for kind in [PartKind::Argument, PartKind::Variable, PartKind::Cluster] {
        assert_eq!(shown(kind), None);
    }
    assert_eq!(shown(PartKind::Command).as_deref(), Some("c4n4ry"));
}

#[test]
fn the_key_is_made_once_and_not_shown() {
    let fingerprints = Fingerprints::default();
    let sign = |key| hmac::sign(key, b"x").as_ref().to_vec();
    assert_eq!(sign(fingerprints.key().unwrap()), sign(fingerprints.key().unwrap()));
    assert_eq!(format!("{fingerprints:?}"), "Fingerprints");
}
