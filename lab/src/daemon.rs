//! What is measured: a broker whose plugin takes its time, or a service that does nothing.

use std::{env::current_exe, fs, path::Path, process::Command};

use anyhow::Result;
use credbroker_proto::v1::Credential;

use crate::{
    broker::{self, Running},
    echo,
};

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    /// `credbroker serve`.
    Daemon,
    /// The bare service in its place: shows what the harness itself measures, and how much it scatters.
    StandIn,
}

/// The plugin: its token is another one at each run, and the document that a shim prints has about 1.3 KB.
const PLUGIN: &str = r#"#!/bin/sh
echo run >> "$(dirname "$0")/runs"
sleep 0.2
token=$(head -c 900 /dev/urandom | base64 -w 0)
expiry=$(date -u -d '+1 hour' +%Y-%m-%dT%H:%M:%SZ)
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
printf '"status":{"token":"%s","expirationTimestamp":"%s"}}\n' "$token" "$expiry"
"#;

/// A provider with the same plugin, which takes what kubectl gives to an exec plugin.
pub const KUBECTL: &str = "kubectl";

/// Starts it in a new `directory`, with nothing in its cache.
pub fn start(directory: &Path, subject: Subject) -> Result<Running> {
    broker::private(directory)?;
    match subject {
        Subject::Daemon => {
            let command = directory.join("plugin");
            let kubectl = format!(
                "- name: {KUBECTL}\n  callerEnv: ['AWS_*']\n  execConfig: {{apiVersion: client.authentication.k8s.io/v1, command: {}, \
                 interactiveMode: Never, provideClusterInfo: true}}\n",
                command.display()
            );
            broker::start(directory, PLUGIN, &kubectl)
        }
        Subject::StandIn => {
            let token = Some("x".repeat(1200));
            start_echo(directory, &Credential { token, ..Credential::default() })
        }
    }
}

/// Starts the bare service in `directory`, which exists; it answers every request with `credential`.
pub fn start_echo(directory: &Path, credential: &Credential) -> Result<Running> {
    let (answer, socket) = (directory.join("answer"), directory.join("echo.sock"));
    fs::write(&answer, echo::encoded(credential))?;
    let mut command = Command::new(current_exe()?);
    command.arg(echo::COMMAND).arg(&socket).arg(&answer);
    broker::ready(command, directory, socket)
}
