//! The status of every error.

use std::{io, sync::Arc};

use super::*;
use credbroker_cache::{Full as CacheFull, Unattended};
use credbroker_credential::{
    ApiVersion, DecodeError, ExecInfoError, LifetimeError, PairError, decode, document::Position,
};
use credbroker_plugin::{
    Command, ContextId, Definition, ProfileError, ProfileName, ProviderProblem, Refusal, Retirement,
    access::Verb,
};
use credbroker_runner::{RunError, RunErrorKind, StoredError};
use credbroker_uds_server::{Full, Limit, Refusal as Refused, Who};

const AT: Position = Position { line: 3, column: 7 };

fn run_errors() -> Vec<RunError> {
    let command = || Arc::<str>::from("/plugins/p");
    let cause = || Arc::new(io::Error::from(io::ErrorKind::PermissionDenied));
    let stderr = || Arc::<str>::from("try again");
    vec![
        RunError::new(command(), RunErrorKind::ArgumentsTooLong(3_000_000)),
        RunError::new(command(), RunErrorKind::Directory(Arc::from(std::path::Path::new("/tmp")), cause())),
        RunError::new(command(), RunErrorKind::ExecInfo(ExecInfoError::Config(1, 2))),
        RunError::new(command(), RunErrorKind::ExecInfo(ExecInfoError::TooLarge(200_000, 190_000))),
        RunError { stderr: stderr(), ..RunError::new(command(), RunErrorKind::Exit(3)) },
        RunError { stderr: stderr(), ..RunError::new(command(), RunErrorKind::NeedsTerminal) },
        RunError::new(command(), RunErrorKind::TerminalLost(7)),
        RunError::new(command(), RunErrorKind::NotAllowed(Refusal::DenyAll)),
        RunError::new(command(), RunErrorKind::NotAllowed(Refusal::Digest("a52d159f".into()))),
        RunError::new(command(), RunErrorKind::NotAllowed(Refusal::Owner("/plugins".into(), 1001))),
        RunError::new(command(), RunErrorKind::NotAllowed(Refusal::Writable("/plugins/p".into(), 0o777))),
        RunError::new("p", RunErrorKind::NotFound(" in the broker's PATH, /usr/bin. Install it.".into())),
        RunError::new(command(), RunErrorKind::OutputTooLarge(1 << 20)),
        RunError::new(command(), RunErrorKind::Panicked),
        RunError::new(command(), RunErrorKind::Recursion),
        RunError { stderr: stderr(), ..RunError::new(command(), RunErrorKind::Signal(9)) },
        RunError::new(command(), RunErrorKind::Spawn(cause())),
        RunError::new(
            command(),
            RunErrorKind::Throttled {
                provider: "cloud".into(),
                issuer: "idp".into(),
                of_key: false,
                retry_after: Duration::from_millis(40_200),
            },
        ),
        RunError {
            stderr: stderr(),
            ..RunError::new(command(), RunErrorKind::Timeout(Duration::from_secs(30), "timeout"))
        },
        RunError::new(command(), RunErrorKind::Unanswered),
        RunError::new(command(), RunErrorKind::Unreadable(cause())),
    ]
}

fn decode_errors() -> Vec<DecodeError> {
    let syntax = decode(b"{\"a\": ", ApiVersion::V1).unwrap_err();
    let errors = vec![
        DecodeError::BadTimestamp(AT),
        syntax,
        DecodeError::Empty,
        DecodeError::HalfPair("clientKeyData"),
        DecodeError::NoCredential,
        DecodeError::NoStatus,
        DecodeError::NotAnObject("a list", AT),
        DecodeError::TokenBlank(AT),
        DecodeError::TokenControl(AT),
        DecodeError::TokenNotAscii(AT),
        DecodeError::VersionMismatch(ApiVersion::V1, Some(ApiVersion::V1Beta1)),
        DecodeError::VersionMissing(ApiVersion::V1),
        DecodeError::WrongKind(AT),
        DecodeError::WrongType("status.token", "a string", "a number", AT),
    ];
    let pairs = [
        PairError::Base64("clientKeyData"),
        PairError::CertificateMissing,
        PairError::CertificateUnreadable(2),
        PairError::ChainTooLong(17),
        PairError::EncryptedKey,
        PairError::KeyMismatch,
        PairError::KeyMissing,
        PairError::KeyUnreadable,
        PairError::LeafNotFirst(2),
        PairError::PemBroken("clientKeyData", 4),
        PairError::Secp256k1,
        PairError::Swapped,
    ];
    errors.into_iter().chain(pairs.map(DecodeError::Pair)).collect()
}

