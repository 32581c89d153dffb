use super::*;

fn definition(file: &str, name: &str) -> Definition {
    Definition::new(file.into(), name)
}

/// `wrap` and the broker are two processes, and may be two releases.
#[test]
fn a_digest_is_the_same_everywhere() {
    let digest = definition("/home/jane/.kube/config", "rel").digest().to_owned();
    insta::assert_snapshot!(digest, @"d889b9c90881403f1de1141d27b3624ce4dd212a");
}

#[test]
fn each_pair_has_its_own_digest() {
    let pairs = [("/a", "b"), ("/ab", ""), ("/", "ab"), ("/a", "c"), ("/b", "b")];
    let digests: std::collections::HashSet<_> =
        pairs.iter().map(|(file, name)| definition(file, name).digest().to_owned()).collect();
    assert_eq!(digests.len(), pairs.len());
    assert!(digests.iter().all(|digest| digest.len() == 40));
}
