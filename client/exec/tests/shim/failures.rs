//! The output when there is no credential.

use std::{collections::HashMap, time::Duration};

use credbroker_proto::{DOMAIN, Reason, to_tonic, v1::Credential};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use crate::{
    broker::{Answer, Broker, set_mode},
    shim::{asking, bare, complaint, document},
};

pub(crate) fn status(reason: Reason, message: &str) -> Status {
    let mut details = ErrorDetails::with_error_info(reason.name(), DOMAIN, HashMap::new());
    details.set_retry_info(Some(Duration::from_secs(9)));
    Status::with_error_details(to_tonic(reason.code()), message, details)
}

#[test]
fn a_failure_is_one_line_with_provider_cause_and_reason() {
    for (reason, code) in [
        (Reason::PluginExit, 1),
        (Reason::UnknownProvider, 1),
        (Reason::PluginTimeout, 1),
        (Reason::Recursion, 1),
        (Reason::RunPending, 75),
        (Reason::PeerDenied, 77),
    ] {
        let broker = Broker::failing(status(reason, "first line\nsecond\x1b[2J line"));
        let line = complaint(&mut asking(&broker), code);
        let expected =
            format!("provider gke: first line second [2J line ({}); try again in 9 s", reason.name());
        assert!(line.ends_with(&expected), "{line}");
        assert_eq!(broker.requests().len(), 1, "an answer is not requested twice");
    }
}

#[test]
fn unavailable_from_another_server_is_unreachable() {
    let broker = Broker::failing(Status::unavailable("bad gateway"));
    let line = complaint(&mut asking(&broker), 69);
    assert!(line.contains("no broker answers") && line.contains("bad gateway"), "{line}");
}

#[test]
fn an_answer_without_a_credential_is_not_printed() {
    let broker = Broker::answering(Answer::Say(Ok(Credential::default())));
    assert!(complaint(&mut asking(&broker), 1).contains("it has neither a token nor a certificate"));
}

#[test]
fn wrong_usage_names_the_argument_and_the_help() {
    for (args, needle) in [
        (&[][..], "CREDBROKER_PROVIDER is not set"),
        (&["--provider", "a", "kubectl"], r#""kubectl" is not an argument"#),
        (&["--provider", "a", "--timeout", "soon"], "--timeout"),
        (&["--provider", "a", "--socket", "tcp://x"], "--socket is"),
    ] {
        let line = complaint(&mut bare(args), 2);
        assert!(line.contains(needle), "{line}");
    }
    assert!(complaint(&mut bare(&["-x"]), 2).contains("see credbroker-exec --help"));
}

#[test]
fn a_variable_with_an_unusable_value_is_named() {
    let broker = Broker::with_token("t");
    let line = complaint(asking(&broker).env("KUBERNETES_EXEC_INFO", "{c4n4ry"), 78);
    assert!(line.contains("KUBERNETES_EXEC_INFO is not a JSON ExecCredential") && !line.contains("c4n4ry"));
    let alpha = r#"{"apiVersion":"client.authentication.k8s.io/v1alpha1"}"#;
    let line = complaint(asking(&broker).env("KUBERNETES_EXEC_INFO", alpha), 78);
    assert!(line.contains("v1alpha1") && line.contains("/v1beta1 are supported"), "{line}");
    let line = complaint(bare(&["--provider=a"]).env("CREDBROKER_SOCKET", "unix://relative"), 78);
    assert!(line.contains("CREDBROKER_SOCKET is"), "{line}");
}

#[test]
fn a_socket_in_a_directory_that_others_can_write_to_is_not_trusted() {
    let broker = Broker::with_token("t");
    set_mode(broker.directory.path(), 0o777);
    let line = complaint(&mut asking(&broker), 77);
    assert!(
        line.contains("is not trusted: its directory is writable by others (mode 0777); run `chmod go-w /"),
        "{line}"
    );
    assert!(broker.requests().is_empty(), "nothing was sent");
    set_mode(broker.directory.path(), 0o755);
    document(&mut asking(&broker));
}
