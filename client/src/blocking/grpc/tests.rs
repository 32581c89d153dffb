use credbroker_proto::{
    v1::{Credential, CredentialRef, ExecPluginCaller},
    v1alpha1::{
        AttendCredentialRequest,
        attend_credential_response::{Event, Output},
    },
};

use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

fn answer(body: &[u8], trailers: &[(&'static str, &str)]) -> RawResponse {
    RawResponse {
        http_status: 200,
        body: body.to_vec(),
        trailers: Some(headers(trailers)),
        ..RawResponse::default()
    }
}

fn refused(pairs: &[(&'static str, &str)]) -> ErrorStatus {
    outcome(&answer(b"", pairs)).unwrap().unwrap_err()
}

#[test]
fn a_framed_message_is_read_back() {
    let credential = Credential { token: Some("t0ken".into()), ..Credential::default() };
    let response = GetCredentialResponse { credential: Some(credential), ..Default::default() };
    let framed = framed(&response);
    assert_eq!(framed[..PREFIX], [0, 0, 0, 0, u8::try_from(framed.len() - PREFIX).unwrap()]);
    assert_eq!(outcome(&answer(&framed, &[("grpc-status", "0")])).unwrap().unwrap(), response);
}

#[test]
fn the_message_of_an_attending_call_is_that_of_its_type() {
    let r#ref = CredentialRef { env: [("A".into(), "b".into())].into(), ..CredentialRef::default() };
    let session: std::collections::BTreeMap<_, _> =
        [("DISPLAY".into(), ":1".into()), ("TERM".into(), String::new())].into();
    for (r#ref, login, can_run_plugin) in
        [(None, false, false), (Some(r#ref), true, false), (None, false, true)]
    {
        let caller = ExecPluginCaller { id: "me".into(), without_exec_info: true };
        let exec_plugin_caller = login.then_some(caller);
        let min_lifetime = login.then_some(prost_types::Duration { seconds: 600, nanos: 0 });
        let get = GetCredentialRequest {
            r#ref: r#ref.clone(),
            at_terminal: true,
            session: session.clone(),
            exec_plugin_caller: exec_plugin_caller.clone(),
            min_lifetime,
        };
        let session = session.clone();
        let attend = AttendCredentialRequest {
            r#ref,
            session,
            login,
            can_run_plugin,
            exec_plugin_caller,
            min_lifetime,
        };
        assert_eq!(attending(&get, login, can_run_plugin), framed(&attend));
    }
}

#[test]
fn messages_are_taken_from_a_stream_one_by_one() {
    let event = |text: &str| Event::Output(Output { stderr_lines: vec![text.into()] });
    let message = |text: &str| AttendCredentialResponse { event: Some(event(text)) };
    let sent = [framed(&message("one")), framed(&message("two"))].concat();
    let (mut body, mut taken) = (Vec::new(), Vec::new());
    for byte in sent {
        body.push(byte);
        taken.extend(take_framed(&mut body));
    }
    let events: Vec<_> = taken.iter().filter_map(|framed| super::message(framed).unwrap().event).collect();
    assert_eq!((events, body.len()), (vec![event("one"), event("two")], 0));
    assert!(super::message(&[0, 0, 0, 0, 1, 0xff]).is_none());
}

#[test]
fn a_body_that_is_not_one_plain_message_is_refused() {
    let framed = framed(&GetCredentialResponse::default());
    let compressed = [&[1][..], &framed[1..]].concat();
    let twice = [&framed[..], &framed[..]].concat();
    let undecodable = [0, 0, 0, 0, 1, 0xff];
    for body in [&b""[..], b"\0\0\0", b"\0\0\0\0\x05abc", &compressed, &twice, &undecodable] {
        let found = outcome(&answer(body, &[("grpc-status", "0")]));
        assert!(matches!(found, Err(ExchangeError::NotGrpc(_))), "{body:?}: {found:?}");
    }
}

#[test]
fn a_status_is_read_from_trailers_or_from_headers_alone() {
    let pairs = [
        ("grpc-status", "7"),
        ("grpc-message", "no%20caf%C3%A9%0Ahere 100%"),
        ("grpc-status-details-bin", "AQID/w"),
    ];
    let expected = ErrorStatus {
        code: Code::PermissionDenied,
        message: "no café\nhere 100%".into(),
        details: vec![1, 2, 3, 255],
    };
    assert_eq!(refused(&pairs), expected);
    let alone = RawResponse { http_status: 200, headers: headers(&pairs), ..RawResponse::default() };
    assert_eq!(outcome(&alone).unwrap().unwrap_err(), expected);
    let padded = [("grpc-status", "13"), ("grpc-status-details-bin", "AQID/w==")];
    assert_eq!(refused(&padded).details, [1, 2, 3, 255]);
}

#[test]
fn an_unreadable_status_is_an_error_status() {
    let found = refused(&[("grpc-status", "x"), ("grpc-status-details-bin", "!")]);
    assert_eq!(found, ErrorStatus { code: Code::Unknown, message: String::new(), details: Vec::new() });
    let nothing = outcome(&RawResponse { http_status: 404, ..RawResponse::default() });
    assert!(
        matches!(&nothing, Err(ExchangeError::NotGrpc(text)) if text.contains("HTTP 404")),
        "{nothing:?}"
    );
}

#[test]
fn the_timeout_of_the_request_is_a_little_less_than_is_left() {
    for (left, expected) in [
        (45_000, "44500m"),
        (200, "180m"),
        (1, "1m"),
        (0, "1m"),
        (86_400_000, "86399500m"),
        (u64::MAX, "99999999m"),
    ] {
        let request = head(GET, Some(Duration::from_millis(left)));
        assert_eq!(request.headers()["grpc-timeout"], expected, "{left} ms");
    }
}
