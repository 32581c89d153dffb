use super::*;

fn parsed(line: &str, variable: Option<&str>) -> Result<Command, UsageError> {
    parse(line.split_whitespace().map(OsString::from), variable.map(OsStr::new))
}

fn arguments(source: Source) -> Arguments {
    Arguments {
        source,
        server: None,
        socket: None,
        broker_uid: None,
        timeout: None,
        api_version: None,
        original: None,
        fallback: true,
    }
}

fn provider(name: &str) -> Arguments {
    arguments(Source::Provider { name: name.to_owned(), definition: None })
}

#[test]
fn every_flag_takes_its_value_behind_a_space_or_an_equals_sign() {
    let full = Arguments {
        socket: Some("/s=1".into()),
        timeout: Some(Duration::from_millis(1500)),
        api_version: Some(ApiVersion::V1Beta1),
        ..provider("gke")
    };
    for line in [
        "--provider gke --socket /s=1 --timeout 1.5s --api-version v1beta1",
        "--provider=gke --socket=/s=1 --timeout=1.5s --api-version=v1beta1",
    ] {
        assert_eq!(parsed(line, None), Ok(Command::Ask(full.clone().into())), "{line}");
    }
}

#[test]
fn the_source_is_a_provider_or_a_cluster_profile_and_a_flag_wins_over_the_variable() {
    let profile = ClusterProfileRef { namespace: "fleet".into(), name: "eu-1".into() };
    let profile = arguments(Source::ClusterProfile(profile));
    for (line, variable, expected) in [
        ("--provider a", None, Ok(provider("a"))),
        ("--provider a", Some("b"), Ok(provider("a"))),
        ("", Some("b"), Ok(provider("b"))),
        ("--cluster-profile fleet/eu-1", Some("b"), Ok(profile)),
        ("", None, Err(UsageError::NoSource)),
        ("", Some(""), Err(UsageError::NoSource)),
        ("--provider a --cluster-profile b/c", None, Err(UsageError::TwoSources)),
    ] {
        assert_eq!(
            parsed(line, variable),
            expected.map(|given| Command::Ask(given.into())),
            "{line} {variable:?}"
        );
    }
}

#[test]
fn a_definition_goes_with_the_name_that_it_is_written_beside() {
    let Ok(Command::Ask(given)) = parsed("--provider rel --definition 12ab", Some("other")) else { panic!() };
    let expected = Source::Provider { name: "rel".into(), definition: Some("12ab".into()) };
    assert_eq!(given.source, expected);
    for line in ["--definition 12ab", "--definition 12ab --cluster-profile a/b"] {
        assert_eq!(parsed(line, Some("rel")), Err(UsageError::DefinitionAlone), "{line}");
    }
    for digest in ["--definition=", "--definition=a/b", "--definition=\u{1b}"] {
        let refused = parsed(&format!("--provider rel {digest}"), None);
        assert!(matches!(refused, Err(UsageError::Value { .. })), "{digest}");
    }
}

#[test]
fn a_server_is_a_url_and_goes_with_a_cluster_profile() {
    let Ok(Command::Ask(given)) = parsed("--cluster-profile a/b --server https://c:6443", None) else {
        panic!()
    };
    assert_eq!(given.server.as_deref(), Some("https://c:6443"));
    assert_eq!(parsed("--provider a --server https://c", None), Err(UsageError::ServerAlone));
    assert_eq!(parsed("--server https://c", Some("a")), Err(UsageError::ServerAlone));
    assert!(matches!(parsed("--cluster-profile a/b --server c", None), Err(UsageError::Value { .. })));
}

