//! A tower layer that sends requests in the name of a credential.

mod repeat;
pub(crate) mod service;
#[cfg(test)]
mod tests;

use std::fmt;

use tower::Layer;

use crate::{CredentialSource, Error};

pub use repeat::{Never, Repeat, WithoutBody};
pub use service::Authenticated;

/// A tower layer: adds the current bearer token to each request, and reports the 401s.
///
/// - A request that has `Authorization` already is passed on as it is.
/// - Nothing but `https://` gets a credential, unless [`Self::allow_plaintext`] says so.
/// - An expired credential is never sent: the request waits up to ten seconds for a new one.
/// - A 401 is reported. A request without a body is sent once more if the report brings a newer credential;
///   [`Self::repeat`] says which others are.
///
/// It wants absolute URIs, so it belongs outside of whatever rewrites them.
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
    plaintext: bool,
    repeat: R,
}

impl Authenticate {
    /// In the name of `source`.
    ///
    /// ```no_run
    /// # fn example(source: credbroker_client::CredentialSource) {
    /// let layer = credbroker_client::Authenticate::new(source);
    /// # }
    /// ```
    pub fn new(source: CredentialSource) -> Self {
        Self { source, plaintext: false, repeat: WithoutBody }
    }
}

impl<R> Authenticate<R> {
    /// Sends credentials over connections that anybody on the way can read. For a proxy on the same machine.
    ///
    /// ```no_run
    /// # fn example(source: credbroker_client::CredentialSource) {
    /// let layer = credbroker_client::Authenticate::new(source).allow_plaintext(true);
    /// # }
    /// ```
    #[must_use]
    pub fn allow_plaintext(mut self, allow: bool) -> Self {
        self.plaintext = allow;
        self
    }

    /// Which requests may be sent once more after a 401: [`WithoutBody`] (the default), [`Never`], or a closure that
    /// copies the bodies that it can.
    ///
    /// ```no_run
    /// # fn example(source: credbroker_client::CredentialSource) {
    /// use bytes::Bytes;
    /// use credbroker_client::Authenticate;
    /// use http_body_util::Full;
    ///
    /// let layer = Authenticate::new(source).repeat(|body: &Full<Bytes>| Some(body.clone()));
    /// # }
    /// ```
    #[must_use]
    pub fn repeat<N>(self, repeat: N) -> Authenticate<N> {
        Authenticate { source: self.source, plaintext: self.plaintext, repeat }
    }
}

impl<S, R: Clone> Layer<S> for Authenticate<R> {
    type Service = Authenticated<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Authenticated { inner, layer: self.clone() }
    }
}

/// Why a request was not sent.
///
/// ```no_run
/// # fn example(error: tower::BoxError) {
/// use credbroker_client::AuthenticateError;
///
/// if let Some(AuthenticateError::NoCredential { .. }) = error.downcast_ref() {
///     // the broker's trouble, not the API server's
/// }
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthenticateError {
    /// There is no valid credential now, and none came within ten seconds. Send the request again later.
    #[error("there is no valid credential to send the request with")]
    NoCredential {
        /// What the broker said, or did not.
        source: Error,
    },
    /// Anybody on the way could read it. Use https, or allow it.
    #[error(
        "no credential is sent to {destination} in the clear; use https, or Authenticate::allow_plaintext"
    )]
    Plaintext {
        /// Where the request was to go.
        destination: Destination,
    },
}

/// Scheme and authority of a URI, without what else may be in it.
///
/// ```
/// let uri: http::Uri = "http://user:secret@example.com:80/path".parse()?;
/// let destination = credbroker_client::Destination::of(&uri);
/// assert_eq!(destination.to_string(), "http://example.com:80");
/// # Ok::<_, http::uri::InvalidUri>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Destination(String);

impl Destination {
    /// Of this URI.
    ///
    /// ```
    /// let destination = credbroker_client::Destination::of(&http::Uri::from_static("/version"));
    /// assert_eq!(destination.to_string(), "a URI without a scheme");
    /// ```
    pub fn of(uri: &http::Uri) -> Self {
        let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Self("a URI without a scheme".to_owned());
        };
        Self(match uri.port() {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
