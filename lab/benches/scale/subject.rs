//! The broker that is measured.

use std::path::Path;

use anyhow::Result;
use credbroker_lab::{
    broker::{self, Running},
    channel::channel,
    memory,
};
use credbroker_proto::{
    v1::credential_broker_client::CredentialBrokerClient,
    v1alpha1::credential_broker_admin_client::CredentialBrokerAdminClient,
};
use tonic::transport::Channel;

pub(crate) type Rpc = CredentialBrokerClient<Channel>;

/// A broker, and both of its services on one connection.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) running: Running,
    pub(crate) rpc: Rpc,
    pub(crate) admin: CredentialBrokerAdminClient<Channel>,
}

impl Subject {
    /// Starts it in a new `directory`; see [`broker::start`].
    pub(crate) async fn start(directory: &Path, plugin: &str, more: &str) -> Result<Self> {
        broker::private(directory)?;
        let running = broker::start(directory, plugin, more)?;
        let channel = channel(&running.socket).await?;
        let (rpc, admin) = (Rpc::new(channel.clone()), CredentialBrokerAdminClient::new(channel));
        Ok(Self { running, rpc, admin })
    }

    pub(crate) fn resident(&self) -> Result<u64> {
        memory::resident(self.running.child.id())
    }
}
