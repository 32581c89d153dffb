//! A credential as a client holds it.

mod material;

#[cfg(feature = "async")]
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::{
    fmt,
    time::{Duration, SystemTime},
};

use credbroker_proto::v1;
use http::{HeaderMap, header::AUTHORIZATION};
use secrecy::SecretString;

use self::material::Bearer;
pub use self::material::TlsIdentity;
#[cfg(feature = "async")]
use crate::clock::{Now, expiry::Expiry};
use crate::{cluster::Cluster, error::Error};

/// One credential: a token, a certificate with its key, or both, and the cluster that it came with. It is immutable: a
/// rotation makes a new value, and so does an endpoint that moves.
///
/// `Debug` shows neither the token nor the key.
///
/// ```no_run
/// use credbroker_client::{CredentialSource, ExposeSecret};
///
/// # async fn example(source: CredentialSource) {
/// let mut headers = http::HeaderMap::new();
/// if let Some(credential) = source.current() {
///     credential.authorize(&mut headers); // for an HTTP client
///     let token = credential.token().map(|token| token.expose_secret()); // for everything else
/// }
/// # }
/// ```
pub struct Credential {
    generation: String,
    bearer: Option<Bearer>,
    identity: Option<TlsIdentity>,
    cluster: Option<Cluster>,
    expires_at: Option<SystemTime>,
    /// The same by both clocks, if the time of receipt is known.
    #[cfg(feature = "async")]
    expiry: Option<Expiry>,
    lifetime: Option<Duration>,
    /// Set when the definition that it comes from is no longer active. Credentials that come from it share this.
    #[cfg(feature = "async")]
    withdrawn: Arc<AtomicBool>,
}

impl Credential {
    /// Checks a message once: a credential that is held can be sent.
    pub(crate) fn from_message(message: v1::Credential, cluster: Option<v1::Cluster>) -> Result<Self, Error> {
        let unusable = |problem| Error::Unusable { problem };
        let bearer = match message.token.filter(|token| !token.is_empty()) {
            None => None,
            Some(token) => Some(Bearer::new(token).ok_or(unusable("its token does not fit into a header"))?),
        };
        let chain = message.client_certificate_data.filter(|chain| !chain.is_empty());
        let identity = match (chain, message.client_key_data.filter(|key| !key.is_empty())) {
            (None, None) => None,
            (Some(chain), Some(key)) => Some(TlsIdentity {
                chain,
                key: key.into(),
                fingerprint: message.certificate_fingerprint.unwrap_or_default(),
            }),
            _ => return Err(unusable("it has a certificate or a key without the other")),
        };
        if bearer.is_none() && identity.is_none() {
            return Err(unusable("it has neither a token nor a certificate"));
        }
        let expires_at = message.expiration_time.map(SystemTime::try_from).transpose();
        let expires_at = expires_at.ok().ok_or(unusable("its expiry is not a valid time"))?;
        let lifetime = message.lifetime.and_then(|lifetime| Duration::try_from(lifetime).ok());
        let cluster = cluster.map(Cluster::from_message);
        Ok(Self {
            generation: message.generation,
            bearer,
            identity,
            cluster,
            expires_at,
            #[cfg(feature = "async")]
            expiry: None,
            lifetime,
            #[cfg(feature = "async")]
            withdrawn: Arc::default(),
        })
    }

    /// As [`Self::from_message`], for a credential that is kept: received at `now`.
    #[cfg(feature = "async")]
    pub(crate) fn receive(
        message: v1::Credential,
        cluster: Option<v1::Cluster>,
        now: Now,
    ) -> Result<Self, Error> {
        let credential = Self::from_message(message, cluster)?;
        Ok(Self { expiry: credential.expires_at.map(|at| Expiry::at(at, now)), ..credential })
    }

    /// An opaque name. Credentials of the same generation are the same credential.
    pub fn generation(&self) -> &str {
        &self.generation
    }

    /// The bearer token. [`expose_secret`](crate::ExposeSecret::expose_secret) returns its text.
    pub fn token(&self) -> Option<&SecretString> {
        self.bearer.as_ref().map(|bearer| &bearer.token)
    }

    /// The client certificate with its key.
    pub fn identity(&self) -> Option<&TlsIdentity> {
        self.identity.as_ref()
    }

    /// The cluster that the broker sent with the credential. For a `ClusterProfile`: how to reach it. For a provider: the
    /// cluster that its plugin was run for, if any.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// Whether both credentials came with the same endpoint: server, authorities, TLS server name and proxy. The fields
    /// for the plugin do not count.
    pub fn has_same_endpoint(&self, other: &Self) -> bool {
        match (&self.cluster, &other.cluster) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => ours.has_same_endpoint(theirs),
            _ => false,
        }
    }

    /// When it expires. `None`: unknown.
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.expires_at
    }

    /// The time from when the broker got it to its expiry, for callers that choose a margin. `None`: unknown.
    pub fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    /// Sets `Authorization` to the token, marked as sensitive, and replaces what was there. A credential without a token
    /// changes nothing.
    pub fn authorize(&self, headers: &mut HeaderMap) {
        if let Some(header) = self.bearer.as_ref().and_then(Bearer::header) {
            headers.insert(AUTHORIZATION, header.clone());
        }
    }

    #[cfg(feature = "async")]
    pub(crate) fn is_valid(&self, now: Now) -> bool {
        !self.withdrawn.load(Ordering::Acquire) && self.expiry.is_none_or(|expiry| expiry.is_after(now))
    }

    /// The same credential. It is no longer valid when `withdrawn` is set.
    #[cfg(feature = "async")]
    pub(crate) fn until(self, withdrawn: Arc<AtomicBool>) -> Self {
        Self { withdrawn, ..self }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("generation", &self.generation)
            .field("token", &self.token())
            .field("identity", &self.identity)
            .field("cluster", &self.cluster)
            .field("expires_at", &self.expires_at())
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "async"))]
mod tests;