fn cache_errors() -> Vec<CacheError> {
    let command = || Arc::<str>::from("/plugins/p");
    let ago = Duration::from_secs(600);
    let mut errors = vec![
        CacheError::Draining,
        CacheError::Evicted,
        CacheError::Full(CacheFull::Entries(10_000)),
        CacheError::Full(CacheFull::Bytes(1 << 26)),
        CacheError::Unattended(Unattended::NeedsTerminal),
        CacheError::Unattended(Unattended::NeedsPerson),
        CacheError::Unattended(Unattended::Unanswered),
        CacheError::Retired(Retirement::Changed),
        CacheError::Retired(Retirement::Removed),
        CacheError::Lifetime(command(), LifetimeError::Certificate(ago)),
        CacheError::Lifetime(command(), LifetimeError::Credential(ago)),
        CacheError::Lifetime(command(), LifetimeError::NotYetValid(ago)),
    ];
    errors.extend(run_errors().into_iter().map(CacheError::Run));
    let decode = |source| CacheError::Run(RunError::new(command(), RunErrorKind::Decode(source)));
    errors.extend(decode_errors().into_iter().map(decode));
    let file = || "/home/jane/token".into();
    let stored = [
        StoredError::Empty(file()),
        StoredError::Invalid(DecodeError::TokenBlank(AT)),
        StoredError::Lifetime(LifetimeError::Certificate(ago)),
        StoredError::Lifetime(LifetimeError::Credential(ago)),
        StoredError::Lifetime(LifetimeError::NotYetValid(ago)),
        StoredError::Unanswered,
        StoredError::Unreadable(file(), Arc::new(io::ErrorKind::PermissionDenied.into())),
        StoredError::Untrusted(file(), "users other than its owner can write to it".into()),
    ];
    let stored =
        stored.map(|error| RunError::new("/home/jane/.kube/config", RunErrorKind::Stored(error.into())));
    errors.extend(stored.map(CacheError::Run));
    errors
}

fn resolve_errors() -> Vec<ResolveError> {
    let command = || Command::Name("p".into());
    let profile = || ProfileName::new("fleet", "paris");
    let of_provider = |problem| ResolveError::Provider("cloud".into(), problem);
    let errors = [
        of_provider(ProviderProblem::ClusterConfig(1, 2)),
        of_provider(ProviderProblem::ClusterMismatch(Some(profile()), "its server is different")),
        of_provider(ProviderProblem::ClusterMismatch(None, "no known cluster has its server")),
        of_provider(ProviderProblem::ClusterServer),
        of_provider(ProviderProblem::ClusterUnread("connection refused".into(), Duration::ZERO)),
        ResolveError::AmbiguousProvider(
            "cloud".into(),
            ["/home/jane/.kube/config", "/other"]
                .map(|file| Definition::new(file.into(), "cloud", "12ab"))
                .into(),
        ),
        of_provider(ProviderProblem::IdentityConflict("AWS_PROFILE".into(), true)),
        ResolveError::ContextMismatch("paris".into(), "its server is different"),
        ResolveError::ContextNotAllowed("paris".into()),
        ResolveError::UnknownContext("paris".into()),
        ResolveError::UnusableContext("paris".into(), "it names no cluster".into()),
        ResolveError::UnknownDefinition("cloud".into(), "12ab".into(), Vec::new()),
        ResolveError::UnknownDefinition(
            "cloud".into(),
            "12ab".into(),
            vec![Definition::new("/other".into(), "cloud", "34cd")],
        ),
        of_provider(ProviderProblem::VariableNotAllowed(
            "CLOUDSDK_PYTHON".into(),
            "it can make the plugin run another program",
            "",
        )),
        of_provider(ProviderProblem::InvalidVariable("A=B".into())),
        of_provider(ProviderProblem::NeedsTerminal),
        of_provider(ProviderProblem::NoCluster(2)),
        of_provider(ProviderProblem::PluginNotAllowed(command(), Refusal::NotListed("/plugins/p".into()))),
        of_provider(ProviderProblem::PluginNotFound(command(), " in the broker's PATH, /usr/bin".into())),
        of_provider(ProviderProblem::PluginUnreadable(
            command(),
            Arc::new(io::ErrorKind::PermissionDenied.into()),
        )),
        ResolveError::ProfileNotAllowed(profile()),
        ResolveError::ProfileUnread(profile(), "connection refused".into(), Duration::from_secs(20)),
        ResolveError::ProviderNotAllowed("cloud".into()),
        ResolveError::UnknownProfile(profile()),
        ResolveError::NoHub(profile()),
        ResolveError::UnknownProvider("clout".into(), vec!["cloud".into()]),
    ];
    let profiles = profile_errors().map(|error| ResolveError::Profile(profile(), error));
    errors.into_iter().chain(profiles).collect()
}

