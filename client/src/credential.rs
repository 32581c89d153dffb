//! A credential as a client holds it.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use credbroker_proto::v1::{self, Cluster};
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use secrecy::{ExposeSecret, SecretSlice, SecretString};

use crate::{
    Error,
    clock::{End, Now},
};

/// One credential: a token, a certificate with its key, or both, and the cluster that it came with. Immutable: a rotation
/// makes a new value, and so does an endpoint that moves.
///
/// `Debug` shows neither token nor key.
///
/// ```no_run
/// # async fn example(source: credbroker_client::CredentialSource) {
/// let mut headers = http::HeaderMap::new();
/// if let Some(credential) = source.current() {
///     credential.authorize(&mut headers);
/// }
/// # }
/// ```
pub struct Credential {
    generation: String,
    bearer: Option<Bearer>,
    identity: Option<TlsIdentity>,
    cluster: Option<Cluster>,
    end: Option<End>,
    lifetime: Option<Duration>,
}

struct Bearer {
    token: SecretString,
    /// Made once, so that a request costs a reference count and no copy of the token.
    header: HeaderValue,
}

/// A client certificate and its key, in PEM.
///
/// ```no_run
/// # fn example(credential: &credbroker_client::Credential) {
/// if let Some(identity) = credential.identity() {
///     println!("certificate {}", identity.fingerprint());
/// }
/// # }
/// ```
pub struct TlsIdentity {
    chain: Vec<u8>,
    key: SecretSlice<u8>,
    fingerprint: String,
}

impl Credential {
    /// Checked once, here: what is held can be sent.
    pub(crate) fn receive(
        received: v1::Credential,
        cluster: Option<Cluster>,
        now: Now,
    ) -> Result<Self, Error> {
        let unusable = |problem| Error::Unusable { problem };
        let bearer = match received.token {
            None => None,
            Some(token) => Some(Bearer::new(token).ok_or(unusable("its token does not fit into a header"))?),
        };
        let identity = match (received.client_certificate_data, received.client_key_data) {
            (None, None) => None,
            (Some(chain), Some(key)) => Some(TlsIdentity {
                chain,
                key: key.into(),
                fingerprint: received.certificate_fingerprint.unwrap_or_default(),
            }),
            _ => return Err(unusable("it has only half of a certificate and key")),
        };
        if bearer.is_none() && identity.is_none() {
            return Err(unusable("it has neither a token nor a certificate"));
        }
        let end = match received.expiration_time {
            None => None,
            Some(at) => {
                let at = SystemTime::try_from(at).ok().ok_or(unusable("its expiry is no time"))?;
                Some(End::at(at, now))
            }
        };
        let lifetime = received.lifetime.and_then(|lifetime| Duration::try_from(lifetime).ok());
        Ok(Self { generation: received.generation, bearer, identity, cluster, end, lifetime })
    }

    /// Opaque; equal means the same credential.
    ///
    /// ```no_run
    /// # fn example(source: credbroker_client::CredentialSource, rejected: &credbroker_client::Credential) {
    /// source.reject(rejected.generation());
    /// # }
    /// ```
    pub fn generation(&self) -> &str {
        &self.generation
    }

    /// The bearer token, if it has one.
    ///
    /// ```no_run
    /// # fn example(credential: &credbroker_client::Credential) {
    /// use secrecy::ExposeSecret;
    /// let length = credential.token().map(|token| token.expose_secret().len());
    /// # }
    /// ```
    pub fn token(&self) -> Option<&SecretString> {
        self.bearer.as_ref().map(|bearer| &bearer.token)
    }

    /// The client certificate and its key, if it has them.
    ///
    /// ```no_run
    /// # fn example(credential: &credbroker_client::Credential) {
    /// let needs_mtls = credential.identity().is_some();
    /// # }
    /// ```
    pub fn identity(&self) -> Option<&TlsIdentity> {
        self.identity.as_ref()
    }

    /// Where it is for, as the broker said in the same breath. Of a `ClusterProfile`: how to reach it. Of a provider: the
    /// cluster that the plugin was told about, if any.
    ///
    /// ```no_run
    /// # fn example(credential: &credbroker_client::Credential) {
    /// let server = credential.cluster().map(|cluster| cluster.server.as_str());
    /// # }
    /// ```
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// Whether both are for the same place: server, authorities, TLS name and proxy. What a plugin is told besides does
    /// not count.
    ///
    /// ```no_run
    /// # fn example(before: &credbroker_client::Credential, after: &credbroker_client::Credential) {
    /// let moved = !after.is_for_endpoint_of(before);
    /// # }
    /// ```
    pub fn is_for_endpoint_of(&self, other: &Self) -> bool {
        match (&self.cluster, &other.cluster) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => is_same_endpoint(ours, theirs),
            _ => false,
        }
    }

    /// When it ends; `None`: unknown.
    ///
    /// ```no_run
    /// # fn example(credential: &credbroker_client::Credential) {
    /// println!("{:?}", credential.expires_at());
    /// # }
    /// ```
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.end.map(|end| end.wall)
    }

    /// From when the broker got it to its end: lets a caller choose a margin that suits it. `None`: unknown.
    ///
    /// ```no_run
    /// # fn example(credential: &credbroker_client::Credential) {
    /// let margin = credential.lifetime().map(|lifetime| lifetime / 10);
    /// # }
    /// ```
    pub fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    /// Sets `Authorization`, marked as sensitive, if it has a token; whatever was there goes.
    ///
    /// ```no_run
    /// # fn example(credential: &credbroker_client::Credential, request: &mut http::Request<()>) {
    /// credential.authorize(request.headers_mut());
    /// # }
    /// ```
    pub fn authorize(&self, headers: &mut HeaderMap) {
        if let Some(bearer) = &self.bearer {
            headers.insert(AUTHORIZATION, bearer.header.clone());
        }
    }

    pub(crate) fn is_valid(&self, now: Now) -> bool {
        self.end.is_none_or(|end| end.is_after(now))
    }
}

