use std::collections::HashMap;

use super::*;

fn aws<'a>() -> Definition<'a> {
    Definition {
        api_version: "v1beta1",
        command: b"aws",
        args: vec![b"eks", b"get-token"],
        env: vec![(b"AWS_PROFILE", Some(b"prod"))],
        ..Definition::default()
    }
}

/// The layout is a contract between shims and brokers of different versions.
#[test]
fn the_digest_is_pinned() {
    assert_eq!(Definition::default().digest(), "520278e633dea081e6fb638ee23d2e99d54fa3c2");
    assert_eq!(aws().digest(), "85eedad2f8a04740124256a449ac73b83efdc749");
}

#[test]
fn all_that_reaches_the_plugin_is_in_the_digest() {
    let dir = Path::new("/home/ann/.kube");
    let relative = Definition { command: b"./bin/aws", ..aws() };
    let variants = [
        aws(),
        Definition { api_version: "v1", ..aws() },
        Definition { command: b"aws2", ..aws() },
        Definition { args: vec![b"eksget", b"-token"], ..aws() },
        Definition { args: vec![b"eks", b"get-token", b""], ..aws() },
        Definition { args: vec![], ..aws() },
        Definition { env: vec![], ..aws() },
        Definition { env: vec![(b"AWS_PROFILE", None)], ..aws() },
        Definition { env: vec![(b"AWS_PROFILE", Some(b""))], ..aws() },
        Definition { env: vec![(b"AWS_PROFIL", Some(b"Eprod"))], ..aws() },
        Definition { cluster_info: true, ..aws() },
        relative.clone(),
        Definition { dir: Some(dir), ..relative.clone() },
        Definition { dir: Some(Path::new("/home/bob/.kube")), ..relative },
    ];
    let mut seen = HashMap::new();
    for variant in &variants {
        assert_eq!(
            seen.insert(variant.digest(), variant).map(|other| format!("{other:?}")),
            None,
            "{variant:?}"
        );
    }
}

#[test]
fn a_name_and_an_absolute_path_are_the_same_in_any_directory() {
    for command in [b"aws".as_slice(), b"/usr/bin/aws"] {
        let plain = Definition { command, ..aws() };
        let elsewhere = Definition { dir: Some(Path::new("/tmp")), ..plain.clone() };
        assert_eq!(plain.digest(), elsewhere.digest());
    }
    let relative = Definition { command: b"bin/aws", dir: Some(Path::new("/opt")), ..aws() };
    assert_eq!(relative.digest(), Definition { command: b"/opt/bin/aws", ..aws() }.digest());
    let dotted = Definition { command: b"./bin//aws", ..relative.clone() };
    assert_eq!(relative.digest(), dotted.digest());
}

#[test]
fn the_order_of_variables_says_nothing_and_of_one_name_the_last_counts() {
    let with = |env: &[(&'static [u8], &'static [u8])]| {
        Definition { env: env.iter().map(|(name, value)| (*name, Some(*value))).collect(), ..aws() }.digest()
    };
    let expected = with(&[(b"A", b"1"), (b"B", b"2"), (b"C", b"3")]);
    for env in [
        [(b"C".as_slice(), b"3".as_slice()), (b"A", b"1"), (b"B", b"2")].as_slice(),
        &[(b"B", b"1"), (b"A", b"3"), (b"C", b"3"), (b"B", b"2"), (b"A", b"1")],
    ] {
        assert_eq!(with(env), expected);
    }
    assert_ne!(with(&[(b"A", b"1"), (b"B", b"1"), (b"B", b"2")]), expected);
    assert_ne!(with(&[(b"A", b"1"), (b"B", b"2"), (b"C", b"3"), (b"C", b"4")]), expected);
}
