//! The authority and the certificate of the loopback port.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use credbroker_observe::clock::Clock;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::{
    RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tracing::warn;
use zeroize::Zeroizing;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// A certificate, and its age at which a new one takes its place.
const LEAF: Duration = DAY.saturating_mul(30);
const RENEWED: Duration = DAY.saturating_mul(15);
/// A clock may be stepped back.
const EARLIER: Duration = DAY;
/// A time at which a certificate is tried, in seconds since 1970.
const TRIED: u64 = 2_000_000_000;

/// Why there is no authority or no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// It cannot be made, or read.
    #[error("the certificate is not valid")]
    Certificate(#[from] rcgen::Error),
    /// The certificate is of another authority.
    #[error("the key does not belong to the certificate")]
    Foreign(#[source] rustls::Error),
    /// TLS cannot use it.
    #[error("TLS cannot use the key")]
    Tls(#[from] rustls::Error),
    /// It is not PEM.
    #[error("it is not PEM")]
    Pem,
}

/// The certificate authority of one proxy, which signs nothing but the certificate of its loopback port.
pub(crate) struct Authority(Issuer<'static, KeyPair>);

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// A new key, as PEM.
    pub(crate) fn new_key() -> Result<Zeroizing<Vec<u8>>, AuthorityError> {
        Ok(Zeroizing::new(KeyPair::generate()?.serialize_pem().into_bytes()))
    }

    /// The certificate of the authority with this key, as PEM.
    pub(crate) fn certificate(key: &[u8]) -> Result<Vec<u8>, AuthorityError> {
        Ok(authority().self_signed(&key_pair(key)?)?.pem().into_bytes())
    }

    /// The authority with this key and this certificate.
    pub(crate) fn open(key: &[u8], certificate: &[u8]) -> Result<Self, AuthorityError> {
        let certificate =
            CertificateDer::from_pem_slice(certificate).map_err(|_not_pem| AuthorityError::Pem)?;
        let authority = Self(Issuer::new(authority(), key_pair(key)?));
        authority.check(certificate)?;
        Ok(authority)
    }

    /// Whether clients that trust `certificate` trust what the key signs.
    fn check(&self, certificate: CertificateDer<'static>) -> Result<(), AuthorityError> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate).map_err(AuthorityError::Foreign)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build();
        let verifier = verifier.map_err(|_no_roots| AuthorityError::Pem)?;
        let tried = Duration::from_secs(TRIED);
        let leaf = self.leaf(UNIX_EPOCH + tried)?;
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let now = UnixTime::since_unix_epoch(tried);
        let result = verifier.verify_server_cert(leaf.end_entity_cert()?, &[], &name, &[], now);
        result.map(drop).map_err(AuthorityError::Foreign)
    }

    /// A certificate for the loopback port, with its own key, which no file has.
    fn leaf(&self, now: SystemTime) -> Result<CertifiedKey, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "credbroker proxy");
        params.subject_alt_names = vec![
            SanType::IpAddress(Ipv4Addr::LOCALHOST.into()),
            SanType::IpAddress(Ipv6Addr::LOCALHOST.into()),
            SanType::DnsName("localhost".try_into()?),
        ];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // Python checks that it is there.
        params.use_authority_key_identifier_extension = true;
        let (epoch, since) = (date_time_ymd(1970, 1, 1), now.duration_since(UNIX_EPOCH).unwrap_or_default());
        (params.not_before, params.not_after) = (epoch + since.saturating_sub(EARLIER), epoch + since + LEAF);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|_not_der| AuthorityError::Pem)?;
        let key = aws_lc_rs::sign::any_supported_type(&key)?;
        Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
    }
}

/// The same for each key, so that the certificate need not be read to sign. A machine may start with any time, and the
/// authority ends with it.
fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "credbroker proxy authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (params.not_before, params.not_after) = (date_time_ymd(1970, 1, 1), date_time_ymd(2100, 1, 1));
    params
}

fn key_pair(pem: &[u8]) -> Result<KeyPair, AuthorityError> {
    let pem = str::from_utf8(pem).map_err(|_not_text| AuthorityError::Pem)?;
    Ok(KeyPair::from_pem(pem)?)
}

/// The certificate of the loopback port: a new one at half of its lifetime, without a task.
#[derive(Debug)]
pub(crate) struct Leaf {
    authority: Authority,
    clock: Arc<dyn Clock>,
    current: Mutex<(Arc<CertifiedKey>, SystemTime)>,
}

impl Leaf {
    /// A certificate of `authority`.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub(crate) fn new(authority: Authority, clock: Arc<dyn Clock>) -> Result<Self, AuthorityError> {
        let now = clock.now().wall;
        let current = Mutex::new((Arc::new(authority.leaf(now)?), now));
        Ok(Self { authority, clock, current })
    }

    fn current(&self) -> Arc<CertifiedKey> {
        let now = self.clock.now().wall;
        // A pair that is replaced as a whole is always usable.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was stepped back too.
        if now.duration_since(current.1).map_or(true, |age| age >= RENEWED) {
            match self.authority.leaf(now) {
                Ok(leaf) => *current = (Arc::new(leaf), now),
                Err(error) => warn!(error = &error as &dyn std::error::Error, "no new certificate"),
            }
        }
        Arc::clone(&current.0)
    }
}

impl ResolvesServerCert for Leaf {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

/// TLS 1.2 or newer, with HTTP/2 and HTTP/1.1.
///
/// # Errors
///
/// The build has no such TLS.
pub(crate) fn server_config(leaf: Leaf) -> Result<ServerConfig, AuthorityError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(leaf));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests;
