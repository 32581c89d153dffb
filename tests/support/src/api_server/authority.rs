//! The server's certificate authority: its own certificate, and those of clients.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub(super) provider: Arc<CryptoProvider>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = params("credbroker test CA", Duration::from_secs(86_400));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a CA certificate");
        Self { issuer, provider: Arc::new(default_provider()) }
    }

    pub(super) fn ca_pem(&self) -> String {
        self.issuer.pem()
    }

    pub(super) fn issue_client_certificate(
        &self,
        common_name: &str,
        valid_for: Duration,
    ) -> (String, String) {
        let mut params = params(common_name, valid_for);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a client certificate");
        (certificate.pem(), key.serialize_pem())
    }

    pub(super) fn issue_server_certificate(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = params("credbroker test API server", Duration::from_secs(86_400));
        params.subject_alt_names = ["127.0.0.1", "localhost"]
            .into_iter()
            .flat_map(|name| CertificateParams::new([name.to_owned()]).expect("a name").subject_alt_names)
            .collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a server certificate");
        (certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }

    /// Judges a client certificate at the time of each request.
    pub(super) fn client_verifier(&self) -> Arc<dyn ClientCertVerifier> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("our own CA certificate");
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .expect("one root is enough")
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// Valid from a minute ago, so that a clock that is read twice never makes a certificate of the future.
fn params(common_name: &str, valid_for: Duration) -> CertificateParams {
    let now = date_time_ymd(1970, 1, 1) + Duration::from_secs(UnixTime::now().as_secs());
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = now - Duration::from_secs(60);
    params.not_after = now + valid_for;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params
}
