//! A client for the hub whose responses are limited, and its identity there.

use std::{
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use secrecy::SecretString;
use tokio::time::{Sleep, sleep};
use tower::{BoxError, Layer, Service};

use super::error::{EVENT, Excess, HubError, PAGE};
use crate::resolver::{CredentialRequest, Resolver, Source};
use credbroker_cache::{Caller, CredentialCache, CredentialWatch, Request as CacheRequest};
use credbroker_config::{HubAccess, distrust};
use credbroker_credential::Issued;
use credbroker_plugin::{PluginSpec, ProviderRef, Providers};
use credbroker_runner::PluginRunner;

/// Time limits of requests to the hub.
#[derive(Clone, Copy, Debug)]
pub(super) struct HubTimeouts {
    /// Until a connection is established.
    pub(super) connect: Duration,
    /// Without a byte received. Longer than one watch request lasts, and than the session waits for its end.
    pub(super) silence: Duration,
    /// Seconds that one watch request lasts. A watch that is silent for five seconds longer is started again.
    pub(super) watch: u32,
    /// For one response, from its head to its end.
    pub(super) answer: Duration,
    /// For the first list of all scopes.
    pub(super) list: Duration,
}

/// Profiles per page: kube's default, and a number so small that a page of the largest objects fits the limit.
const PAGES: (u32, u32) = (500, 8);

impl Default for HubTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(65),
            watch: 55,
            answer: Duration::from_secs(60),
            list: Duration::from_secs(300),
        }
    }
}

/// How the hub is reached.
#[derive(Debug)]
pub(super) struct HubConnector<R> {
    hub: HubAccess,
    pub(super) timeouts: HubTimeouts,
    page: AtomicU32,
    plugin: Option<(Resolver, Arc<str>)>,
    cache: CredentialCache<R>,
}

/// A connection to the hub.
pub(super) struct HubConnection<R> {
    pub(super) client: Client,
    /// What the plugin issued; `None`: the hub's user has no plugin.
    pub(super) identity: Option<HubIdentity<R>>,
}

/// One generation of the credential that the hub's plugin issued.
#[derive(Debug)]
pub(super) struct HubIdentity<R> {
    cache: CredentialCache<R>,
    spec: PluginSpec,
    watch: CredentialWatch<R>,
    issued: Arc<Issued>,
    /// How the hub is reached, without the credential.
    config: Config,
}

impl<R: PluginRunner> HubConnector<R> {
    /// `plugins` has the plugin of the hub's user, if there is one.
    pub(super) fn new(hub: HubAccess, plugins: Arc<Providers>, cache: CredentialCache<R>) -> Self {
        let name = plugins.iter().next().map(|provider| Arc::clone(&provider.name));
        let plugin = name.map(|name| (Resolver::new(plugins, None), name));
        Self { hub, timeouts: HubTimeouts::default(), page: AtomicU32::new(PAGES.0), plugin, cache }
    }

    /// Connects with the current credential. Files are read again each time, because they may have been replaced.
    pub(super) async fn connect(&self) -> Result<HubConnection<R>, HubError> {
        let config = self.config().await?;
        let identity = match &self.plugin {
            Some(_) if config.auth_info.exec.is_none() => return Err(HubError::NoPlugin),
            Some((resolver, name)) => Some(self.identity(resolver, name, config.clone()).await?),
            // kube would run it itself: three times, without a limit and with its output in errors.
            None if config.auth_info.exec.is_some() => return Err(HubError::NewPlugin),
            None if config.auth_info.auth_provider.is_some() => return Err(HubError::AuthProvider),
            None => None,
        };
        let client = self.client(config, identity.as_ref().map(|identity| &*identity.issued))?;
        Ok(HubConnection { client, identity })
    }

