//! A client of the cluster that the broker names.

use std::time::Duration;

use credbroker_client::{Broker, CredentialRef, CredentialSource, tls::Drain};
use http::Uri;
use kube::{Client, Config, client::Body};
use tokio_util::sync::CancellationToken;

use crate::{
    builder::Builder,
    error::BuildError,
    router::{EndpointRouter, stack_for},
    stack::StackConfig,
};

/// Waits for the credential of a `ClusterProfile`, and makes a client that follows the credential and the endpoint. It waits
/// as long as [`Broker::timeout`] says. [`ClusterBuilder`] has settings.
///
/// # Errors
///
/// As of [`ClusterBuilder::ready`].
pub async fn for_cluster_profile(broker: &Broker, namespace: &str, name: &str) -> Result<Client, BuildError> {
    ClusterBuilder::new(broker.source(CredentialRef::cluster_profile(namespace, name))).ready().await
}

/// Waits for the credential of a provider, and makes a client of the server of `config`. It waits as long as
/// [`Broker::timeout`] says. [`Builder`] has settings.
///
/// # Errors
///
/// - [`BuildError::NoCredential`]: the broker has none, and [`BuildError::reason`] says why.
/// - The others: as of [`Builder::build`].
pub async fn for_provider(broker: &Broker, name: &str, config: Config) -> Result<Client, BuildError> {
    let source = broker.source(CredentialRef::provider(name));
    source.ready().await.map_err(BuildError::NoCredential)?;
    Builder::new(config, source).build()
}

/// Makes a [`Client`] from a source. The cluster is the one that comes with the credential.
///
/// - Server, authorities, TLS server name and proxy are those of the current credential. When they change, new requests go
///   to the new endpoint over separate connections, and open requests to the old one end at the drain deadline.
/// - A credential is never sent to another endpoint than the one that it came with.
/// - A request without a body that the old endpoint answers with 401 is sent to the new one.
///
/// A new address may be another cluster. A program that caches objects of the cluster (a reflector) lists them again when
/// [`has_same_endpoint`](credbroker_client::Credential::has_same_endpoint) says that the source moved.
///
/// ```no_run
/// # async fn example(broker: credbroker_client::Broker) -> Result<(), credbroker_kube::BuildError> {
/// use std::time::Duration;
/// use credbroker_client::CredentialRef;
/// use credbroker_kube::ClusterBuilder;
///
/// let source = broker.source(CredentialRef::cluster_profile("fleet", "paris"));
/// let client = ClusterBuilder::new(source)
///     .config(|config| config.default_namespace = "apps".into())
///     .drain(Duration::from_secs(5))
///     .ready()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ClusterBuilder {
    stack: StackConfig,
    source: CredentialSource,
}

impl ClusterBuilder {
    /// Sends requests to the cluster that comes with the credentials of `source`.
    pub fn new(source: CredentialSource) -> Self {
        Self { stack: StackConfig::new(Config::new(Uri::from_static("https://unknown.invalid"))), source }
    }

    /// Changes settings other than the endpoint: default namespace, timeouts, headers, retries, impersonation. The endpoint
    /// of the credential replaces that of the config.
    #[must_use]
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.stack.config);
        self
    }

    /// How long a connection may stay open after its certificate or its endpoint was replaced; 30 s by default.
    #[must_use]
    pub fn drain(mut self, limit: Duration) -> Self {
        self.stack.drain = Drain::After(limit);
        self
    }

    /// Sends the token without TLS too: for a proxy on the same machine.
    #[must_use]
    pub fn allow_plaintext(mut self, allow: bool) -> Self {
        self.stack.plaintext = allow;
        self
    }

    /// The client, even if there is no credential yet. Needs a tokio runtime. Without a credential a request waits for one up
    /// to ten seconds. If the endpoint cannot be used, every request fails.
    ///
    /// As kube itself does, this installs aws-lc-rs as the cryptography provider of the process if there is none.
    ///
    /// # Errors
    ///
    /// [`BuildError::Credentials`]: leave `auth_info` empty, except for impersonation.
    pub fn build(self) -> Result<Client, BuildError> {
        self.stack.check()?;
        let service = EndpointRouter::<Body>::new(self.source, self.stack.clone());
        Ok(self.stack.client(service))
    }

    /// Waits for a credential, checks its endpoint, and makes the client.
    ///
    /// # Errors
    ///
    /// - [`BuildError::NoCredential`]: the broker has none, and [`BuildError::reason`] says why.
    /// - [`BuildError::Credentials`]: leave `auth_info` empty, except for impersonation.
    /// - The others: correct the `ClusterProfile`.
    pub async fn ready(self) -> Result<Client, BuildError> {
        self.stack.check()?;
        let credential = self.source.ready().await.map_err(BuildError::NoCredential)?;
        // Only for its errors: the client builds its own stack, and another one when the cluster moves.
        drop(stack_for::<Body>(self.stack.clone(), &self.source, credential, CancellationToken::new())?);
        self.build()
    }
}
