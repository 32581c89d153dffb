//! A client of a config's server.

use std::time::Duration;

use ::kube::{Client, Config};
use tokio_util::sync::CancellationToken;

use super::{BuildError, stack::Recipe};
use crate::CredentialSource;

/// Makes a [`Client`] from a config and a source.
///
/// ```no_run
/// # fn example(config: kube::Config, source: credbroker_client::CredentialSource) -> Result<(), credbroker_client::kube::BuildError> {
/// use std::time::Duration;
/// use credbroker_client::kube::Builder;
///
/// let client = Builder::new(config, source).drain(Duration::from_secs(5)).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Builder {
    recipe: Recipe,
    source: CredentialSource,
}

impl Builder {
    /// To the server of `config`, in the name of `source`.
    ///
    /// ```no_run
    /// # fn example(config: kube::Config, source: credbroker_client::CredentialSource) {
    /// let builder = credbroker_client::kube::Builder::new(config, source);
    /// # }
    /// ```
    pub fn new(config: Config, source: CredentialSource) -> Self {
        Self { recipe: Recipe::new(config), source }
    }

    /// How long a connection of an old certificate may go on; 30 s by default. A program with long watches may want
    /// more, one that rotates because of a theft less.
    ///
    /// ```no_run
    /// # fn example(builder: credbroker_client::kube::Builder) {
    /// let builder = builder.drain(std::time::Duration::ZERO);
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
    /// # fn example(builder: credbroker_client::kube::Builder) {
    /// let builder = builder.allow_plaintext(true);
    /// # }
    /// ```
    #[must_use]
    pub fn allow_plaintext(mut self, allow: bool) -> Self {
        self.recipe.plaintext = allow;
        self
    }

    /// The client. Connects to nobody yet; needs a tokio runtime.
    ///
    /// As kube itself does, it makes aws-lc-rs the process's cryptography if nothing is yet.
    ///
    /// ```no_run
    /// # fn example(builder: credbroker_client::kube::Builder) -> Result<(), credbroker_client::kube::BuildError> {
    /// let client: kube::Client = builder.build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`BuildError::Credentials`]: clear `config.auth_info`, but for impersonation.
    /// - The others: mend the config.
    pub fn build(self) -> Result<Client, BuildError> {
        self.recipe.check()?;
        let Self { recipe, source } = self;
        let stack = recipe.clone().stack(source, CancellationToken::new())?;
        Ok(recipe.client(stack))
    }
}
