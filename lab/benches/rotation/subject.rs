//! The broker that is measured: when its credential changed, and how much memory it has.

use std::path::Path;

use anyhow::{Result, ensure};
use credbroker_client::{
    Client, CredentialRef, Socket,
    admin::{Selector, State},
};
use credbroker_lab::{
    broker::{self, PROVIDER, Running},
    memory,
};

/// The provider of many credentials, one for each value of KEY.
pub(crate) const KEYS: &str = "keys";

/// Its token is another one at each run, and begins with the time in nanoseconds since 1970: of 1,200 bytes, or for a key of
/// 2,000.
const PLUGIN: &str = r#"#!/bin/sh
echo run >> "${0%/*}/runs"
start='{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"@'
if [ -n "$KEY" ]; then
    printf '%s%s@%01979d"}}\n' "$start" "$(date +%s%N)" "$KEY"
    exit
fi
token=$(head -c 900 /dev/urandom | base64 -w 0)
expiry=$(date -u -d '+1 hour' +%Y-%m-%dT%H:%M:%SZ)
printf '%s%s@%s","expirationTimestamp":"%s"}}\n' "$start" "$(date +%s%N)" "$token" "$expiry"
"#;

/// Room for 20,000 watches of one process, and for 10,000 credentials.
const LIMITS: &str = "limits: {bytes: 256Mi, credentials: 16384, credentialBytes: 256Mi}\n";

/// A broker, and a connection that steers it.
#[derive(Debug)]
pub(crate) struct Subject {
    running: Running,
    steering: Client,
    rotations: usize,
}

impl Subject {
    /// Starts it in a new `directory`; its first credential is there.
    pub(crate) async fn start(directory: &Path) -> Result<Self> {
        broker::private(directory)?;
        let command = directory.join("plugin");
        let running = broker::start(
            directory,
            PLUGIN,
            &format!(
                "\
- name: {KEYS}
  execConfig: {{apiVersion: client.authentication.k8s.io/v1, command: {}, interactiveMode: Never}}
  callerEnv: [KEY]
  unknownExpiryMaxAge: 12h
issuers: [{{name: {KEYS}, runsPerSecond: 10000, concurrency: 4}}]
{LIMITS}",
                command.display()
            ),
        )?;
        let steering = Client::connect(&Socket::at(&running.socket)).await?;
        steering.credential(&CredentialRef::provider(PROVIDER)).await?;
        Ok(Self { running, steering, rotations: 1 })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.running.socket
    }

    /// Has the plugin run, once.
    pub(crate) async fn rotate(&mut self) -> Result<()> {
        self.rotations += 1;
        let (admin, selector) = (self.steering.admin(), Selector::Provider(PROVIDER.to_owned()));
        admin.refresh(&selector).await?;
        let held = admin.credentials(&selector).await?;
        ensure!(held.iter().all(|held| held.state == State::Valid), "{held:?}");
        ensure!(self.running.runs() == self.rotations, "one run for each rotation");
        Ok(())
    }

    /// Has the plugin run for each key.
    pub(crate) async fn rotate_keys(&self) -> Result<()> {
        self.steering.admin().refresh(&Selector::Provider(KEYS.to_owned())).await?;
        Ok(())
    }

    /// Its resident memory, in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        memory::resident(self.running.child.id())
    }
}
