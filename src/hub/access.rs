//! A client for the hub, and its identity there.

use std::{
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
use crate::{
    cache::{Caller, CredentialCache, CredentialWatch, Request},
    config::HubAccess,
    credential::Issued,
    exec::PluginRunner,
    plugin::{PluginSpec, ProviderRef, Providers},
    resolver::{CredentialRequest, Resolver, Source},
};

/// Time limits of requests to the hub.
#[derive(Clone, Copy, Debug)]
pub(super) struct HubTimeouts {
    /// Until a connection is established.
    pub(super) connect: Duration,
    /// Without a byte received. Longer than one watch request lasts, and than kube waits for its end.
    pub(super) silence: Duration,
    /// Seconds that one watch request lasts. kube closes a connection that is silent for five seconds longer.
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

/// One generation of the credential that the hub's plugin issued.
#[derive(Debug)]
pub(super) struct HubIdentity<R> {
    cache: CredentialCache<R>,
    spec: PluginSpec,
    watch: CredentialWatch<R>,
    issued: Arc<Issued>,
}

impl<R: PluginRunner> HubConnector<R> {
    /// `plugins` has the plugin of the hub's user, if there is one.
    pub(super) fn new(hub: HubAccess, plugins: Arc<Providers>, cache: CredentialCache<R>) -> Self {
        let name = plugins.iter().next().map(|provider| Arc::clone(&provider.name));
        let plugin = name.map(|name| (Resolver::new(plugins, None), name));
        Self { hub, timeouts: HubTimeouts::default(), page: AtomicU32::new(PAGES.0), plugin, cache }
    }

    /// A client with the current credential. Files are read again each time, because they may have been replaced.
    pub(super) async fn client(&self) -> Result<(Client, Option<HubIdentity<R>>), HubError> {
        let mut config = self.config().await?;
        config.connect_timeout = Some(self.timeouts.connect);
        config.read_timeout = Some(self.timeouts.silence);
        config.reset_reader_on_write = true;
        let identity = match &self.plugin {
            Some(_) if config.auth_info.exec.is_none() => return Err(HubError::NoPlugin),
            Some((resolver, name)) => Some(self.identity(resolver, name).await?),
            // kube would run it itself: three times, without a limit and with its output in errors.
            None if config.auth_info.exec.is_some() => return Err(HubError::NewPlugin),
            None if config.auth_info.auth_provider.is_some() => return Err(HubError::AuthProvider),
            None => None,
        };
        if let Some(identity) = &identity {
            config.auth_info = auth_info(&identity.issued, config.auth_info);
        }
        let watch = Duration::from_secs(self.timeouts.watch.into()) + self.timeouts.silence;
        let bounds = Bounds { answer: self.timeouts.answer, watch };
        let client = ClientBuilder::try_from(config).map_err(HubError::of_client)?;
        Ok((client.with_layer(&bounds).build(), identity))
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
                let kubeconfig = Kubeconfig::read_from(path).map_err(HubError::of_kubeconfig)?;
                let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(HubError::of_kubeconfig)
            }
        }
    }

    async fn identity(&self, resolver: &Resolver, name: &str) -> Result<HubIdentity<R>, HubError> {
        let resolve = || {
            let ask = CredentialRequest {
                source: Source::Provider(ProviderRef::named(name)),
                ..CredentialRequest::default()
            };
            resolver.resolve(ask).map_err(HubError::Plugin)
        };
        let mut watch = self.cache.watch(resolve()?, Caller::default()).map_err(HubError::Credential)?;
        let issued = watch.next().await.map_err(HubError::Credential)?;
        Ok(HubIdentity { cache: self.cache.clone(), spec: resolve()?, watch, issued })
    }
}

impl<R: PluginRunner> HubIdentity<R> {
    /// Resolves when the credential changes or can no longer be had, so that a new connection is needed.
    pub(super) async fn rotated(&mut self) {
        loop {
            match self.watch.next().await {
                Ok(issued) if issued.generation == self.issued.generation => {} // only its lifetime changed
                Ok(_) | Err(_) => return,
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
        let issued = crate::credential::with_token("t");
        let auth = auth_info(&issued, of_file);
        assert_eq!(auth.impersonate.as_deref(), Some("reader"));
        assert_eq!(auth.impersonate_groups, Some(vec!["fleet".to_owned()]));
        assert_eq!(auth.token.unwrap().expose_secret(), "t");
        assert!(auth.token_file.is_none(), "the credential is the plugin's alone");
    }
}
