//! Who a request comes from, and whether the server accepts it.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use rustls::pki_types::{CertificateDer, UnixTime};

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
