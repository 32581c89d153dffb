//! The services of a client of one server.

use std::time::Duration;

use credbroker_client::{
    Authenticate, CredentialSource,
    tls::{DRAIN, Drain, ResponseBody, RotatingClient, Settings, tcp},
};
use http::{Request, Response};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connection, proxy::SocksV5};
use kube::{
    Client, Config,
    client::{ClientBuilder, ConfigExt, retry::RetryPolicy},
    config::AuthInfo,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs::default_provider};
use tokio_util::sync::CancellationToken;
use tower::{
    Layer, Service,
    retry::RetryLayer,
    util::{BoxCloneSyncService, option_layer},
};

use crate::{
    BoxError,
    body::{Repeatable, RequestBody},
    dialer::HyperDialer,
    error::{BuildError, unusable},
    proxy::tunnel,
};

/// Sends requests to one server, with the credentials of one source.
pub(crate) type Stack<B> = BoxCloneSyncService<Request<B>, Response<ResponseBody>, BoxError>;

/// The settings of a stack, without its source.
#[derive(Clone, Debug)]
pub(crate) struct StackConfig {
    pub(crate) config: Config,
    pub(crate) drain: Drain,
    /// Connections that are kept without a request.
    pub(crate) idle: usize,
    pub(crate) plaintext: bool,
    pub(crate) any_host: bool,
}

impl StackConfig {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, drain: Drain::After(DRAIN), idle: usize::MAX, plaintext: false, any_host: false }
    }

    /// How long the endpoint may be used after the cluster has left it. It has no certificate whose end could count.
    pub(crate) fn leaving(&self) -> Duration {
        match self.drain {
            Drain::After(limit) => limit,
            Drain::Natural => DRAIN,
        }
    }

    /// Called before a stack is built.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if let Some(what) = own_credentials(&self.config.auth_info) {
            return Err(BuildError::Credentials { what });
        }
        if CryptoProvider::get_default().is_none() {
            // An error means that another thread has just installed one, which serves as well.
            drop(default_provider().install_default());
        }
        Ok(())
    }

    /// The stack. All its connections end when `ends` is cancelled.
    pub(crate) fn build<B: RequestBody>(
        self,
        source: CredentialSource,
        ends: CancellationToken,
    ) -> Result<Stack<B>, BuildError> {
        let Some(proxy) = self.config.proxy_url.clone() else { return self.over(tcp(), source, ends) };
        match proxy.scheme_str().unwrap_or_default() {
            "http" => self.over(tunnel(proxy, tcp()), source, ends),
            "https" => {
                // The TLS server name is that of the cluster, not of the proxy.
                let mut config = self.config.clone();
                config.tls_server_name = None;
                let tls = config.rustls_https_connector_with_connector(tcp()).map_err(unusable)?;
                self.over(tunnel(proxy, tls), source, ends)
            }
            "socks5" => self.over(SocksV5::new(proxy, tcp()), source, ends),
            other => Err(BuildError::Proxy { scheme: other.to_owned() }),
        }
    }

    fn over<C, B>(
        self,
        dialer: C,
        source: CredentialSource,
        ends: CancellationToken,
    ) -> Result<Stack<B>, BuildError>
    where
        B: RequestBody,
        C: Service<http::Uri> + Clone + Send + Sync + 'static,
        C::Response: hyper::rt::Read + hyper::rt::Write + Connection + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError>,
    {
        let Self { config, drain, idle, plaintext, any_host } = self;
        let tls = config.rustls_client_config().map_err(unusable)?;
        let mut settings = Settings::with_config(tls)?.draining(drain).keep_idle(idle).until(ends);
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

        let client = RotatingClient::<B, _>::over(HyperDialer(dialer), source.clone(), settings);
        let client = config.extra_headers_layer().map_err(unusable)?.layer(client);
        let authenticate = Authenticate::new(source).server(&config.cluster_url).allow_plaintext(plaintext);
        let authenticate = if any_host { authenticate.any_host() } else { authenticate };
        let client = authenticate.repeat(Repeatable).layer(client);
        Ok(BoxCloneSyncService::new(config.base_uri_layer().layer(client)))
    }

    /// A client of `service`, with kube's retries around it.
    pub(crate) fn client<S>(self, service: S) -> Client
    where
        S: Service<Request<kube::client::Body>, Response = Response<ResponseBody>, Error = BoxError>
            + Clone
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let retries = self.config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
        ClientBuilder::new(option_layer(retries).layer(service), self.config.default_namespace).build()
    }
}

/// The first credential that the config has. Impersonation is not one: it applies to any user.
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
