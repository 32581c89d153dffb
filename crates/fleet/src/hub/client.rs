//! A client for the hub whose responses are limited, and its identity there.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
};
use http::{Request, Response};
use http_body_util::{BodyExt as _, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Body as HttpBody, Frame};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use secrecy::SecretString;
use tower::{BoxError, Service, layer::layer_fn};

use super::error::{EVENT, Excess, HubError, PAGE};
use credbroker_cache::{Caller, CredentialCache, CredentialWatch, Request as CacheRequest};
use credbroker_config::{HubKubeconfig, distrust};
use credbroker_credential::Issued;
use credbroker_plugin::{Origin, PluginSpec, ProviderRef, Providers, Sent};
use credbroker_runner::PluginRunner;

const CONNECT: Duration = Duration::from_secs(10);

/// Time limits of requests to the hub.
#[derive(Clone, Copy, Debug)]
pub(super) struct HubTimeouts {
    /// Without a byte received. Longer than one watch request lasts, and than the session waits for its end.
    pub(super) silence: Duration,
    /// For one page of a list.
    pub(super) page: Duration,
    /// Seconds that one watch request lasts. A watch that goes on for five seconds longer is started again.
    pub(super) watch: u32,
    /// For the first list of all scopes.
    pub(super) list: Duration,
}

impl Default for HubTimeouts {
    fn default() -> Self {
        let [silence, page, list] = [65, 60, 300].map(Duration::from_secs);
        Self { silence, page, watch: 55, list }
    }
}

#[derive(Debug)]
pub(super) struct HubConnector<R> {
    /// `None`: in the cluster that the broker runs in.
    pub(super) hub: Option<HubKubeconfig>,
    pub(super) timeouts: HubTimeouts,
    /// Has the plugin of the hub's user. Empty: the user has none.
    pub(super) plugins: Arc<Providers>,
    pub(super) cache: CredentialCache<R>,
}

pub(super) struct HubConnection<R> {
    pub(super) client: Client,
    /// What the plugin issued; `None`: the hub's user has no plugin.
    pub(super) identity: Option<HubIdentity<R>>,
}

/// One generation of the credential that the hub's plugin issued.
#[derive(Debug)]
pub(super) struct HubIdentity<R> {
    watch: CredentialWatch<R>,
    issued: Arc<Issued>,
    /// How the hub is reached, without the credential.
    config: Config,
}

impl<R: PluginRunner> HubConnector<R> {
    /// Connects with the current credential. Files are read again each time, because they may have been replaced.
    pub(super) async fn connect(&self) -> Result<HubConnection<R>, HubError> {
        let config = self.config().await?;
        let run = self.run()?;
        // kube would run it itself: three times, without a limit and with its output in errors.
        if run.is_some() != config.auth_info.exec.is_some() {
            return Err(HubError::OtherPlugin);
        }
        let identity = match run {
            Some(run) => {
                let mut watch = self.cache.watch(run, Caller::default())?;
                Some(HubIdentity { issued: watch.next().await?, watch, config: config.clone() })
            }
            None if config.auth_info.auth_provider.is_some() => return Err(HubError::AuthProvider),
            None => None,
        };
        let client = self.client(config, identity.as_ref().map(|identity| &*identity.issued))?;
        Ok(HubConnection { client, identity })
    }

    /// Waits for the next credential of `identity`, and returns a client with it. `None`: the files lead to another hub or
    /// user now. Fails if the old credential expired and could not be replaced.
    pub(super) async fn renewed(&self, identity: &mut HubIdentity<R>) -> Result<Option<Client>, HubError> {
        loop {
            let issued = identity.watch.next().await?;
            // Otherwise only its lifetime changed.
            if issued.generation != identity.issued.generation {
                identity.issued = issued;
                break;
            }
        }
        let config = self.config().await?;
        if config.auth_info.exec.is_none() || !is_same(&config, &identity.config) {
            return Ok(None);
        }
        self.client(config, Some(&identity.issued)).map(Some)
    }

