//! The broker that is measured: when its credential changed, and how much memory it has.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Result, ensure};
use credbroker_client::{
    Client, CredentialRef, Socket,
    admin::{Selector, State},
};
use credbroker_lab::{
    broker::{self, PROVIDER, Running},
    memory,
};

/// Says when it prints, in nanoseconds since 1970; its token, of 1,200 bytes, is another one at each run.
const PLUGIN: &str = r#"#!/bin/sh
directory=$(dirname "$0")
echo run >> "$directory/runs"
token=$(head -c 900 /dev/urandom | base64 -w 0)
expiry=$(date -u -d '+1 hour' +%Y-%m-%dT%H:%M:%SZ)
date +%s%N > "$directory/printed"
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%s","expirationTimestamp":"%s"}}\n' "$token" "$expiry"
"#;

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
        // Room for 10,000 watches of one process: the default is a share of 40 MiB.
        let running = broker::start(directory, PLUGIN, "limits: {bytes: 134217728}\n")?;
        let steering = Client::connect(&Socket::at(&running.socket)).await?;
        steering.credential(&CredentialRef::provider(PROVIDER)).await?;
        Ok(Self { running, steering, rotations: 1 })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.running.socket
    }

    /// Has the plugin run, once, and returns when it printed the new credential.
    pub(crate) async fn rotate(&mut self) -> Result<SystemTime> {
        self.rotations += 1;
        let (admin, selector) = (self.steering.admin(), Selector::Provider(PROVIDER.to_owned()));
        admin.refresh(&selector).await?;
        let held = admin.credentials(&selector).await?;
        ensure!(held.iter().all(|held| held.state == State::Valid), "{held:?}");
        ensure!(self.running.runs() == self.rotations, "one run for each rotation");
        let printed = fs::read_to_string(self.running.directory.join("printed"))?;
        Ok(SystemTime::UNIX_EPOCH + Duration::from_nanos(printed.trim().parse()?))
    }

    /// Its resident memory, in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        memory::resident(self.running.child.id())
    }
}
