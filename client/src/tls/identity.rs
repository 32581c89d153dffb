//! From a pair in PEM to what rustls presents.

use std::{fmt, sync::Arc};

use rustls::{
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer},
    sign::{CertifiedKey, SigningKey},
};
use secrecy::{ExposeSecret, SecretSlice};

use super::pem;
use crate::credential::TlsIdentity;

/// Why a certificate and its key cannot be presented. A user has to check what the plugin prints.
///
/// The broker has checked that the key belongs to the certificate. This library does not check it again.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum IdentityError {
    /// The cryptography provider of rustls cannot sign with the key: its algorithm is for example RSASSA-PSS, Ed448 or a
    /// Brainpool curve, or it is too short.
    #[error(
        "rustls cannot sign with the client key; have the plugin issue an RSA key of 2048 bits or more, an ECDSA key on P-256, P-384 or P-521, or an Ed25519 key"
    )]
    Key,
    /// The PEM text of the certificate has no certificate.
    #[error("the client certificate has no PEM block labeled CERTIFICATE; check what the plugin prints")]
    NoCertificate,
    /// The PEM text of the key has no private key.
    #[error("the client key has no PEM block labeled PRIVATE KEY; check what the plugin prints")]
    NoKey,
}

/// Identities are equal if the DER of the certificates and the keys are. Their PEM texts may differ.
pub(super) struct Identity {
    pub(super) certified: Arc<CertifiedKey>,
    public_key: Option<SubjectPublicKeyInfoDer<'static>>,
    key: SecretSlice<u8>,
}

impl Identity {
    pub(super) fn parse(identity: &TlsIdentity, provider: &CryptoProvider) -> Result<Self, IdentityError> {
        let chain = pem::blocks(identity.chain_pem(), pem::is_certificate);
        let chain: Vec<_> = chain.map(|der| CertificateDer::from(der.expose_secret().to_vec())).collect();
        if chain.is_empty() {
            return Err(IdentityError::NoCertificate);
        }
        let key = pem::blocks(identity.key_pem().expose_secret(), pem::is_private_key).next();
        let key = key.ok_or(IdentityError::NoKey)?;
        let signing = load(key.expose_secret(), provider).ok_or(IdentityError::Key)?;
        let public_key = signing.public_key().map(SubjectPublicKeyInfoDer::into_owned);
        // Not `from_der`: it checks the pair, and knows fewer forms of public keys than the broker.
        let certified = Arc::new(CertifiedKey::new(chain, signing));
        Ok(Self { certified, public_key, key })
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        let same_key = match (&self.public_key, &other.public_key) {
            // A key has several encodings.
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

/// Tries every format. Plugins print wrong labels, which Go ignores too.
fn load(der: &[u8], provider: &CryptoProvider) -> Option<Arc<dyn SigningKey>> {
    let formats: [fn(Vec<u8>) -> PrivateKeyDer<'static>; 3] = [
        |der| PrivateKeyDer::Pkcs8(der.into()),
        |der| PrivateKeyDer::Sec1(der.into()),
        |der| PrivateKeyDer::Pkcs1(der.into()),
    ];
    formats.iter().find_map(|format| provider.key_provider.load_private_key(format(der.to_vec())).ok())
}

#[cfg(test)]
mod tests;
