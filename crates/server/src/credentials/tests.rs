use super::*;
use credbroker_credential::testing::with_token as issued_for_tests;

#[test]
fn a_report_is_answered_with_the_credential_and_what_was_done() {
    use pb::report_rejected_response::Outcome;
    let credential = pb::Credential { generation: "e-7".into(), ..pb::Credential::default() };
    let get = pb::GetCredentialResponse { credential: Some(credential.clone()), cluster: None };
    let mut issued = issued_for_tests("t");
    issued.encoded.frame = preencoded::frame(&get);
    let retry_after = Duration::from_secs(7);
    for (outcome, expected) in [
        (ReportOutcome::Replaced, Outcome::Replaced),
        (ReportOutcome::AlreadyReplaced, Outcome::AlreadyReplaced),
        (ReportOutcome::TooEarly { retry_after }, Outcome::TooEarly),
        (ReportOutcome::NothingNewer, Outcome::NothingNewer),
        (ReportOutcome::UnknownGeneration, Outcome::UnknownGeneration),
    ] {
        let reported = Reported { issued: Arc::new(issued.clone()), outcome };
        let frame = report_answer(&reported);
        let answer = pb::ReportRejectedResponse::decode(preencoded::message(&frame).unwrap()).unwrap();
        assert_eq!((answer.outcome(), answer.credential.as_ref()), (expected, Some(&credential)));
        let after = answer.retry_after.map(|after| after.seconds);
        assert_eq!(after, (expected == Outcome::TooEarly).then_some(7));
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
