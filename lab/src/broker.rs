//! `credbroker serve` with one provider, whose plugin counts its runs.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::programs::credbroker;

/// The name of the provider.
pub const PROVIDER: &str = "bench";

/// A server process; killed when dropped.
#[derive(Debug)]
pub struct Running {
    /// Its socket.
    pub socket: PathBuf,
    /// Where its files are.
    pub directory: PathBuf,
    /// Its process.
    pub child: Child,
}

/// A new private directory for the socket of a server.
pub fn private(directory: &Path) -> Result<()> {
    fs::DirBuilder::new().mode(0o700).create(directory).context("a directory for the broker")
}

/// Starts the broker in `directory`, with nothing in its cache. `plugin` is a shell script, `directory/plugin`, that
/// writes a line to `$(dirname "$0")/runs` in each run. `more` is what else the configuration says: further providers,
/// then further sections.
pub fn start(directory: &Path, plugin: &str, more: &str) -> Result<Running> {
    let (program, config) = (directory.join("plugin"), directory.join("config.yaml"));
    let socket = directory.join("credbroker.sock");
    fs::write(&program, plugin)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
    let provider = format!(
        "- name: {PROVIDER}\n  execConfig:\n    apiVersion: client.authentication.k8s.io/v1\n    command: {}\n    interactiveMode: Never\n",
        program.display()
    );
    let header = "apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\nproviders:\n";
    fs::write(&config, format!("{header}{provider}{more}"))?;
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600))?;
    let mut command = Command::new(credbroker()?);
    command.arg("serve").arg("--config").arg(config).arg("--socket").arg(&socket);
    ready(command, directory, socket)
}

/// Starts a server and waits until it accepts connections, which fills no cache.
pub fn ready(mut command: Command, directory: &Path, socket: PathBuf) -> Result<Running> {
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

impl Running {
    /// How often the plugin ran.
    pub fn runs(&self) -> usize {
        fs::read_to_string(self.directory.join("runs")).map_or(0, |runs| runs.lines().count())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
