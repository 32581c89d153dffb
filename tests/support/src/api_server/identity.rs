//! Who a request comes from, and whether the server accepts it.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::{Accepts, State, lock};

/// The certificates that a client presented on one connection, leaf first.
#[derive(Clone, Debug, Default)]
pub(super) struct Presented(pub(super) Vec<CertificateDer<'static>>);

impl Presented {
    pub(super) fn common_name(&self) -> Option<String> {
        let (_, certificate) = x509_parser::parse_x509_certificate(self.0.first()?).ok()?;
        let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
        Some(name.to_owned())
    }
}

pub(super) fn bearer_token(headers: &HeaderMap) -> Option<String> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::to_owned)
}

impl State {
    /// Any one accepted proof is enough, as in a real API server's chain of authenticators.
    pub(super) fn knows(&self, presented: &Presented, token: Option<&str>) -> bool {
        let by_token = || token.is_some_and(|token| lock(&self.tokens).contains(token));
        let by_certificate = || {
            presented.0.split_first().is_some_and(|(leaf, chain)| {
                self.verifier.verify_client_cert(leaf, chain, UnixTime::now()).is_ok()
            })
        };
        match self.accepts {
            Accepts::Tokens => by_token(),
            Accepts::Certificates => by_certificate(),
            Accepts::Either => by_certificate() || by_token(),
        }
    }
}

/// Asks for a certificate and checks the possession of its key, but leaves the judgement to each request: a real API
/// server answers 401 where a strict verifier would cut the handshake.
#[derive(Debug)]
pub(super) struct AskOnly(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AskOnly {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
