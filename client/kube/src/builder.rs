//! A client of the server that a config names.

use std::time::Duration;

use credbroker_client::{CredentialSource, tls::Drain};
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;

use crate::{error::BuildError, stack::StackConfig};

/// Makes a [`Client`] from a config and a source.
///
/// A credential that comes with a cluster is sent only if that is the server of the config; see
/// [`Authenticate`](credbroker_client::Authenticate).
///
/// ```no_run
/// # fn example(config: kube::Config, source: credbroker_client::CredentialSource) -> Result<(), credbroker_kube::BuildError> {
/// use std::time::Duration;
/// use credbroker_kube::Builder;
///
/// let client = Builder::new(config, source).drain(Duration::from_secs(5)).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Builder {
    stack: StackConfig,
    source: CredentialSource,
}

impl Builder {
    /// Sends requests to the server of `config`, with the credentials of `source`.
    pub fn new(config: Config, source: CredentialSource) -> Self {
        Self { stack: StackConfig::new(config), source }
    }

    /// How long a connection may stay open after its certificate was replaced; 30 s by default.
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

    /// Sends credentials to the server of the config even if the broker names another cluster for them: for a tunnel, or for
    /// another address of the cluster.
    #[must_use]
    pub fn any_host(mut self) -> Self {
        self.stack.any_host = true;
        self
    }

    /// The client. It does not connect yet. Needs a tokio runtime.
    ///
    /// As kube itself does, this installs aws-lc-rs as the cryptography provider of the process if there is none.
    ///
    /// # Errors
    ///
    /// - [`BuildError::Credentials`]: clear `config.auth_info`, except for impersonation.
    /// - The others: correct the config.
    pub fn build(self) -> Result<Client, BuildError> {
        self.stack.check()?;
        let Self { stack, source } = self;
        let service = stack.clone().build(source, CancellationToken::new())?;
        Ok(stack.client(service))
    }
}
