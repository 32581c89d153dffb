//! A client of wherever the broker says the cluster is.

use std::time::Duration;

use ::kube::{Client, Config};
use http::Uri;
use tokio_util::sync::CancellationToken;

use super::{BuildError, moving::Moving, stack::Recipe};
use crate::{Connections, CredentialRef, CredentialSource};

/// A client of a `ClusterProfile`, once there is a credential. It follows the credential and the endpoint for its whole
/// life; [`ClusterBuilder`] has the settings.
///
/// ```no_run
/// # async fn example() -> Result<(), tower::BoxError> {
/// use credbroker_client::{Connections, Socket, kube::for_cluster_profile};
///
/// let broker = Connections::to(Socket::at(Socket::SYSTEM));
/// let client = for_cluster_profile(&broker, "fleet", "paris").await?;
/// let version = client.apiserver_version().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As of [`ClusterBuilder::ready`].
pub async fn for_cluster_profile(
    broker: &Connections,
    namespace: &str,
    name: &str,
) -> Result<Client, BuildError> {
    ClusterBuilder::new(broker.source(CredentialRef::cluster_profile(namespace, name))).ready().await
}

/// Makes a [`Client`] from a source alone: where the cluster is comes with the credential, whoever it names.
///
/// - Server, authorities, TLS server name, proxy: those beside the current credential. When they change, new requests go
///   to the new endpoint over a stack of its own, with what came for it; what is open at the old one is ended at the
///   drain deadline.
/// - No credential goes to another endpoint than the one it came with.
/// - A request that an old endpoint answers with 401 is sent to the new one, if it has no body.
///
/// A new address need not be the same cluster. Whoever keeps what the cluster had (a reflector) lists again when
/// [`Credential::is_for_endpoint_of`](crate::Credential::is_for_endpoint_of) says that the source moved.
///
/// ```no_run
/// # async fn example(broker: credbroker_client::Connections) -> Result<(), credbroker_client::kube::BuildError> {
/// use std::time::Duration;
/// use credbroker_client::{CredentialRef, kube::ClusterBuilder};
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
    recipe: Recipe,
    source: CredentialSource,
}

impl ClusterBuilder {
    /// To wherever the source's credential is for.
    ///
    /// ```no_run
    /// # fn example(source: credbroker_client::CredentialSource) {
    /// let builder = credbroker_client::kube::ClusterBuilder::new(source);
    /// # }
    /// ```
    pub fn new(source: CredentialSource) -> Self {
        Self { recipe: Recipe::new(Config::new(Uri::from_static("https://unknown.invalid"))), source }
    }

    /// Changes what is not the endpoint: default namespace, timeouts, headers, retries, impersonation. What is the
    /// endpoint is overwritten by the credential's.
    ///
    /// ```no_run
    /// # fn example(builder: credbroker_client::kube::ClusterBuilder) {
    /// use std::time::Duration;
    ///
    /// let builder = builder.config(|config| config.connect_timeout = Some(Duration::from_secs(3)));
    /// # }
    /// ```
    #[must_use]
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.recipe.config);
        self
    }

    /// How long a connection of an old certificate, or to an old endpoint, may go on; 30 s by default.
    ///
    /// ```no_run
    /// # fn example(builder: credbroker_client::kube::ClusterBuilder) {
    /// let builder = builder.drain(std::time::Duration::from_secs(5));
    /// # }
    /// ```
    #[must_use]
    pub fn drain(mut self, limit: Duration) -> Self {
        self.recipe.drain = limit;
        self
    }

    /// Sends the token to a server without TLS, too: a proxy on the same machine.
    ///
    /// ```no_run
    /// # fn example(builder: credbroker_client::kube::ClusterBuilder) {
    /// let builder = builder.allow_plaintext(true);
    /// # }
    /// ```
    #[must_use]
    pub fn allow_plaintext(mut self, allow: bool) -> Self {
        self.recipe.plaintext = allow;
        self
    }

    /// The client, whether there is a credential or not. Needs a tokio runtime. Without a credential a request waits for
    /// one up to ten seconds; an endpoint that cannot be used is every request's error.
    ///
    /// As kube itself does, it makes aws-lc-rs the process's cryptography if nothing is yet.
    ///
    /// ```no_run
    /// # fn example(builder: credbroker_client::kube::ClusterBuilder) -> Result<(), credbroker_client::kube::BuildError> {
    /// let client: kube::Client = builder.build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError::Credentials`]: leave `auth_info` alone, but for impersonation.
    pub fn build(self) -> Result<Client, BuildError> {
        self.recipe.check()?;
        let service = Moving::new(self.source, self.recipe.clone());
        Ok(self.recipe.client(service))
    }

    /// The client, once there is a credential and its endpoint can be used.
    ///
    /// ```no_run
    /// # async fn example(builder: credbroker_client::kube::ClusterBuilder) -> Result<(), credbroker_client::kube::BuildError> {
    /// let client: kube::Client = builder.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`BuildError::NoCredential`]: the broker has none; try again.
    /// - [`BuildError::Credentials`]: leave `auth_info` alone, but for impersonation.
    /// - The others: mend the `ClusterProfile`.
    pub async fn ready(self) -> Result<Client, BuildError> {
        self.recipe.check()?;
        let credential = self.source.ready().await.map_err(BuildError::NoCredential)?;
        // Made once for its errors: the client makes its own, and later ones when the cluster moves.
        drop(self.recipe.clone().stack_to(&self.source, credential, CancellationToken::new())?);
        self.build()
    }
}
