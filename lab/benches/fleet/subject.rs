//! The broker that is measured.

use std::{path::Path, time::Duration};

use anyhow::Result;
use credbroker_lab::{
    broker::{self, Running},
    channel::channel,
    hub::{EMPTY, Hub, NAMESPACE, PROVIDER, name},
    memory,
};
use credbroker_proto::v1::{
    self as pb, credential_broker_client::CredentialBrokerClient, credential_ref::Source,
};
use tokio::time::sleep;
use tonic::transport::Channel;

use crate::processor;

/// As cheap as a process can be, with another token at each run.
const PLUGIN: &str = r#"#!/bin/sh
echo run >> "${0%/*}/runs"
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%01200d"}}\n' $$
"#;

pub(crate) type Rpc = CredentialBrokerClient<Channel>;

/// A broker that reads the hub.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) running: Running,
    pub(crate) rpc: Rpc,
}

impl Subject {
    /// Starts it in a new `directory`; it reads this namespace of the hub.
    pub(crate) async fn start(directory: &Path, hub: &Hub, namespace: &str) -> Result<Self> {
        broker::private(directory)?;
        let exec = format!(
            "{{apiVersion: client.authentication.k8s.io/v1, command: {}, interactiveMode: Never, provideClusterInfo: true}}",
            directory.join("plugin").display()
        );
        let kubeconfig = hub.kubeconfig.display();
        let more = format!(
            "- name: {PROVIDER}\n  execConfig: {exec}\n  profileSourcedEnvVarsPolicy: AppendIfNotExists\n  \
             profileEnv: [CLUSTER_ID]\n\
             clusterProfiles: {{kubeconfig: {kubeconfig}, namespaces: [{namespace}]}}\n"
        );
        let running = broker::start(directory, PLUGIN, &more)?;
        let rpc = Rpc::new(channel(&running.socket).await?).max_decoding_message_size(8 << 20);
        Ok(Self { running, rpc })
    }

    /// Waits until it has read all profiles, without a watch.
    pub(crate) async fn until_synced(&self) -> Result<()> {
        let request = pb::ListClustersRequest { namespace: Some(EMPTY.to_owned()), ..Default::default() };
        while !self
            .rpc
            .clone()
            .list_clusters(request.clone())
            .await?
            .into_inner()
            .hub
            .unwrap_or_default()
            .synced
        {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    pub(crate) fn resident(&self) -> Result<u64> {
        memory::resident(self.running.child.id())
    }

    pub(crate) fn processor_time(&self) -> Result<Duration> {
        processor::used(self.running.child.id())
    }
}

/// Names the credential of a profile.
pub(crate) fn reference(index: usize) -> pb::CredentialRef {
    let profile = pb::ClusterProfileRef { namespace: NAMESPACE.to_owned(), name: name(index) };
    pb::CredentialRef { source: Some(Source::ClusterProfile(profile)), ..pb::CredentialRef::default() }
}