fn profile_errors() -> [ProfileError; 2] {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    [
        ProfileError::Invalid("access provider `cloud`: cluster.server is empty".into()),
        ProfileError::NoMatch(names(&["gke", "eks"]), names(&["cloud"])),
    ]
}

fn cloud() -> Subject {
    let profile = Some(ProfileName::new("fleet", "paris"));
    Subject { provider: "cloud".into(), key: PluginKey([0xab; 32]), profile, context: None }
}

fn paris() -> Source {
    Source::ClusterProfile(ProfileName::new("fleet", "paris"))
}

/// One line about `status`, whose message names the provider or the ClusterProfile if it `has_subject`.
fn line(status: &Status, has_subject: bool) -> String {
    let info = status.get_details_error_info().expect("every status carries ErrorInfo");
    assert_eq!(info.domain, "credbroker.io");
    let reason = Reason::from_name(&info.reason).expect("a reason of ours");
    assert_eq!(status.code(), to_tonic(reason.code()), "{reason:?}");
    assert!(status.message().ends_with(&format!(" ({})", info.reason)), "{}", status.message());
    let subject = [("context", "context"), ("provider", "provider"), ("cluster", "ClusterProfile")]
        .into_iter()
        .find_map(|(key, noun)| Some(format!("{noun} `{}`", info.metadata.get(key)?)));
    assert_eq!(subject.is_some(), has_subject, "{}", status.message());
    if let Some(subject) = subject {
        assert!(status.message().contains(&subject), "{subject}: {}", status.message());
    }
    let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
    if status.code() == Code::Unavailable {
        assert!(retry.is_some(), "UNAVAILABLE says when to try again: {status:?}");
    }
    let retry = retry.map(|retry| format!(" in {retry:?}")).unwrap_or_default();
    format!("{} {:?}{retry}: {}", info.reason, status.code(), status.message())
}

