//! A `kube::Client` that follows every rotation for its whole life: the feature `kube`.
//!
//! Its server, authorities, TLS server name, proxy, timeouts, headers and retries are those of a [`Config`]; who it is
//! comes from a [`CredentialSource`]. Watches, `exec` and `port-forward` work as ever; those that are open when a client
//! certificate changes are ended at the drain deadline, as [`tls`](crate::tls) says.
//!
//! As with kube itself, the program chooses the version of the API: it depends on `k8s-openapi` 0.29 with a feature such
//! as `latest`.
//!
//! ```no_run
//! # async fn example() -> Result<(), tower::BoxError> {
//! use credbroker_client::{CredentialRef, CredentialSource, Socket, kube::Builder};
//!
//! let source =
//!     CredentialSource::open(Socket::at(Socket::SYSTEM), CredentialRef::provider("gke")).await?;
//! let config = kube::Config::new("https://paris.example:6443".parse()?);
//! let client = Builder::new(config, source).build()?;
//! let version = client.apiserver_version().await?;
//! # Ok(())
//! # }
//! ```

mod proxy;

use std::time::Duration;

use ::kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt, retry::RetryPolicy},
    config::AuthInfo,
};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connection, proxy::SocksV5};
use rustls::crypto::{CryptoProvider, aws_lc_rs::default_provider};
use tower::{BoxError, Layer, Service, retry::RetryLayer, util::option_layer};

use self::proxy::tunnel;
use crate::{
    Authenticate, CredentialSource,
    tls::{RotatingClient, Settings, SettingsError, tcp},
};

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
    config: Config,
    source: CredentialSource,
    drain: Option<Duration>,
    plaintext: bool,
}

/// Why there is no client.
///
/// ```no_run
/// # fn example(mut config: kube::Config, source: credbroker_client::CredentialSource) {
/// use credbroker_client::kube::{BuildError, Builder};
///
/// let outcome = Builder::new(config, source).build();
/// let has_its_own = matches!(outcome, Err(BuildError::Credentials { .. }));
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The config cannot be used; see its source.
    #[error("the kube config cannot be used")]
    Config(#[source] Box<::kube::Error>),
    /// The config has credentials of its own, and nobody could say whose count. Clear them.
    #[error("the kube config has credentials of its own ({what}); clear them, the source brings its own")]
    Credentials {
        /// Which field of `auth_info`.
        what: &'static str,
    },
    /// A proxy is `http`, `https` or `socks5`.
    #[error("a proxy of scheme {scheme:?} is not known here; use http, https or socks5")]
    Proxy {
        /// What it has.
        scheme: String,
    },
    /// The TLS server name cannot be one.
    #[error("the kube config's TLS settings cannot be used")]
    Tls(#[from] SettingsError),
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
        Self { config, source, drain: None, plaintext: false }
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
        self.drain = Some(limit);
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
        self.plaintext = allow;
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
        if let Some(what) = own_credentials(&self.config.auth_info) {
            return Err(BuildError::Credentials { what });
        }
        if CryptoProvider::get_default().is_none() {
            // Somebody else may just have done it: then there is one, which is all that is wanted.
            drop(default_provider().install_default());
        }
        let Some(proxy) = self.config.proxy_url.clone() else { return self.over(tcp()) };
        match proxy.scheme_str().unwrap_or_default() {
            "http" => self.over(tunnel(proxy, tcp())),
            "https" => {
                // The name is the server's, not the proxy's.
                let mut config = self.config.clone();
                config.tls_server_name = None;
                let tls = config.rustls_https_connector_with_connector(tcp()).map_err(unusable)?;
                self.over(tunnel(proxy, tls))
            }
            "socks5" => self.over(SocksV5::new(proxy, tcp())),
            other => Err(BuildError::Proxy { scheme: other.to_owned() }),
        }
    }

    fn over<C>(self, dialer: C) -> Result<Client, BuildError>
    where
        C: Service<http::Uri> + Clone + Send + Sync + 'static,
        C::Response: hyper::rt::Read + hyper::rt::Write + Connection + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError>,
    {
        let Self { config, source, drain, plaintext } = self;
        let mut settings = Settings::with_config(config.rustls_client_config().map_err(unusable)?)?;
        if let Some(name) = &config.tls_server_name {
            settings = settings.server_name(name)?;
        }
        if let Some(limit) = config.connect_timeout {
            settings = settings.connect_timeout(limit);
        }
        if let Some(limit) = drain {
            settings = settings.drain(limit);
        }
        let mut dialer = TimeoutConnector::new(dialer);
        dialer.set_read_timeout(config.read_timeout);
        dialer.set_write_timeout(config.write_timeout);
        dialer.set_reset_reader_on_write(config.reset_reader_on_write);

        let client = RotatingClient::<Body, _>::over(dialer, source.clone(), settings);
        let client = config.extra_headers_layer().map_err(unusable)?.layer(client);
        let client = Authenticate::new(source)
            .allow_plaintext(plaintext)
            .repeat(|body: &Body| http_body::Body::is_end_stream(body).then(Body::empty))
            .layer(client);
        let retries = config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
        let client = config.base_uri_layer().layer(option_layer(retries).layer(client));
        Ok(ClientBuilder::new(client, config.default_namespace).build())
    }
}

fn unusable(error: ::kube::Error) -> BuildError {
    BuildError::Config(Box::new(error))
}

/// Impersonation is no credential: it comes on top of whoever one is.
fn own_credentials(auth: &AuthInfo) -> Option<&'static str> {
    let AuthInfo { username, password, token, token_file, auth_provider, exec, .. } = auth;
    let certificate = auth.client_certificate.is_some() || auth.client_certificate_data.is_some();
    let key = auth.client_key.is_some() || auth.client_key_data.is_some();
    [
        (username.is_some() || password.is_some(), "a user name and password"),
        (token.is_some() || token_file.is_some(), "a token"),
        (certificate || key, "a client certificate"),
        (auth_provider.is_some(), "an auth provider"),
        (exec.is_some(), "an exec plugin"),
    ]
    .into_iter()
    .find_map(|(is_set, what)| is_set.then_some(what))
}
