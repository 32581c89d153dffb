//! The services under a client, of one server.

use std::time::Duration;

use ::kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt, retry::RetryPolicy},
    config::AuthInfo,
};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connection, proxy::SocksV5};
use rustls::crypto::{CryptoProvider, aws_lc_rs::default_provider};
use tokio_util::sync::CancellationToken;
use tower::{
    BoxError, Layer, Service,
    retry::RetryLayer,
    util::{BoxCloneSyncService, option_layer},
};

use super::{BuildError, error::unusable, proxy::tunnel};
use crate::{
    Authenticate, CredentialSource,
    tls::{DRAIN, RotatingClient, Settings, tcp},
};

/// Sends requests to one server, in the name of one source.
pub(super) type Stack = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// What a stack is made of, but for whose it is.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) config: Config,
    pub(super) drain: Duration,
    pub(super) plaintext: bool,
}

impl Recipe {
    pub(super) fn new(config: Config) -> Self {
        Self { config, drain: DRAIN, plaintext: false }
    }

    /// Before anything is made of it.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        if let Some(what) = own_credentials(&self.config.auth_info) {
            return Err(BuildError::Credentials { what });
        }
        if CryptoProvider::get_default().is_none() {
            // Somebody else may just have done it: then there is one, which is all that is wanted.
            drop(default_provider().install_default());
        }
        Ok(())
    }

    /// All its connections end with `ends`, whatever they are doing.
    pub(super) fn stack(
        self,
        source: CredentialSource,
        ends: CancellationToken,
    ) -> Result<Stack, BuildError> {
        let Some(proxy) = self.config.proxy_url.clone() else { return self.over(tcp(), source, ends) };
        match proxy.scheme_str().unwrap_or_default() {
            "http" => self.over(tunnel(proxy, tcp()), source, ends),
            "https" => {
                // The name is the server's, not the proxy's.
                let mut config = self.config.clone();
                config.tls_server_name = None;
                let tls = config.rustls_https_connector_with_connector(tcp()).map_err(unusable)?;
                self.over(tunnel(proxy, tls), source, ends)
            }
            "socks5" => self.over(SocksV5::new(proxy, tcp()), source, ends),
            other => Err(BuildError::Proxy { scheme: other.to_owned() }),
        }
    }

    fn over<C>(
        self,
        dialer: C,
        source: CredentialSource,
        ends: CancellationToken,
    ) -> Result<Stack, BuildError>
    where
        C: Service<http::Uri> + Clone + Send + Sync + 'static,
        C::Response: hyper::rt::Read + hyper::rt::Write + Connection + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError>,
    {
        let Self { config, drain, plaintext } = self;
        let mut settings =
            Settings::with_config(config.rustls_client_config().map_err(unusable)?)?.drain(drain);
        settings.ends = ends;
        if let Some(name) = &config.tls_server_name {
            settings = settings.server_name(name)?;
        }
        if let Some(limit) = config.connect_timeout {
            settings = settings.connect_timeout(limit);
        }
        let mut dialer = TimeoutConnector::new(dialer);
        dialer.set_read_timeout(config.read_timeout);
        dialer.set_write_timeout(config.write_timeout);
        dialer.set_reset_reader_on_write(config.reset_reader_on_write);

        let client = RotatingClient::<Body, _>::over(dialer, source.clone(), settings);
        let client = config.extra_headers_layer().map_err(unusable)?.layer(client);
        let client = Authenticate::new(source)
            .allow_plaintext(plaintext)
            .repeat(|body: &Body| http_body::Body::is_end_stream(body).then(Body::empty))
            .layer(client);
        Ok(BoxCloneSyncService::new(config.base_uri_layer().layer(client)))
    }

    /// A client of `service`, with kube's retries around it.
    pub(super) fn client<S>(self, service: S) -> Client
    where
        S: Service<Request<Body>, Response = Response<Incoming>, Error = BoxError> + Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        let retries = self.config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
        ClientBuilder::new(option_layer(retries).layer(service), self.config.default_namespace).build()
    }
}

/// Impersonation is no credential: it comes on top of whoever one is.
fn own_credentials(auth: &AuthInfo) -> Option<&'static str> {
    let AuthInfo { username, password, token, token_file, auth_provider, exec, .. } = auth;
    let certificate = auth.client_certificate.is_some() || auth.client_certificate_data.is_some();
    let key = auth.client_key.is_some() || auth.client_key_data.is_some();
    [
        (username.is_some() || password.is_some(), "a user name and password"),
        (token.is_some() || token_file.is_some(), "a token"),
        (certificate || key, "a client certificate"),
        (auth_provider.is_some(), "an auth provider"),
        (exec.is_some(), "an exec plugin"),
    ]
    .into_iter()
    .find_map(|(is_set, what)| is_set.then_some(what))
}
