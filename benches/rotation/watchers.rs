//! Many watches of one credential, by tonic's own client.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use credbroker_proto::v1::{WatchCredentialRequest, credential_broker_client::CredentialBrokerClient as Rpc};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
    time::timeout,
};
use tonic::transport::Channel;

use crate::{broker::request, channel::channel};

const PATIENCE: Duration = Duration::from_secs(60);

/// Watches that are open until this is dropped.
#[derive(Debug)]
pub(crate) struct Watchers {
    connections: Vec<Rpc<Channel>>,
    tasks: JoinSet<()>,
    received: UnboundedReceiver<SystemTime>,
    note: UnboundedSender<SystemTime>,
}

impl Watchers {
    /// Opens connections to the broker at `socket`, without a watch.
    pub(crate) async fn connect(socket: &Path, connections: usize) -> Result<Self> {
        let (note, received) = unbounded_channel();
        let mut watchers = Self { connections: Vec::new(), tasks: JoinSet::new(), received, note };
        for _ in 0..connections {
            watchers.connections.push(Rpc::new(channel(socket).await?));
        }
        Ok(watchers)
    }

    /// Opens `each` more watches on every connection, and returns when all of them have the credential.
    pub(crate) async fn watch(&mut self, each: usize) -> Result<()> {
        for _ in 0..each {
            for rpc in &self.connections {
                let (mut rpc, note) = (rpc.clone(), self.note.clone());
                let request = WatchCredentialRequest { credential: request().credential };
                self.tasks.spawn(async move {
                    let Ok(mut watch) = rpc.watch_credential(request).await.map(tonic::Response::into_inner)
                    else {
                        return;
                    };
                    while let Ok(Some(_)) = watch.message().await {
                        if note.send(SystemTime::now()).is_err() {
                            return;
                        }
                    }
                });
            }
        }
        self.next(each * self.connections.len()).await?;
        Ok(())
    }

    /// How many there are. A watch that ended is counted too: then nobody receives what it should have.
    pub(crate) fn count(&self) -> usize {
        self.tasks.len()
    }

    /// When the next message of each was received.
    pub(crate) async fn all(&mut self) -> Result<Vec<SystemTime>> {
        self.next(self.count()).await
    }

    async fn next(&mut self, count: usize) -> Result<Vec<SystemTime>> {
        let mut times = Vec::with_capacity(count);
        while times.len() < count {
            let received = timeout(PATIENCE, self.received.recv()).await;
            times.push(
                received.with_context(|| format!("{} of {count} watches", times.len()))?.context("end")?,
            );
        }
        Ok(times)
    }
}
