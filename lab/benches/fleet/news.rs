//! One `WatchClusters`, and what it received.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, ensure};
use credbroker_lab::hub::{PROFILES, number_of};
use credbroker_proto::v1 as pb;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::{ledger::Note, subject::Subject};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The server and the first property of each profile, and the rest of what was received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    pub(crate) clusters: HashMap<String, (String, String)>,
    pub(crate) hub: pb::HubState,
    complete: bool,
    /// Changes of profiles since the last [`News::take`].
    seen: Vec<Note>,
}

/// A watch that is open until this is dropped.
#[derive(Debug)]
pub(crate) struct News {
    received: watch::Sender<Received>,
    task: JoinHandle<()>,
}

impl News {
    /// Opens it, and returns when all profiles are known.
    pub(crate) async fn open(subject: &Subject) -> Result<Self> {
        let watch = subject.rpc.clone().watch_clusters(pb::WatchClustersRequest::default()).await?;
        let (mut watch, received) = (watch.into_inner(), watch::Sender::new(Received::default()));
        let sender = received.clone();
        let task = tokio::spawn(async move {
            while let Ok(Some(message)) = watch.message().await {
                sender.send_modify(|received| received.take_in(message));
            }
        });
        let news = Self { received, task };
        news.until(|received| {
            received.complete && received.hub.synced && received.clusters.len() == PROFILES
        })
        .await?;
        news.take();
        Ok(news)
    }

    pub(crate) async fn until(&self, is_so: impl FnMut(&Received) -> bool) -> Result<()> {
        let mut received = self.received.subscribe();
        drop(timeout(PATIENCE, received.wait_for(is_so)).await.context("the broker did not send it")??);
        ensure!(!self.task.is_finished(), "the watch of the clusters ended");
        Ok(())
    }

    /// The changes that were received since the last call.
    pub(crate) fn take(&self) -> Vec<Note> {
        let mut seen = Vec::new();
        self.received.send_modify(|received| std::mem::swap(&mut received.seen, &mut seen));
        seen
    }
}

impl Drop for News {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Received {
    fn take_in(&mut self, message: pb::WatchClustersResponse) {
        let at = SystemTime::now();
        self.complete |= message.complete;
        self.hub = message.hub.unwrap_or_default();
        for mut state in message.changed {
            let profile = state.cluster_profile.take().unwrap_or_default().name;
            let server = state.cluster.take().unwrap_or_default().server;
            let property = state.properties.into_iter().next().unwrap_or_default().value;
            let number = number_of(&server).max(property.parse().unwrap_or_default());
            self.seen.push(Note { profile: profile.clone(), number, at });
            self.clusters.insert(profile, (server, property));
        }
        for gone in message.removed {
            self.clusters.remove(&gone.name);
        }
    }
}
