//! The layer.

use http::Uri;
use tower::Layer;

use super::{destination::Destination, policy::Policy, repeat::WithoutBody, service::Authenticated};
use crate::source::handle::CredentialSource;

/// A tower layer that adds the current bearer token to each request, and reports the 401s.
///
/// - A request that has `Authorization` already is passed on unchanged.
/// - A credential is sent only to the cluster that it is for: scheme, host and port of the request must be those of
///   [`Cluster::server`](crate::Cluster::server) beside the credential. Its path and `tls_server_name` do not count. When
///   the cluster moves, requests to the old address fail. A credential without a cluster is sent to the server that
///   [`Self::server`] names. [`Self::any_host`] turns this check off.
/// - A credential is sent only with `https`, unless [`Self::allow_plaintext`] is set.
/// - An expired credential is never sent: a request waits up to ten seconds for a valid one.
/// - A 401 is reported. A request without a body is sent once more if the report brings a newer credential for the same
///   server; [`Self::repeat`] says which other requests are.
///
/// Its errors are [`AuthenticateError`](super::AuthenticateError)s, or those of the service around which it is. It needs
/// absolute URIs, so a layer that completes or redirects URIs goes around it.
///
/// ```no_run
/// # fn example<S>(source: credbroker_client::CredentialSource, client: S) {
/// use credbroker_client::Authenticate;
/// use tower::Layer;
///
/// let service = Authenticate::new(source).layer(client);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Authenticate<R = WithoutBody> {
    source: CredentialSource,
    policy: Policy,
    repeat: R,
}

impl Authenticate {
    /// Sends the credentials of `source`.
    pub fn new(source: CredentialSource) -> Self {
        Self { source, policy: Policy::default(), repeat: WithoutBody }
    }
}

impl<R> Authenticate<R> {
    /// Names the server for credentials that come without a cluster, as those of most providers do. A credential that comes
    /// with a cluster is still sent only there.
    #[must_use]
    pub fn server(mut self, server: &Uri) -> Self {
        self.policy.server = Some(Destination::of(server));
        self
    }

    /// Sends credentials to every server that a request names: for a tunnel or another address of the cluster. Each of these
    /// servers can then act as the credential's user, so the program must know them all.
    #[must_use]
    pub fn any_host(mut self) -> Self {
        self.policy.any_host = true;
        self
    }

    /// Sends credentials without TLS, where others on the network can read them: for a proxy on the same machine.
    #[must_use]
    pub fn allow_plaintext(mut self, allow: bool) -> Self {
        self.policy.plaintext = allow;
        self
    }

    /// Which requests may be sent once more after a 401: [`WithoutBody`] (the default), or those whose body a closure copies.
    /// `|_: &B| None` repeats none.
    #[must_use]
    pub fn repeat<N>(self, repeat: N) -> Authenticate<N> {
        Authenticate { source: self.source, policy: self.policy, repeat }
    }
}

impl<S, R: Clone> Layer<S> for Authenticate<R> {
    type Service = Authenticated<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        let Self { source, policy, repeat } = self.clone();
        Authenticated { inner, source, policy, repeat }
    }
}