    /// Reports the credential of `connection` if `error` says that the hub rejected it, and waits for the result. The next
    /// attempt sees it.
    pub(super) async fn report(&self, connection: HubConnection<R>, error: &HubError) {
        let identity = connection.identity.filter(|_| error.code() == Some(401));
        if let (Some(HubIdentity { issued, .. }), Ok(Some(run))) = (identity, self.run()) {
            drop(self.cache.report(run, &issued.generation.to_string(), &CacheRequest::default()).await);
        }
    }

    fn run(&self) -> Result<Option<PluginSpec>, HubError> {
        let Some(plugin) = self.plugins.iter().next() else { return Ok(None) };
        let entry = self.plugins.entry(&ProviderRef::from(&*plugin.name))?;
        let sent = Sent { env: &BTreeMap::new(), by_name: &[], origin: Origin::Beside };
        Ok(Some(entry.of_provider(None)?.spec(sent)?))
    }

    fn client(&self, mut config: Config, issued: Option<&Issued>) -> Result<Client, HubError> {
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(self.timeouts.silence);
        config.reset_reader_on_write = true;
        if let Some(issued) = issued {
            config.auth_info = auth_info(issued, config.auth_info);
        }
        let client = ClientBuilder::try_from(config).map_err(HubError::of_client)?;
        Ok(client.with_layer(&layer_fn(Bounded)).build())
    }

    async fn config(&self) -> Result<Config, HubError> {
        match &self.hub {
            None => Ok(Config::incluster()?),
            Some(HubKubeconfig { path, context, .. }) => {
                // They may have changed since the configuration was read.
                check(path)?;
                let kubeconfig = Kubeconfig::read_from(path).map_err(HubError::of_kubeconfig)?;
                authorities(&kubeconfig, context.as_deref()).map_or(Ok(()), check)?;
                let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(HubError::of_kubeconfig)
            }
        }
    }
}

/// Whether both lead to the same hub as the same user, besides the credential.
fn is_same<'a>(one: &'a Config, other: &'a Config) -> bool {
    let trust =
        |config: &'a Config| (&config.root_cert, &config.tls_server_name, config.accept_invalid_certs);
    let user = |config: &'a Config| {
        let AuthInfo { impersonate, impersonate_uid, impersonate_groups, impersonate_user_extra, .. } =
            &config.auth_info;
        (impersonate, impersonate_uid, impersonate_groups, impersonate_user_extra)
    };
    (&one.cluster_url, &one.proxy_url) == (&other.cluster_url, &other.proxy_url)
        && trust(one) == trust(other)
        && user(one) == user(other)
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
    AuthInfo {
        impersonate,
        impersonate_uid,
        impersonate_groups,
        impersonate_user_extra,
        token: issued.token().map(|token| SecretString::from(token.to_owned())),
        client_certificate_data: issued.certificate_pem().map(|chain| STANDARD.encode(chain)),
        client_key_data: issued.key_pem().map(|key| STANDARD.encode(key).into()),
        ..AuthInfo::default()
    }
}

/// A client's service whose responses are limited in bytes.
#[derive(Clone, Debug)]
struct Bounded<S>(S);

impl<S, Q, B> Service<Request<Q>> for Bounded<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.split('&').any(|part| part == "watch=true");
        let answered = self.0.call(request);
        async move { Ok(answered.await?.map(|body| bounded(body, is_watch))) }.boxed()
    }
}

/// A body that fails when it exceeds a limit.
fn bounded<B>(body: B, is_watch: bool) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    // Bytes of the body, or of the current event.
    let mut received = 0;
    let frames = BodyStream::new(body).map(move |frame| {
        let frame: Frame<Bytes> = frame.map_err(Into::into)?;
        let data = frame.data_ref().map(Bytes::as_ref).unwrap_or_default();
        if !is_watch {
            received += data.len();
            return if received > PAGE { Err(Excess::Page.into()) } else { Ok(frame) };
        }
        for (index, part) in data.split(|byte| *byte == b'\n').enumerate() {
            received = if index == 0 { received + part.len() } else { part.len() };
            if received > EVENT {
                return Err(Excess::Event.into());
            }
        }
        Ok(frame)
    });
    StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
mod tests;
