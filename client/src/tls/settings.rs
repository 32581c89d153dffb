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

/// How long a connection stays open after its certificate was replaced.
pub const DRAIN: Duration = Duration::from_secs(30);
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
    pub(super) drain: Drain,
    pub(super) connect: Duration,
    /// Connections that are kept without a request, for each identity.
    pub(super) idle: usize,
    /// All connections of all identities end when this is cancelled.
    pub(super) ends: CancellationToken,
}

/// How long a connection stays open after its certificate was replaced, while it is busy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Drain {
    /// That long.
    After(Duration),
    /// Until its certificate expires.
    Natural,
}

/// Why settings are not valid. `source()` says more.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct SettingsError(#[from] Problem);

#[derive(Clone, Debug, thiserror::Error)]
enum Problem {
    #[error("a certificate of the authorities' bundle cannot be used")]
    Authority(#[source] Arc<dyn Error + Send + Sync>),
    #[error("the TLS config already has a client certificate; remove it, the source provides one")]
    Identity,
    #[error("the authorities' bundle has no PEM certificate")]
    NoAuthority,
    #[error("the authorities' bundle is not valid PEM")]
    Pem(#[source] Arc<dyn Error + Send + Sync>),
    #[error("the cryptography provider lacks what TLS needs")]
    Provider(#[source] Arc<dyn Error + Send + Sync>),
    #[error("{0:?} is not a valid TLS server name; use a DNS name or an IP address")]
    ServerName(String),
}

impl Settings {
    /// Trusts the authorities of this PEM bundle. The cryptography provider is aws-lc-rs.
    ///
    /// # Errors
    ///
    /// The bundle has no certificate, or one that cannot be used: use another bundle.
    pub fn trusting(authorities: &[u8]) -> Result<Self, SettingsError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            let certificate = certificate.map_err(|error| Problem::Pem(Arc::new(error)))?;
            roots.add(certificate).map_err(|error| Problem::Authority(Arc::new(error)))?;
        }
        if roots.is_empty() {
            return Err(Problem::NoAuthority.into());
        }
        let base = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Problem::Provider(Arc::new(error)))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self::with_config(base)
    }

    /// Verifies servers as `base` does. Its ALPN protocols, client certificate and session store are replaced; the protocol
    /// is HTTP/1.1, which upgrades need. For credbroker-kube: with the next version of rustls it has another type.
    ///
    /// # Errors
    ///
    /// `base` has a client certificate; remove it.
    #[doc(hidden)]
    pub fn with_config(base: ClientConfig) -> Result<Self, SettingsError> {
        if base.client_auth_cert_resolver.has_certs() {
            return Err(Problem::Identity.into());
        }
        Ok(Self {
            base,
            server_name: None,
            drain: Drain::After(DRAIN),
            connect: CONNECT,
            idle: usize::MAX,
            ends: CancellationToken::new(),
        })
    }

    /// Checks the server's certificate against this name instead of the URI's host.
    ///
    /// # Errors
    ///
    /// It is neither a DNS name nor an address.
    pub fn server_name(mut self, name: &str) -> Result<Self, SettingsError> {
        let parsed = ServerName::try_from(name.to_owned()).ok();
        self.server_name = Some(parsed.ok_or_else(|| Problem::ServerName(name.to_owned()))?);
        Ok(self)
    }

    /// How long a connection may stay open after its certificate was replaced; 30 s by default. Zero closes it immediately, as
    /// client-go does.
    #[must_use]
    pub fn drain(mut self, limit: Duration) -> Self {
        self.drain = Drain::After(limit);
        self
    }

    /// As [`Self::drain`]; [`Drain::Natural`] lets a busy connection stay open until its certificate expires. For
    /// credbroker's proxy.
    #[doc(hidden)]
    #[must_use]
    pub fn draining(mut self, drain: Drain) -> Self {
        self.drain = drain;
        self
    }

    /// How many connections are kept without a request. For credbroker's proxy.
    #[doc(hidden)]
    #[must_use]
    pub fn keep_idle(mut self, connections: usize) -> Self {
        self.idle = connections;
        self
    }

    /// How long it may take to make a connection, TLS included; 30 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect = limit;
        self
    }

    /// Ends all connections when `ends` is cancelled. For credbroker-kube.
    #[doc(hidden)]
    #[must_use]
    pub fn until(mut self, ends: CancellationToken) -> Self {
        self.ends = ends;
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
        assert!(matches!(broken.0, Problem::Pem(_)), "{broken:?}");
        assert!(matches!(empty.0, Problem::Authority(_)), "{empty:?}");
        for error in [broken, empty] {
            let source = error.source().map(ToString::to_string);
            assert!(source.is_some_and(|source| !source.is_empty()), "{error:?}");
        }
        assert!(matches!(refused("no PEM").0, Problem::NoAuthority));
    }
}
