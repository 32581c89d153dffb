//! A client for the hub, and its identity there.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use secrecy::SecretString;

use super::{
    HubError,
    bounds::{Bounds, Excess},
};
use crate::resolver::{CredentialRequest, Resolver, Source};
use credbroker_cache::{Caller, CredentialCache, CredentialWatch, Request};
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

    /// Reports that the hub rejected it, and waits for the result.
    pub(super) async fn rejected(self) {
        // The next attempt sees the result.
        let generation = self.issued.generation.to_string();
        drop(self.cache.report(self.spec, &generation, &Request::default()).await);
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

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;

    #[test]
    fn impersonation_is_kept_with_a_credential_of_the_plugin() {
        let of_file = AuthInfo {
            impersonate: Some("reader".into()),
            impersonate_groups: Some(vec!["fleet".into()]),
            token_file: Some("/elsewhere".into()),
            ..AuthInfo::default()
        };
        let issued = credbroker_credential::testing::with_token("t");
        let auth = auth_info(&issued, of_file);
        assert_eq!(auth.impersonate.as_deref(), Some("reader"));
        assert_eq!(auth.impersonate_groups, Some(vec!["fleet".to_owned()]));
        assert_eq!(auth.token.unwrap().expose_secret(), "t");
        assert!(auth.token_file.is_none(), "the credential is the plugin's alone");
    }
}
