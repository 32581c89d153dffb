//! The shim as a process, with only the environment that the test sets.

use std::process::{Command, Output, Stdio};

use credbroker_proto::v1::GetCredentialRequest;
use serde_json::Value;

use crate::broker::Broker;

pub(crate) const INFO_V1BETA1: &str = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","spec":{"interactive":false}}"#;

/// The shim with these arguments, and the default sockets only.
pub(crate) fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_credbroker-exec"));
    command.args(args).env_clear().stdin(Stdio::null());
    command
}

/// The shim that requests the credential of provider `gke` from `broker`.
pub(crate) fn asking(broker: &Broker) -> Command {
    let mut command = bare(&["--provider", "gke"]);
    command.env("CREDBROKER_SOCKET", broker.socket());
    command
}

/// The document on stdout of a successful run: one line, and nothing on stderr.
pub(crate) fn document(command: &mut Command) -> Value {
    printed(&command.output().unwrap())
}

pub(crate) fn printed(output: &Output) -> Value {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{stdout}");
    assert_eq!(stdout.matches('\n').count(), 1, "{stdout}");
    assert!(stdout.ends_with('\n'), "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

/// The line on stderr of a run that failed with `code`: one line, and nothing on stdout.
pub(crate) fn complaint(command: &mut Command, code: i32) -> String {
    let output = command.output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), stdout.as_str()), (Some(code), ""), "{stderr}");
    assert_eq!(stderr.matches('\n').count(), 1, "{stderr}");
    assert!(stderr.starts_with("credbroker-exec: ") && stderr.ends_with('\n'), "{stderr}");
    stderr.trim_end().to_owned()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn env_of(request: &GetCredentialRequest) -> Vec<(&str, &str)> {
    let env = &request.r#ref.as_ref().unwrap().env;
    env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}
