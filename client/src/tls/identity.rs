//! From a pair in PEM to what rustls presents.

use std::{fmt, sync::Arc};

use rustls::{
    Error, InconsistentKeys,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer,
        pem::{PemObject, SectionKind},
    },
    sign::{CertifiedKey, SigningKey},
};
use secrecy::{ExposeSecret, SecretSlice};

use crate::TlsIdentity;

/// Why a certificate and its key cannot be presented. A person has to look at what the plugin prints.
///
/// ```no_run
/// # fn example(error: &credbroker_client::tls::SendError) {
/// use credbroker_client::tls::{IdentityError, SendError};
///
/// let expects_another_key = matches!(error, SendError::Identity(IdentityError::Mismatch));
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Neither PKCS#8 nor PKCS#1 nor SEC1, or of an algorithm that the provider lacks.
    #[error("the client key is of no kind that is known here; use PKCS#8, PKCS#1 or SEC1, not encrypted")]
    Key,
    /// The certificate is another key's.
    #[error("the client key is not the certificate's; see what the plugin prints")]
    Mismatch,
    /// There is no certificate in its PEM.
    #[error("the client certificate is no PEM certificate; see what the plugin prints")]
    NoCertificate,
    /// There is no private key in its PEM.
    #[error("the client key is no PEM private key; see what the plugin prints")]
    NoKey,
}

/// Equal if the certificates are, byte for byte of their DER, and the keys; their PEM texts may differ.
pub(crate) struct Identity {
    pub(crate) certified: Arc<CertifiedKey>,
    public_key: Option<SubjectPublicKeyInfoDer<'static>>,
    key: SecretSlice<u8>,
}

impl Identity {
    pub(crate) fn parse(identity: &TlsIdentity, provider: &CryptoProvider) -> Result<Self, IdentityError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(identity.chain_pem())
            .collect::<Result<_, _>>()
            .ok()
            .filter(|chain: &Vec<_>| !chain.is_empty())
            .ok_or(IdentityError::NoCertificate)?;
        let key = private_key(identity.key_pem().expose_secret()).ok_or(IdentityError::NoKey)?;
        let signing = load(key.expose_secret(), provider).ok_or(IdentityError::Key)?;
        let public_key = signing.public_key().map(SubjectPublicKeyInfoDer::into_owned);
        let certified = CertifiedKey::new(chain, signing);
        // What cannot be judged may be right; only what is proven wrong is refused.
        if matches!(certified.keys_match(), Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch))) {
            return Err(IdentityError::Mismatch);
        }
        Ok(Self { certified: Arc::new(certified), public_key, key })
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        let same_key = match (&self.public_key, &other.public_key) {
            // One key has many encodings.
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.key.expose_secret() == other.key.expose_secret(),
        };
        same_key && self.certified.cert == other.certified.cert
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificates", &self.certified.cert.len()).finish_non_exhaustive()
    }
}

fn private_key(pem: &[u8]) -> Option<SecretSlice<u8>> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).map_while(Result::ok).find_map(|(kind, der)| {
        let der = SecretSlice::from(der);
        matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
            .then_some(der)
    })
}

/// Whatever its label says: plugins get it wrong, and Go does not mind.
fn load(der: &[u8], provider: &CryptoProvider) -> Option<Arc<dyn SigningKey>> {
    let formats: [fn(Vec<u8>) -> PrivateKeyDer<'static>; 3] = [
        |der| PrivateKeyDer::Pkcs8(der.into()),
        |der| PrivateKeyDer::Sec1(der.into()),
        |der| PrivateKeyDer::Pkcs1(der.into()),
    ];
    formats.iter().find_map(|format| provider.key_provider.load_private_key(format(der.to_vec())).ok())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use credbroker_proto::v1;
    use credbroker_test_support::{Accepts, ApiServer};
    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;
    use crate::{Credential, clock::tests::paused};

    fn parse(chain: &str, key: &str) -> Result<Identity, IdentityError> {
        let received = v1::Credential {
            client_certificate_data: chain.to_owned().into(),
            client_key_data: key.to_owned().into(),
            ..v1::Credential::default()
        };
        let credential = Credential::receive(received, None, paused()).unwrap();
        Identity::parse(credential.identity().unwrap(), &default_provider())
    }

    #[tokio::test]
    async fn identities_are_compared_by_what_the_pem_says() {
        let server = ApiServer::start(Accepts::Certificates);
        let (chain, key) = server.issue_client_certificate("dev", Duration::from_secs(60));
        let (other_chain, other_key) = server.issue_client_certificate("dev", Duration::from_secs(60));
        let identity = parse(&chain, &key).unwrap();
        let commented = format!("a comment\n{}\n", chain.replace('\n', "\r\n"));
        let mislabelled = key.replace("PRIVATE KEY", "EC PRIVATE KEY");
        assert_eq!(identity, parse(&commented, &mislabelled).unwrap());
        assert_ne!(identity, parse(&other_chain, &other_key).unwrap());
        assert_ne!(identity, parse(&format!("{chain}{other_chain}"), &key).unwrap(), "another chain");
    }

    #[tokio::test]
    async fn a_pair_that_cannot_be_presented_is_refused_by_what_is_wrong() {
        let server = ApiServer::start(Accepts::Certificates);
        let (chain, key) = server.issue_client_certificate("dev", Duration::from_secs(60));
        let (_, other) = server.issue_client_certificate("dev", Duration::from_secs(60));
        let odd = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for (chain, key, expected) in [
            (chain.as_str(), other.as_str(), IdentityError::Mismatch),
            (chain.as_str(), chain.as_str(), IdentityError::NoKey),
            (chain.as_str(), odd, IdentityError::Key),
            (key.as_str(), key.as_str(), IdentityError::NoCertificate),
        ] {
            assert_eq!(parse(chain, key).unwrap_err(), expected);
        }
    }
}