    /// A client with the newest credential of `identity`. `None`: the files lead to another hub or user now.
    pub(super) async fn renewed(&self, identity: &HubIdentity<R>) -> Result<Option<Client>, HubError> {
        let config = self.config().await?;
        if config.auth_info.exec.is_none() || !is_same(&config, &identity.config) {
            return Ok(None);
        }
        self.client(config, Some(&identity.issued)).map(Some)
    }

    fn client(&self, mut config: Config, issued: Option<&Issued>) -> Result<Client, HubError> {
        config.connect_timeout = Some(self.timeouts.connect);
        config.read_timeout = Some(self.timeouts.silence);
        config.reset_reader_on_write = true;
        if let Some(issued) = issued {
            config.auth_info = auth_info(issued, config.auth_info);
        }
        let watch = Duration::from_secs(self.timeouts.watch.into()) + self.timeouts.silence;
        let bounds = Bounds { answer: self.timeouts.answer, watch };
        let client = ClientBuilder::try_from(config).map_err(HubError::of_client)?;
        Ok(client.with_layer(&bounds).build())
    }

    /// Profiles per page.
    pub(super) fn page(&self) -> u32 {
        self.page.load(Ordering::Relaxed)
    }

    /// Uses small pages after a page was too large.
    pub(super) fn learn_from(&self, error: &HubError) {
        if error.excess() == Some(Excess::Page) {
            self.page.store(PAGES.1, Ordering::Relaxed);
        }
    }

    async fn config(&self) -> Result<Config, HubError> {
        match &self.hub {
            HubAccess::InCluster => Config::incluster().map_err(HubError::InCluster),
            HubAccess::Kubeconfig { path, context, .. } => {
                // They may have changed since the configuration was read.
                check(path)?;
                let kubeconfig = Kubeconfig::read_from(path).map_err(HubError::of_kubeconfig)?;
                authorities(&kubeconfig, context.as_deref()).map_or(Ok(()), check)?;
                let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(HubError::of_kubeconfig)
            }
        }
    }

    async fn identity(
        &self,
        resolver: &Resolver,
        name: &str,
        config: Config,
    ) -> Result<HubIdentity<R>, HubError> {
        let resolve = || {
            let ask = CredentialRequest {
                source: Source::Provider(ProviderRef::named(name)),
                ..CredentialRequest::default()
            };
            resolver.resolve(ask).map_err(HubError::Plugin)
        };
        let mut watch = self.cache.watch(resolve()?, Caller::default()).map_err(HubError::Credential)?;
        let issued = watch.next().await.map_err(HubError::Credential)?;
        Ok(HubIdentity { cache: self.cache.clone(), spec: resolve()?, watch, issued, config })
    }
}

impl<R: PluginRunner> HubConnection<R> {
    /// Reports the credential if the hub rejected it, and waits for the result. The next attempt sees it.
    pub(super) async fn report(self, error: &HubError) {
        if let Some(HubIdentity { cache, spec, issued, .. }) =
            self.identity.filter(|_| error.is_unauthorized())
        {
            drop(cache.report(spec, &issued.generation.to_string(), &CacheRequest::default()).await);
        }
    }
}

impl<R: PluginRunner> HubIdentity<R> {
    /// Waits for the next credential. Fails if the old one expired and could not be replaced.
    pub(super) async fn rotated(&mut self) -> Result<(), HubError> {
        loop {
            let issued = self.watch.next().await.map_err(HubError::Credential)?;
            // Otherwise only its lifetime changed.
            if issued.generation != self.issued.generation {
                self.issued = issued;
                return Ok(());
            }
        }
    }
}

/// Whether both lead to the same hub as the same user, besides the credential.
fn is_same(one: &Config, other: &Config) -> bool {
    let server = |config: &Config| (config.cluster_url.clone(), config.proxy_url.clone());
    let trust = |config: &Config| {
        (config.root_cert.clone(), config.tls_server_name.clone(), config.accept_invalid_certs)
    };
    let (user, other_user) = (&one.auth_info, &other.auth_info);
    server(one) == server(other)
        && trust(one) == trust(other)
        && user.impersonate == other_user.impersonate
        && user.impersonate_uid == other_user.impersonate_uid
        && user.impersonate_groups == other_user.impersonate_groups
        && user.impersonate_user_extra == other_user.impersonate_user_extra
}