/// Nothing here asks for compressed responses, and `config` is for the plugin.
fn is_same_endpoint(ours: &Cluster, theirs: &Cluster) -> bool {
    let Cluster {
        server,
        tls_server_name,
        insecure_skip_tls_verify,
        certificate_authority_data,
        proxy_url,
        disable_compression: _,
        config: _,
    } = ours;
    *server == theirs.server
        && *tls_server_name == theirs.tls_server_name
        && *insecure_skip_tls_verify == theirs.insecure_skip_tls_verify
        && *certificate_authority_data == theirs.certificate_authority_data
        && *proxy_url == theirs.proxy_url
}

impl Bearer {
    fn new(token: String) -> Option<Self> {
        let token = SecretString::from(token);
        let value = SecretString::from(format!("Bearer {}", token.expose_secret()));
        let mut header = HeaderValue::from_str(value.expose_secret()).ok()?;
        header.set_sensitive(true);
        Some(Self { token, header })
    }
}

impl TlsIdentity {
    /// The certificate chain, leaf first, in PEM.
    ///
    /// ```no_run
    /// # fn example(identity: &credbroker_client::TlsIdentity) {
    /// let pem = identity.chain_pem();
    /// # }
    /// ```
    pub fn chain_pem(&self) -> &[u8] {
        &self.chain
    }

    /// The leaf's private key, in PEM.
    ///
    /// ```no_run
    /// # fn example(identity: &credbroker_client::TlsIdentity) {
    /// use secrecy::ExposeSecret;
    /// let pem = identity.key_pem().expose_secret();
    /// # }
    /// ```
    pub fn key_pem(&self) -> &SecretSlice<u8> {
        &self.key
    }

    /// Changes if and only if the certificate or the key changes.
    ///
    /// ```no_run
    /// # fn example(before: &credbroker_client::TlsIdentity, after: &credbroker_client::TlsIdentity) {
    /// let reconnect = before.fingerprint() != after.fingerprint();
    /// # }
    /// ```
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
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

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::tests::paused;

    fn received(token: &str, chain: &str, key: &str) -> Result<Credential, Error> {
        let present = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let credential = v1::Credential {
            generation: "g1".into(),
            token: present(token),
            client_certificate_data: present(chain).map(String::into_bytes),
            client_key_data: present(key).map(String::into_bytes),
            ..v1::Credential::default()
        };
        Credential::receive(credential, None, paused())
    }

    #[tokio::test]
    async fn a_token_is_sent_as_a_sensitive_header_and_shown_nowhere() {
        let credential = received("c4n4ry", "c4n4ry", "c4n4ry").unwrap();
        let mut headers = HeaderMap::new();
        credential.authorize(&mut headers);
        assert_eq!(headers[AUTHORIZATION], "Bearer c4n4ry");
        assert!(headers[AUTHORIZATION].is_sensitive());
        let text = format!("{credential:?} {credential:#?} {headers:?}");
        assert!(!text.contains("c4n4ry") && text.contains("g1"), "{text}");
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_refused_without_being_shown() {
        for (token, chain, key) in
            [("", "", ""), ("c4n4ry\n", "", ""), ("", "c4n4ry", ""), ("t", "", "c4n4ry")]
        {
            let error = received(token, chain, key).unwrap_err();
            assert!(matches!(error, Error::Unusable { .. }) && !format!("{error:?}").contains("c4n4ry"));
        }
        assert!(received("", "chain", "key").unwrap().token().is_none());
    }

    #[tokio::test]
    async fn an_endpoint_is_everything_that_says_where_a_request_goes_and_whom_it_trusts() {
        let at = |change: fn(&mut Cluster)| {
            let mut cluster = Cluster { server: "https://a".into(), ..Cluster::default() };
            change(&mut cluster);
            let token = v1::Credential { token: Some("t".into()), ..v1::Credential::default() };
            Credential::receive(token, Some(cluster), paused()).unwrap()
        };
        let here = at(|_| {});
        let elsewhere: [fn(&mut Cluster); 5] = [
            |cluster| cluster.server = "https://b".into(),
            |cluster| cluster.tls_server_name = Some("b".into()),
            |cluster| cluster.insecure_skip_tls_verify = true,
            |cluster| cluster.certificate_authority_data = Some("b".into()),
            |cluster| cluster.proxy_url = Some("http://b".into()),
        ];
        for (index, change) in elsewhere.into_iter().enumerate() {
            assert!(!at(change).is_for_endpoint_of(&here), "change {index}");
        }
        assert!(at(|cluster| cluster.config = Some("{}".into())).is_for_endpoint_of(&here));
        let nowhere = received("t", "", "").unwrap();
        assert!(nowhere.is_for_endpoint_of(&nowhere) && !nowhere.is_for_endpoint_of(&here));
    }
}
