//! The settings of TLS connections, without the identity.

use std::{error::Error, sync::Arc, time::Duration};

use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::{CryptoProvider, aws_lc_rs::default_provider},
    pki_types::{CertificateDer, ServerName, pem::PemObject},
    sign::SingleCertAndKey,
};
use tokio_util::sync::CancellationToken;

use super::identity::Identity;

pub(crate) const DRAIN: Duration = Duration::from_secs(30);
/// The dial timeout of client-go. Here it includes the handshake.
const CONNECT: Duration = Duration::from_secs(30);
const SESSIONS: usize = 64;

/// The trusted authorities and the time limits of connections.
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
    pub(super) server_name: Option<ServerName<'static>>,
    pub(super) drain: Duration,
    pub(super) connect: Duration,
    /// All connections of all identities end when this is cancelled.
    pub(crate) ends: CancellationToken,
}

/// Why settings are not valid.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A certificate of the bundle is not valid.
    #[error("a certificate of the authorities' bundle cannot be used")]
    Authority {
        /// The problem of the certificate.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The TLS config has a client certificate, which the source would replace. Remove it.
    #[error("the TLS config already has a client certificate; remove it, the source provides one")]
    Identity,
    /// The bundle has no certificate.
    #[error("the authorities' bundle has no PEM certificate")]
    NoAuthority,
    /// The bundle is not PEM.
    #[error("the authorities' bundle is not valid PEM")]
    Pem {
        /// The problem of the text.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The provider cannot do TLS 1.2 or 1.3.
    #[error("the cryptography provider lacks what TLS needs")]
    Provider {
        /// What it lacks.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The name is neither a DNS name nor an IP address.
    #[error("{name:?} is not a valid TLS server name; use a DNS name or an IP address")]
    ServerName {
        /// The name.
        name: String,
    },
}

impl SettingsError {
    pub(crate) fn pem(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Pem { source: Arc::new(error) }
    }
}

impl Settings {
    /// Trusts the authorities of this PEM bundle. The cryptography provider is aws-lc-rs.
    ///
    /// # Errors
    ///
    /// [`SettingsError::NoAuthority`], [`SettingsError::Pem`], [`SettingsError::Authority`]: use another bundle.
    pub fn trusting(authorities: &[u8]) -> Result<Self, SettingsError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            let certificate = certificate.map_err(SettingsError::pem)?;
            roots.add(certificate).map_err(|error| SettingsError::Authority { source: Arc::new(error) })?;
        }
        if roots.is_empty() {
            return Err(SettingsError::NoAuthority);
        }
        let base = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| SettingsError::Provider { source: Arc::new(error) })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self::with_config(base)
    }

    /// Verifies servers as `base` does. Its ALPN protocols, client certificate and session store are replaced; the protocol
    /// is HTTP/1.1, which upgrades need.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Identity`]: `base` has a client certificate; remove it.
    pub fn with_config(base: ClientConfig) -> Result<Self, SettingsError> {
        if base.client_auth_cert_resolver.has_certs() {
            return Err(SettingsError::Identity);
        }
        Ok(Self { base, server_name: None, drain: DRAIN, connect: CONNECT, ends: CancellationToken::new() })
    }

    /// Checks the server's certificate against this name instead of the URI's host.
    ///
    /// # Errors
    ///
    /// [`SettingsError::ServerName`]: it is neither a DNS name nor an address.
    pub fn server_name(mut self, name: &str) -> Result<Self, SettingsError> {
        let parsed = ServerName::try_from(name.to_owned()).ok();
        self.server_name = Some(parsed.ok_or_else(|| SettingsError::ServerName { name: name.to_owned() })?);
        Ok(self)
    }

    /// How long a connection may stay open after its certificate was replaced; 30 s by default. Zero closes it at once, as
    /// client-go does.
    #[must_use]
    pub fn drain(mut self, limit: Duration) -> Self {
        self.drain = limit;
        self
    }

    /// How long it may take to make a connection, TLS included; 30 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect = limit;
        self
    }

    pub(super) fn provider(&self) -> &CryptoProvider {
        self.base.crypto_provider()
    }

    /// A config that no other identity uses, so that a session of one identity is never resumed by another.
    pub(super) fn config_for(&self, identity: Option<&Identity>) -> Arc<ClientConfig> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_bundle_is_refused_with_its_cause() {
        let pem =
            |content: &str| format!("-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n");
        let refused = |bundle: &str| Settings::trusting(bundle.as_bytes()).unwrap_err();
        let (broken, empty) = (refused(&pem("!")), refused(&pem("AA==")));
        assert!(matches!(broken, SettingsError::Pem { .. }), "{broken:?}");
        assert!(matches!(empty, SettingsError::Authority { .. }), "{empty:?}");
        for error in [broken, empty] {
            let source = error.source().map(ToString::to_string);
            assert!(source.is_some_and(|source| !source.is_empty()), "{error:?}");
        }
        assert!(matches!(refused("no PEM"), SettingsError::NoAuthority));
    }
}