/// Refuses a file that other users can change. What is wrong with one that cannot be looked at is said when it is read.
fn check(path: &Path) -> Result<(), HubError> {
    match distrust(path) {
        Ok(Some(problem)) => Err(HubError::Unsafe { path: path.to_owned(), problem }),
        Ok(None) | Err(_) => Ok(()),
    }
}

/// The file of certificate authorities that `context` leads to, unless it has them as data.
fn authorities<'a>(kubeconfig: &'a Kubeconfig, context: Option<&str>) -> Option<&'a Path> {
    let wanted = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == wanted)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster)?;
    let cluster = cluster.cluster.as_ref().filter(|cluster| cluster.certificate_authority_data.is_none())?;
    cluster.certificate_authority.as_deref().map(Path::new)
}

/// The identity of `issued`, with the impersonation of the user `of_file`.
fn auth_info(issued: &Issued, of_file: AuthInfo) -> AuthInfo {
    let AuthInfo { impersonate, impersonate_uid, impersonate_groups, impersonate_user_extra, .. } = of_file;
    let mut auth = AuthInfo {
        impersonate,
        impersonate_uid,
        impersonate_groups,
        impersonate_user_extra,
        ..AuthInfo::default()
    };
    auth.token = issued.token().map(|token| SecretString::from(token.to_owned()));
    auth.client_certificate_data = issued.certificate_pem().map(|chain| STANDARD.encode(chain));
    auth.client_key_data = issued.key_pem().map(|key| STANDARD.encode(key).into());
    auth
}

/// A layer that limits each response of a client.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Time limit from the head of a response to its end.
    answer: Duration,
    /// The same for a watch.
    watch: Duration,
}

impl<S> Layer<S> for Bounds {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { inner, bounds: *self }
    }
}

/// A client's service whose responses are limited.
#[derive(Clone, Debug)]
struct Bounded<S> {
    inner: S,
    bounds: Bounds,
}

impl<S, Q, B> Service<Request<Q>> for Bounded<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<BoundedBody<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.split('&').any(|part| part == "watch=true");
        let limit = if is_watch { self.bounds.watch } else { self.bounds.answer };
        let answered = self.inner.call(request);
        let bounded =
            move |body| BoundedBody { body, is_watch, received: 0, limit, late: Box::pin(sleep(limit)) };
        async move { Ok(answered.await?.map(bounded)) }.boxed()
    }
}

/// A body that fails when it exceeds a limit.
#[derive(Debug)]
struct BoundedBody<B> {
    body: B,
    is_watch: bool,
    /// Bytes of the body, or of the current event.
    received: usize,
    limit: Duration,
    late: Pin<Box<Sleep>>,
}

impl<B> BoundedBody<B> {
    fn note(&mut self, data: &[u8]) -> Result<(), Excess> {
        if !self.is_watch {
            self.received += data.len();
            return if self.received > PAGE { Err(Excess::Page) } else { Ok(()) };
        }
        for (index, part) in data.split(|byte| *byte == b'\n').enumerate() {
            self.received = if index == 0 { self.received + part.len() } else { part.len() };
            if self.received > EVENT {
                return Err(Excess::Event);
            }
        }
        Ok(())
    }
}

impl<B> HttpBody for BoundedBody<B>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        // Checked first, so that a body that never pauses is limited too.
        if this.late.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(Excess::Time(this.limit).into())));
        }
        Pin::new(&mut this.body).poll_frame(cx).map(|frame| {
            Some(frame?.map_err(Into::into).and_then(|frame| {
                this.note(frame.data_ref().map(Bytes::as_ref).unwrap_or_default())?;
                Ok(frame)
            }))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