#[test]
fn every_error_has_its_reason_code_and_text() {
    let retry_after = Duration::from_secs(4);
    let failed =
        cache_errors().into_iter().map(|error| failed(&cloud(), &Failed { retry_after, ..error.into() }));
    let source = |error: &ResolveError| match error {
        ResolveError::ContextMismatch(name, _)
        | ResolveError::ContextNotAllowed(name)
        | ResolveError::UnknownContext(name)
        | ResolveError::UnusableContext(name, _) => {
            Source::Context(ContextId { name: name.as_str().into(), digest: "12ab".into() })
        }
        _ => paris(),
    };
    let unresolved = resolve_errors().into_iter().map(|error| unresolved(&error, &source(&error)));
    let without_subject = [
        draining(),
        invalid("empty"),
        no_hub(),
        refusal(Refused::Incomplete(Duration::from_secs(10))),
        peer_denied(7, STRANGER),
        peer_denied(7, UNLISTED),
        peer_denied(65_534, UNMAPPED),
        verb_denied(Verb::Admin),
        descendant(),
        no_peer(),
    ];
    let denied = [login_denied(&paris()), login_denied(&Source::Provider("cloud".into()))];
    let lines = failed.chain(unresolved).chain(denied).map(|status| line(&status, true));
    let lines: Vec<_> = lines.chain(without_subject.iter().map(|status| line(status, false))).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn the_remedy_of_a_run_with_a_user_is_a_login_and_a_shell_reads_it() {
    let subject = Subject { provider: "Ann Müller / on-call".into(), profile: None, ..cloud() };
    let error =
        RunError { stderr: "wrong".into(), ..RunError::new("/opt/ldap-login", RunErrorKind::Exit(3)) };
    let message = |is_interactive, retry_after| {
        let error = CacheError::from(error.clone());
        failed(&subject, &Failed { retry_after, is_interactive, ..error.into() }).message().to_owned()
    };
    insta::assert_snapshot!(message(true, Duration::from_secs(1)), @"run `credbroker login 'Ann Müller / on-call'` at a terminal: provider `Ann Müller / on-call`: plugin `/opt/ldap-login` failed with exit code 3; its stderr ends: wrong (PLUGIN_EXIT)");
    insta::assert_snapshot!(message(false, Duration::from_secs(1)), @"ldap-login wrote: wrong; provider `Ann Müller / on-call`: plugin `/opt/ldap-login` failed with exit code 3; to run it now, use `credbroker refresh 'Ann Müller / on-call'` (PLUGIN_EXIT)");
    insta::assert_snapshot!(message(false, Duration::ZERO), @"ldap-login wrote: wrong; provider `Ann Müller / on-call`: plugin `/opt/ldap-login` failed with exit code 3 (PLUGIN_EXIT)");
}

/// The cache's tests cover [`Reason::RunPending`]: only a run can produce that error.
#[test]
fn every_reason_is_reachable() {
    let retry_after = Duration::ZERO;
    let failed =
        cache_errors().into_iter().map(|error| failed(&cloud(), &Failed { retry_after, ..error.into() }));
    let unresolved = resolve_errors().into_iter().map(|error| unresolved(&error, &paris()));
    let reached: std::collections::HashSet<_> = failed
        .chain(unresolved)
        .chain([no_hub(), no_peer(), refusal(Refused::Incomplete(Duration::ZERO))])
        .filter_map(|status| Reason::from_name(&status.get_details_error_info()?.reason))
        .collect();
    let missing: Vec<_> = Reason::all().filter(|reason| !reached.contains(reason)).collect();
    assert_eq!(missing, [Reason::RunPending]);
}

fn metadata(status: &Status) -> Vec<(String, String)> {
    let mut metadata: Vec<_> = status.get_details_error_info().unwrap().metadata.into_iter().collect();
    metadata.sort();
    metadata
}

#[test]
fn the_metadata_names_provider_id_cluster_context_and_limit_where_they_apply() {
    let pairs = |pairs: &[(&str, &str)]| -> Vec<_> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let full = failed(&cloud(), &CacheError::Full(CacheFull::Entries(1)).into());
    let named = [
        ("cluster", "fleet/paris"),
        ("id", "abababababab"),
        ("limit", "limits.credentials"),
        ("provider", "cloud"),
    ];
    assert_eq!(metadata(&full), pairs(&named));
    let subject = Subject { profile: None, context: Some("admin@paris".into()), ..cloud() };
    let named = [("context", "admin@paris"), ("id", "abababababab"), ("provider", "cloud")];
    assert_eq!(metadata(&failed(&subject, &CacheError::Draining.into())), pairs(&named));
    let command = Command::Name("p".into());
    let missing =
        ResolveError::Provider("cloud".into(), ProviderProblem::PluginNotFound(command, String::new()));
    let by_name = Source::Provider("cloud".into());
    assert_eq!(metadata(&unresolved(&missing, &by_name)), pairs(&[("provider", "cloud")]));
    let both = pairs(&[("cluster", "fleet/paris"), ("provider", "cloud")]);
    assert_eq!(metadata(&unresolved(&missing, &paris())), both, "the request names a ClusterProfile");
    let profile = ProfileName::new("fleet", "paris");
    let unknown = ResolveError::UnknownProfile(profile);
    assert_eq!(metadata(&unresolved(&unknown, &paris())), pairs(&[("cluster", "fleet/paris")]));
    let unknown = ResolveError::UnknownProvider("x".repeat(10_000), vec![]);
    assert_eq!(metadata(&unresolved(&unknown, &by_name)), [], "a value that would not fit into the headers");
}

/// gRPC for Java and the C core accept 8 KiB of headers. Each header counts as its name, its value and 32 bytes.
#[test]
fn every_status_fits_the_headers_that_clients_take() {
    for stderr in ["x", " ", "é", "日", "\u{1f511}"].map(|character| character.repeat(2048)) {
        let error = RunError { stderr: stderr.into(), ..RunError::new("/plugins/p", RunErrorKind::Exit(1)) };
        let long = || "x".repeat(LONGEST_VALUE / 2);
        let profile = Some(ProfileName::new(long(), long()));
        let subject = Subject { provider: "p".repeat(LONGEST_VALUE).into(), profile, ..cloud() };
        let failed = failed(
            &subject,
            &Failed { retry_after: Duration::from_secs(1), ..CacheError::from(error).into() },
        );
        let mut headers = http::HeaderMap::new();
        failed.add_header(&mut headers).unwrap();
        let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
        assert!(size < 7 * 1024 + 512, "{size}");
        assert!(failed.get_details_error_info().is_some());
    }
}

fn reached(limit: Limit, who: Who) -> Refused {
    Refused::Full(Full { limit, who, most: 7 })
}

#[test]
fn an_error_without_a_retry_delay_has_no_retry_info() {
    let retry = |status: Status| Some(status.get_details_retry_info()?.retry_delay);
    assert_eq!(retry(refusal(reached(Limit::Watches, Who::Connection))), None);
    assert_eq!(retry(invalid("empty")), None);
    assert_eq!(retry(refusal(reached(Limit::Connections, Who::All))), Some(Some(SUCCESSOR)));
}

#[test]
fn a_connection_with_too_many_watches_is_distinguished_from_every_other_limit() {
    let limit = |status: Status| status.get_details_error_info().unwrap().metadata.remove(LIMIT);
    let full = CacheError::Full(CacheFull::Entries(1));
    assert_eq!(
        limit(refusal(reached(Limit::Watches, Who::Connection))).as_deref(),
        Some("watches of a connection")
    );
    for (reached_limit, expected) in [
        (Limit::Connections, "limits.connections"),
        (Limit::OpenFiles, "open files"),
        (Limit::Silent, "silent connections"),
        (Limit::Bytes, "limits.bytes"),
    ] {
        for who in [Who::Process, Who::Uid, Who::All] {
            assert_eq!(limit(refusal(reached(reached_limit, who))).as_deref(), Some(expected));
        }
    }
    let unfinished = refusal(reached(Limit::Unfinished, Who::Connection));
    assert_eq!(limit(unfinished).as_deref(), Some("unfinished requests"));
    assert_ne!(limit(failed(&cloud(), &full.into())).as_deref(), Some("watches of a connection"));
}

#[test]
fn a_short_message_stays_as_it_is() {
    let message = format!("plugin `/p` failed: {}", "no session ".repeat(186)); // 2 KiB
    assert_eq!(fitted(message.clone()), message);
}

#[test]
fn a_long_one_keeps_its_start_and_its_end() {
    for filler in ["x", " ", "é", "日", "\u{1f511}"] {
        let message = format!("plugin failed: {}: try again", filler.repeat(10_000));
        let fitted = fitted(message);
        assert!(fitted.starts_with("plugin failed: ") && fitted.ends_with(": try again"), "{fitted}");
        let used = fitted.chars().map(thirds).sum::<usize>() / 3;
        assert!((ROOM - 100..=ROOM + 30).contains(&used), "{filler:?}: {used}");
    }
}
