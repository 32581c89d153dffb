use super::*;

#[test]
fn a_cluster_survives_the_way_in_and_out() {
    let message = pb::Cluster {
        server: "https://a".into(),
        tls_server_name: Some("b".into()),
        insecure_skip_tls_verify: true,
        certificate_authority_data: Some("c".into()),
        proxy_url: Some("d".into()),
        disable_compression: true,
        config: Some(r#"{"e":1}"#.into()),
    };
    assert!(cluster_message(&cluster(message.clone())) == message);
    let bare = pb::Cluster { server: "https://a".into(), ..pb::Cluster::default() };
    assert!(cluster_message(&cluster(bare.clone())) == bare);
}

#[test]
fn a_request_that_names_nothing_is_refused() {
    for reference in [None, Some(pb::CredentialRef::default())] {
        assert_eq!(
            ask(reference, &Access::of_the_owner(), Verb::Get).unwrap_err().code(),
            tonic::Code::InvalidArgument
        );
    }
    let profile = pb::ClusterProfileRef { namespace: "fleet".into(), name: String::new() };
    let source = Some(pb::credential_ref::Source::ClusterProfile(profile));
    let reference = Some(pb::CredentialRef { source, ..pb::CredentialRef::default() });
    let status = ask(reference, &Access::of_the_owner(), Verb::Get).unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
}

#[test]
fn a_timeout_has_digits_and_a_unit() {
    let table = [
        ("1H", Some(Duration::from_secs(3600))),
        ("2M", Some(Duration::from_secs(120))),
        ("45S", Some(Duration::from_secs(45))),
        ("250m", Some(Duration::from_millis(250))),
        ("99999999u", Some(Duration::from_micros(99_999_999))),
        ("7n", Some(Duration::from_nanos(7))),
        ("100000000m", None),
        ("", None),
        ("S", None),
        ("-1S", None),
        ("1.5S", None),
        ("1s", None),
        ("1é", None),
    ];
    for (text, expected) in table {
        assert_eq!(timeout(text), expected, "{text}");
    }
}

#[test]
fn the_broker_answers_before_the_callers_deadline() {
    let within = |text: &str| {
        let name = http::HeaderName::from_static("grpc-timeout");
        deadline(&HeaderMap::from_iter([(name, text.parse().unwrap())]))
    };
    assert_eq!(within("45S"), Some(Duration::from_millis(44_500)));
    assert_eq!(within("1S"), Some(Duration::from_millis(900)));
    assert_eq!(within("soon"), None);
    assert_eq!(deadline(&HeaderMap::new()), None);
}

#[tokio::test(start_paused = true)]
async fn a_wait_before_the_run_counts_against_the_deadline() {
    let secs = Duration::from_secs;
    let table = [
        (Some(secs(1)), secs(5), Some(Duration::ZERO), secs(1)),
        (Some(secs(7)), secs(5), Some(secs(2)), secs(5)),
        (None, secs(5), None, secs(5)),
    ];
    for (deadline, takes, left, waited) in table {
        #[expect(clippy::disallowed_methods, reason = "tokio's paused clock is the test's clock")]
        let started = Instant::now();
        assert_eq!(wait_within(deadline, tokio::time::sleep(takes)).await, left, "{deadline:?}");
        assert_eq!(started.elapsed(), waited, "{deadline:?}");
    }
}

#[test]
fn callers_differ_by_process_where_the_kernel_shows_it_and_by_uid_elsewhere() {
    let of = |uid, pid| Peer { listener: 0, uid, gid: 1, pid };
    let at = |pid| of(1, pid);
    assert_eq!(named(&at(Some(7)), "a").peer, named(&at(Some(7)), "b").peer);
    assert_ne!(named(&at(Some(7)), "a").peer, named(&at(Some(8)), "a").peer);
    assert_eq!(named(&at(None), "a").peer, named(&at(None), "b").peer, "a name proves nothing");
    assert_ne!(named(&at(None), "a").peer, named(&of(2, None), "a").peer);
    assert_eq!(named(&at(Some(7)), "a").name, named(&at(Some(8)), "a").name);
    assert_eq!(named(&at(Some(7)), "").name, 0);
}

#[test]
fn a_min_lifetime_is_a_duration_that_is_not_negative() {
    let read = |seconds, nanos| min_lifetime(Some(prost_types::Duration { seconds, nanos }));
    assert_eq!(min_lifetime(None).unwrap(), Duration::ZERO);
    assert_eq!(read(600, 5).unwrap(), Duration::new(600, 5));
    assert_eq!(read(i64::MAX, 999_999_999).unwrap(), Duration::new(i64::MAX.unsigned_abs(), 999_999_999));
    for (seconds, nanos) in
        [(-1, 0), (0, -1), (-1, -1), (1, -1), (-1, 1), (0, 1_000_000_000), (i64::MIN, i32::MIN)]
    {
        let refused = read(seconds, nanos).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().contains("`min_lifetime`"), "{refused}");
    }
}
