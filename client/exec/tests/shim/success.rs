//! The output on success.

use std::{
    io::{Read, Write, pipe},
    process::Stdio,
    time::{SystemTime, UNIX_EPOCH},
};

use credbroker_proto::v1::Credential;
use prost_types::Timestamp;
use serde_json::json;

use crate::{
    broker::{Answer, Broker},
    shim::{INFO_V1BETA1, asking, bare, document, printed, text},
};

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

#[test]
fn the_answer_is_in_the_clients_version_else_in_the_flags_else_in_v1() {
    let broker = Broker::with_token("t0ken");
    for (info, args, version) in [
        (None, &[][..], "v1"),
        (None, &["--api-version", "v1beta1"], "v1beta1"),
        (Some(INFO_V1BETA1), &[], "v1beta1"),
        (Some(INFO_V1BETA1), &["--api-version=v1"], "v1beta1"),
        (Some(""), &[], "v1"),
    ] {
        let mut command = asking(&broker);
        command.args(args).envs(info.map(|info| ("KUBERNETES_EXEC_INFO", info)));
        let expected = json!({
            "kind": "ExecCredential",
            "apiVersion": format!("client.authentication.k8s.io/{version}"),
            "status": {"token": "t0ken"},
        });
        assert_eq!(document(&mut command), expected, "{info:?} {args:?}");
    }
}

#[test]
fn token_pair_and_expiry_are_all_printed() {
    let expiry = now() + 3600;
    let broker = Broker::answering(Answer::Say(Ok(Credential {
        token: Some("t".into()),
        client_certificate_data: Some(b"CERT\r\n".to_vec()),
        client_key_data: Some(b"KEY\n".to_vec()),
        expiration_time: Some(Timestamp { seconds: expiry, nanos: 999 }),
        lifetime: Some(prost_types::Duration { seconds: 3600, nanos: 0 }),
        ..Credential::default()
    })));
    let shown = Timestamp { seconds: expiry - 30, nanos: 0 }.to_string();
    assert_eq!(
        document(&mut asking(&broker))["status"],
        json!({"token": "t", "clientCertificateData": "CERT\r\n", "clientKeyData": "KEY\n", "expirationTimestamp": shown})
    );
}

#[test]
fn a_time_in_the_past_is_never_printed() {
    let broker = Broker::answering(Answer::Say(Ok(Credential {
        token: Some("t".into()),
        expiration_time: Some(Timestamp { seconds: now() - 60, nanos: 0 }),
        ..Credential::default()
    })));
    let before = now();
    let status = &document(&mut asking(&broker))["status"];
    let shown: Timestamp = status["expirationTimestamp"].as_str().unwrap().parse().unwrap();
    assert!(shown.seconds > before && shown.seconds <= now() + 10, "{shown}");
}

#[test]
fn a_large_credential_passes_the_windows_of_the_connection() {
    let token = "x".repeat(1 << 20);
    let broker = Broker::with_token(&token);
    assert_eq!(document(&mut asking(&broker))["status"]["token"], token);
}

#[test]
fn the_provider_and_the_socket_come_from_the_environment_or_the_flags() {
    let broker = Broker::with_token("t");
    let socket = format!("unix://{}", broker.socket().display());
    document(bare(&[]).env("CREDBROKER_PROVIDER", "p").env("CREDBROKER_SOCKET", &socket));
    document(bare(&["--provider=p", "--socket", &socket]).env("CREDBROKER_SOCKET", "/nowhere/at.all"));
    assert_eq!(broker.requests().len(), 2);
}

#[test]
fn a_standard_input_that_never_ends_does_not_block_it() {
    let broker = Broker::with_token("t");
    let (reader, writer) = pipe().unwrap();
    let output = asking(&broker).stdin(reader).output().unwrap();
    printed(&output);
    drop(writer); // open until here
}

#[test]
fn standard_input_is_left_unread() {
    let broker = Broker::with_token("t");
    let (mut reader, mut writer) = pipe().unwrap();
    writer.write_all(b"kind: Pod\n").unwrap();
    document(asking(&broker).env("KUBERNETES_EXEC_INFO", INFO_V1BETA1).stdin(reader.try_clone().unwrap()));
    drop(writer);
    let mut left = String::new();
    reader.read_to_string(&mut left).unwrap();
    assert_eq!(left, "kind: Pod\n");
}

#[test]
fn help_and_version_need_no_broker() {
    let output = bare(&["--help"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("--cluster-profile NAMESPACE/NAME"));
    let output = bare(&["--version"]).output().unwrap();
    assert_eq!(text(&output.stdout), concat!("credbroker-exec ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_reader_that_is_gone_is_an_error_and_no_signal() {
    let broker = Broker::with_token("t0ken");
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let child = asking(&broker).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write to standard output") && !stderr.contains("t0ken"), "{stderr}");
}
