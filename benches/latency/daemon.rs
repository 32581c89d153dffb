//! A broker with one provider, whose plugin counts its runs.

use std::{
    env::current_exe,
    fs,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use credbroker_proto::v1::{Credential, CredentialRef, GetCredentialRequest, credential_ref::Source};

use crate::echo;

pub(crate) const PROVIDER: &str = "bench";

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    /// `credbroker serve`.
    Daemon,
    /// The bare service in its place: shows what the harness itself measures, and how much it scatters.
    StandIn,
}

/// A server process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) socket: PathBuf,
    directory: PathBuf,
    child: Child,
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

/// Starts the broker in a new `directory`, with nothing in its cache.
pub(crate) fn start(directory: &Path, subject: Subject) -> Result<Running> {
    fs::DirBuilder::new().mode(0o700).create(directory).context("a directory for the broker")?;
    match subject {
        Subject::Daemon => start_daemon(directory),
        Subject::StandIn => {
            let token = "x".repeat(1200);
            start_echo(directory, &Credential { token, ..Credential::default() })
        }
    }
}

/// Starts the bare service in `directory`, which exists; it answers every request with `credential`.
pub(crate) fn start_echo(directory: &Path, credential: &Credential) -> Result<Running> {
    let (answer, socket) = (directory.join("answer"), directory.join("echo.sock"));
    fs::write(&answer, echo::encoded(credential))?;
    let mut command = Command::new(current_exe()?);
    command.arg(echo::COMMAND).arg(&socket).arg(&answer);
    ready(command, directory, socket)
}

pub(crate) fn request() -> GetCredentialRequest {
    let source = Some(Source::Provider(PROVIDER.to_owned()));
    let credential = CredentialRef { source, ..CredentialRef::default() };
    GetCredentialRequest { credential: Some(credential), caller: String::new() }
}

impl Running {
    /// How often the plugin ran.
    pub(crate) fn runs(&self) -> usize {
        fs::read_to_string(self.directory.join("runs")).map_or(0, |runs| runs.lines().count())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn start_daemon(directory: &Path) -> Result<Running> {
    let (plugin, config) = (directory.join("plugin"), directory.join("config.yaml"));
    let socket = directory.join("credbroker.sock");
    fs::write(&plugin, PLUGIN)?;
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o700))?;
    let provider = format!(
        "- name: {PROVIDER}\n  execConfig:\n    apiVersion: client.authentication.k8s.io/v1\n    command: {}\n    interactiveMode: Never\n",
        plugin.display()
    );
    let header = "apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\nproviders:\n";
    fs::write(&config, format!("{header}{provider}"))?;
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_credbroker"));
    command.arg("serve").arg("--config").arg(config).arg("--socket").arg(&socket);
    ready(command, directory, socket)
}

/// Waits until the server accepts connections, which fills no cache.
fn ready(mut command: Command, directory: &Path, socket: PathBuf) -> Result<Running> {
    let log = directory.join("log");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
    let child = command.spawn().with_context(|| format!("{command:?}"))?;
    let mut running = Running { socket, directory: directory.to_owned(), child };
    for _ in 0..500 {
        if std::os::unix::net::UnixStream::connect(&running.socket).is_ok() {
            return Ok(running);
        }
        if let Some(status) = running.child.try_wait()? {
            bail!("{command:?}: {status}\n{}", fs::read_to_string(log)?);
        }
        sleep(Duration::from_millis(10));
    }
    bail!("{command:?} did not listen within 5 s\n{}", fs::read_to_string(log)?)
}