#[test]
fn a_handle_goes_with_nothing_that_is_for_credentials() {
    let expected = HandleArguments {
        target: "/clusters/fleet/prod".to_owned(),
        socket: Some("/s".into()),
        timeout: None,
        api_version: Some(ApiVersion::V1Beta1),
    };
    let line = "--proxy /clusters/fleet/prod --socket=/s --api-version v1beta1";
    assert_eq!(parsed(line, Some("other")), Ok(Command::Handle(expected)));
    for more in
        ["--provider a", "--cluster-profile a/b", "--broker-uid 0", "--fallback never", "--dir /x", "-- aws"]
    {
        assert_eq!(parsed(&format!("--proxy /contexts/x {more}"), None), Err(UsageError::Handle), "{more}");
    }
    for target in ["", "clusters/a/b", "/clusters/a b", "/a?b", "/a\r\nx", "/%2e", "https://x/"] {
        let refused = parse(["--proxy".into(), target.into()].into_iter(), None);
        assert!(matches!(refused, Err(UsageError::Value { .. })), "{target:?}");
    }
}

#[test]
fn help_and_version_win_over_what_is_missing() {
    assert_eq!(parsed("--help", None), Ok(Command::Help));
    assert_eq!(parsed("--provider a -h", None), Ok(Command::Help));
    assert_eq!(parsed("--version", None), Ok(Command::Version));
}

#[test]
fn a_wrong_line_is_refused_with_the_words_that_are_wrong() {
    for (line, needle) in [
        ("gke", r#""gke" is not an argument"#),
        ("--provider a extra", r#""extra" is not an argument"#),
        ("--providr a", r#""--providr" is not"#),
        ("--help=1", r#""--help=1" is not"#),
        ("--provider a --", "-- needs a value"),
        ("--cluster-profile a/b -- ls", "a command after `--` needs --provider"),
        ("--provider a --definition 12 -- ls", "a command after `--` needs --provider"),
        ("--provider a --env A", "go with a command"),
        ("--provider", "--provider needs a value"),
        ("--provider=", r#"--provider "": expected the name"#),
        ("--provider a --provider b", "--provider is given twice"),
        (
            "--provider a --timeout 5",
            "--timeout \"5\": expected a duration such as 500ms, 10s or 1h30m: `5` has no unit; for seconds, write `5s`",
        ),
        ("--provider a --timeout 0s", "it must be from 1ms to 24h"),
        ("--provider a --timeout 25h", "it must be from 1ms to 24h"),
        ("--provider a --timeout -1s", "it is negative"),
        ("--provider a --timeout 5d", "unknown unit"),
        ("--provider a --api-version v1alpha1", "expected v1 or v1beta1"),
        ("--cluster-profile eu", "expected NAMESPACE/NAME"),
        ("--cluster-profile a/b/c", "expected NAMESPACE/NAME"),
        ("--cluster-profile /b", "expected NAMESPACE/NAME"),
    ] {
        let message = parsed(line, None).map_or_else(|error| error.to_string(), |found| format!("{found:?}"));
        assert!(message.contains(needle), "{line}: {message}");
    }
}

#[test]
fn the_help_names_every_flag() {
    for flag in FLAGS {
        assert!(HELP.contains(flag), "{flag}");
    }
}

#[test]
fn the_digest_of_a_command_is_that_of_its_definition() {
    let line = "--provider prod --api-version v1beta1 --env AWS_PROFILE --env GONE --dir /opt --cluster-info \
                --was provideClusterInfo=absent -- bin/aws eks -- --provider";
    let Ok(Command::Ask(given)) = parsed(line, None) else { panic!() };
    let environment = [("AWS_PROFILE", "prod"), ("OTHER", "x")]
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect::<Environment>();
    let definition = Definition {
        api_version: "v1beta1",
        dir: None,
        command: b"/opt/bin/aws",
        args: vec![b"eks", b"--", b"--provider"],
        env: vec![(b"AWS_PROFILE", Some(b"prod")), (b"GONE", None)],
        cluster_info: true,
    };
    let expected = Source::Provider { name: "prod".into(), definition: Some(definition.digest()) };
    assert_eq!(given.requested(&environment), expected);
}
