//! How connections are made, but for the identity.

use std::{sync::Arc, time::Duration};

use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::{CryptoProvider, aws_lc_rs::default_provider},
    pki_types::{CertificateDer, InvalidDnsNameError, ServerName, pem, pem::PemObject},
    sign::SingleCertAndKey,
};
use tokio_util::sync::CancellationToken;

use super::identity::Identity;

pub(crate) const DRAIN: Duration = Duration::from_secs(30);
/// As client-go's dialer has it; the handshake is included here.
const CONNECT: Duration = Duration::from_secs(30);
const SESSIONS: usize = 64;

/// Whom to trust, and how long to wait for what.
///
/// ```no_run
/// # fn example(ca: &[u8]) -> Result<(), credbroker_client::tls::SettingsError> {
/// use std::time::Duration;
/// use credbroker_client::tls::Settings;
///
/// let settings = Settings::trusting(ca)?.server_name("paris.internal")?.drain(Duration::from_secs(5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    base: ClientConfig,
    pub(crate) server_name: Option<ServerName<'static>>,
    pub(crate) drain: Duration,
    pub(crate) connect: Duration,
    /// All connections end with this, whoever they are of.
    pub(crate) ends: CancellationToken,
}

/// Why settings cannot be.
///
/// ```
/// use credbroker_client::tls::{Settings, SettingsError};
///
/// assert!(matches!(Settings::trusting(b"no PEM"), Err(SettingsError::NoAuthority)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A certificate of the bundle is none.
    #[error("a certificate of the authorities' bundle cannot be used")]
    Authority(#[source] rustls::Error),
    /// The config presents a certificate of its own, and the source would replace it. Leave one of them out.
    #[error("the TLS config has a client certificate of its own; leave it out, the source brings one")]
    Identity,
    /// There is no certificate in the bundle.
    #[error("there is no PEM certificate in the authorities' bundle")]
    NoAuthority,
    /// The bundle is no PEM.
    #[error("the authorities' bundle is no valid PEM")]
    Pem(#[source] pem::Error),
    /// The provider cannot do TLS 1.2 or 1.3.
    #[error("the cryptography provider lacks what TLS needs")]
    Provider(#[source] rustls::Error),
    /// Neither a DNS name nor an address.
    #[error("{name:?} is no TLS server name; write a DNS name or an IP address")]
    ServerName {
        /// What was given.
        name: String,
        /// What is wrong with it.
        source: InvalidDnsNameError,
    },
}

impl Settings {
    /// Trusts the authorities of this PEM bundle, with rustls on aws-lc-rs.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), tower::BoxError> {
    /// use credbroker_client::tls::Settings;
    ///
    /// let settings = Settings::trusting(&std::fs::read("/etc/kubernetes/ca.crt")?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SettingsError::NoAuthority`], [`SettingsError::Pem`], [`SettingsError::Authority`]: give another bundle.
    pub fn trusting(authorities: &[u8]) -> Result<Self, SettingsError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            roots.add(certificate.map_err(SettingsError::Pem)?).map_err(SettingsError::Authority)?;
        }
        if roots.is_empty() {
            return Err(SettingsError::NoAuthority);
        }
        let base = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(SettingsError::Provider)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self::with_config(base)
    }

    /// Verifies servers as `base` does. Its ALPN, client certificate and session store are replaced: the protocol is
    /// HTTP/1.1, as upgrades need it.
    ///
    /// ```no_run
    /// # fn example(config: rustls::ClientConfig) -> Result<(), credbroker_client::tls::SettingsError> {
    /// let settings = credbroker_client::tls::Settings::with_config(config)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SettingsError::Identity`]: `base` has a client certificate of its own; leave it out.
    pub fn with_config(base: ClientConfig) -> Result<Self, SettingsError> {
        if base.client_auth_cert_resolver.has_certs() {
            return Err(SettingsError::Identity);
        }
        Ok(Self { base, server_name: None, drain: DRAIN, connect: CONNECT, ends: CancellationToken::new() })
    }

    /// Checks the server's certificate against this name instead of the URI's host.
    ///
    /// ```no_run
    /// # fn example(settings: credbroker_client::tls::Settings) -> Result<(), credbroker_client::tls::SettingsError> {
    /// let settings = settings.server_name("kubernetes.default.svc")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SettingsError::ServerName`]: it is neither a DNS name nor an address.
    pub fn server_name(mut self, name: &str) -> Result<Self, SettingsError> {
        let parsed = ServerName::try_from(name.to_owned());
        let name = || name.to_owned();
        self.server_name = Some(parsed.map_err(|source| SettingsError::ServerName { name: name(), source })?);
        Ok(self)
    }

    /// How long a connection of an old certificate may go on with what it is doing; 30 s by default. Zero cuts it at
    /// once, as client-go does.
    ///
    /// ```no_run
    /// # fn example(settings: credbroker_client::tls::Settings) {
    /// let settings = settings.drain(std::time::Duration::from_secs(5));
    /// # }
    /// ```
    #[must_use]
    pub fn drain(mut self, limit: Duration) -> Self {
        self.drain = limit;
        self
    }

    /// How long a connection may take to be made, TLS included; 30 s by default.
    ///
    /// ```no_run
    /// # fn example(settings: credbroker_client::tls::Settings) {
    /// let settings = settings.connect_timeout(std::time::Duration::from_secs(5));
    /// # }
    /// ```
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect = limit;
        self
    }

    pub(crate) fn provider(&self) -> &CryptoProvider {
        self.base.crypto_provider()
    }

    /// A config of nobody else's: a session that one identity began cannot be resumed by another.
    pub(crate) fn config_for(&self, identity: Option<&Identity>) -> Arc<ClientConfig> {
        let mut config = self.base.clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        if let Some(identity) = identity {
            let resolver = SingleCertAndKey::from(Arc::clone(&identity.certified));
            config.client_auth_cert_resolver = Arc::new(resolver);
        }
        Arc::new(config)
    }
}
