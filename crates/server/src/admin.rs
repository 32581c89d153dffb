//! `CredentialBrokerAdmin`: the cache, the providers and the broker itself, for people and tools.

use std::sync::Arc;

use credbroker_proto::v1::{self as pb, credential_selector::Selector as Selected};
use pb::credential_broker_admin_server::CredentialBrokerAdmin;
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, debug_span};

use super::{
    access::Access,
    convert,
    overview::{self, ValueNumbers},
    paging::Paging,
    service::BrokerService,
    status,
};
use credbroker_cache::{KeyStatus, ListPosition, Selector};
use credbroker_fleet::resolver::Source;
use credbroker_plugin::{
    PluginKey, PluginSpec, Provider, ProviderRef, ResolveError,
    access::{CallTarget, Permit, Rights, Verb},
};
use credbroker_runner::PluginRunner;

/// Bytes of one page. Many clients limit a message to 4 MiB, and a key that fails has an error message of 2 KiB.
const PAGE: usize = 1 << 20;
/// Number of keys that are read from the cache at a time.
const BATCH: usize = 512;

#[tonic::async_trait]
impl<R: PluginRunner> CredentialBrokerAdmin for BrokerService<R> {
    async fn list_credentials(
        &self,
        request: Request<pb::ListCredentialsRequest>,
    ) -> Result<Response<pb::ListCredentialsResponse>, Status> {
        let rights = self.need(&request, "list_credentials", Verb::List)?;
        let pb::ListCredentialsRequest { selector, page_size, page_token, with_key_parts } =
            request.into_inner();
        let selector = match selector {
            None => Selector::All,
            selector => self.selector(selector, &Permit::new(Arc::clone(&rights), Verb::List))?,
        };
        let (paging, after) =
            Paging::read("credentials", &format!("{selector:?}"), PAGE, page_size, &page_token)?;
        let after = after.map(|(provider, key): (String, _)| (provider.into(), PluginKey(key)));
        let held = self.held(&selector, after);
        let shown = held.filter(|held| is_about(&rights, Verb::List, &held.spec));
        let mut numbers = with_key_parts.then(ValueNumbers::default);
        let row = |held: KeyStatus| {
            let key_parts = numbers.as_mut().map(|numbers| numbers.key_parts(&held.spec));
            let state =
                pb::CredentialState { key_parts: key_parts.unwrap_or_default(), ..overview::state(&held) };
            let (provider, PluginKey(key)) = held.position();
            (state, (provider.to_string(), key))
        };
        let (credentials, next_page_token) = paging.fill(shown.map(row));
        Ok(Response::new(pb::ListCredentialsResponse { credentials, next_page_token }))
    }

    async fn refresh_credentials(
        &self,
        request: Request<pb::RefreshCredentialsRequest>,
    ) -> Result<Response<pb::RefreshCredentialsResponse>, Status> {
        let peer = Access::of(&request)?.peer;
        let span = debug_span!("request", rpc = "refresh_credentials", uid = peer.uid, pid = peer.pid);
        let rights = self.need(&request, "refresh_credentials", Verb::Admin)?;
        let selector = self.administered(request.into_inner().selector, &rights)?;
        let refreshed = count(self.broker.cache.refresh(&selector).instrument(span).await);
        Ok(Response::new(pb::RefreshCredentialsResponse { refreshed }))
    }

    async fn evict_credentials(
        &self,
        request: Request<pb::EvictCredentialsRequest>,
    ) -> Result<Response<pb::EvictCredentialsResponse>, Status> {
        let rights = self.need(&request, "evict_credentials", Verb::Admin)?;
        let selector = self.administered(request.into_inner().selector, &rights)?;
        let evicted = count(self.broker.cache.evict(&selector));
        Ok(Response::new(pb::EvictCredentialsResponse { evicted }))
    }

    async fn list_providers(
        &self,
        request: Request<pb::ListProvidersRequest>,
    ) -> Result<Response<pb::ListProvidersResponse>, Status> {
        let rights = self.need(&request, "list_providers", Verb::List)?;
        let pb::ListProvidersRequest { page_size, page_token } = request.into_inner();
        let (paging, after) = Paging::read("providers", &(), PAGE, page_size, &page_token)?;
        let providers = self.broker.resolver.providers();
        let shown = providers.iter().filter(|of| rights.allows(Verb::List, CallTarget::Provider(&of.name)));
        let rest = shown.map(|provider| (place(provider), provider));
        let mut rest: Vec<_> =
            rest.filter(|(place, _)| after.as_ref().is_none_or(|after| place > after)).collect();
        rest.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let rows =
            rest.into_iter().map(|(place, provider)| (overview::provider(&providers, provider), place));
        let (providers, next_page_token) = paging.fill(rows);
        Ok(Response::new(pb::ListProvidersResponse { providers, next_page_token }))
    }

    async fn get_broker_info(
        &self,
        request: Request<pb::GetBrokerInfoRequest>,
    ) -> Result<Response<pb::GetBrokerInfoResponse>, Status> {
        self.need(&request, "get_broker_info", Verb::List)?;
        Ok(Response::new(overview::broker(&self.broker)))
    }
}

impl<R: PluginRunner> BrokerService<R> {
    /// What a request selects, and `rights` allow to administer.
    fn administered(
        &self,
        selector: Option<pb::CredentialSelector>,
        rights: &Arc<Rights>,
    ) -> Result<Selector, Status> {
        let selector = self.selector(selector, &Permit::new(Arc::clone(rights), Verb::Admin))?;
        if !rights.is_limited() {
            return Ok(selector);
        }
        let allowed = self.held(&selector, None).filter(|held| is_about(rights, Verb::Admin, &held.spec));
        Ok(Selector::Keys(allowed.map(|held| held.spec.key).collect()))
    }

    /// What is selected, from the position `after` on.
    fn held(&self, selector: &Selector, mut after: Option<ListPosition>) -> impl Iterator<Item = KeyStatus> {
        let batches = std::iter::from_fn(move || {
            let batch = self.broker.cache.list(selector, after.as_ref(), BATCH);
            after = Some(batch.last()?.position());
            Some(batch)
        });
        batches.flatten()
    }

    /// Reads a selector that must be set.
    ///
    /// # Errors
    ///
    /// The selector is empty or not valid, it names a provider or a hub that is not configured, or `permit` does not allow
    /// what it names.
    fn selector(&self, message: Option<pb::CredentialSelector>, permit: &Permit) -> Result<Selector, Status> {
        let resolver = &self.broker.resolver;
        let allowed = |source: &Source| {
            let allowed = if permit.allows(source.target()) { Ok(()) } else { Err(source.not_allowed()) };
            allowed.map_err(|error| status::unresolved(&error, source))
        };
        let providers = resolver.providers();
        let known = |name: &str| {
            let source = Source::Provider(ProviderRef::named(name));
            allowed(&source)?;
            let hidden = |error| if permit.hides_unknown() { source.not_allowed() } else { error };
            providers.find(name).map_err(|error| status::unresolved(&hidden(error), &source))
        };
        Ok(match message.and_then(|message| message.selector) {
            None | Some(Selected::All(false)) => {
                return Err(status::invalid(
                    "`selector` is empty: set `provider`, `definition`, `cluster_profile`, `key` or `all`",
                ));
            }
            Some(Selected::All(true)) => Selector::All,
            Some(Selected::Provider(name)) => Selector::Provider(Arc::clone(&known(&name)?.name)),
            Some(Selected::Definition(wanted)) => {
                let provider = Arc::clone(&known(&wanted.name)?.name);
                let pb::ProviderRef { name, definition: Some(definition) } = wanted else {
                    return Err(status::invalid("`selector.definition.definition` is empty"));
                };
                let wanted = ProviderRef { name, definition: Some(definition.clone()) };
                let entry = providers.entry(&wanted).map(drop);
                entry.map_err(|error| status::unresolved(&error, &Source::Provider(wanted)))?;
                Selector::Definition { provider, definition: definition.into() }
            }
            Some(Selected::ClusterProfile(profile)) => {
                let profile = convert::profile_name(profile, "selector.cluster_profile")?;
                let source = Source::ClusterProfile(profile.clone());
                allowed(&source)?;
                if resolver.fleet().is_none() {
                    return Err(status::unresolved(&ResolveError::NoHub(profile), &source));
                }
                Selector::ClusterProfile(profile)
            }
            Some(Selected::Key(key)) => Selector::Key(
                key.parse()
                    .map_err(|error| status::invalid(&format!("`selector.key` is not valid: {error}")))?,
            ),
        })
    }
}

/// Place of a provider in the list. A page token has it too, and is valid without that provider.
fn place(provider: &Provider) -> (String, String) {
    let file =
        provider.definition.as_ref().map(|definition| definition.file().to_string_lossy().into_owned());
    (provider.name.to_string(), file.unwrap_or_default())
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Whether `rights` allow `verb` for the credential of `spec`.
fn is_about(rights: &Rights, verb: Verb, spec: &PluginSpec) -> bool {
    let provider = &spec.provider.name;
    match spec.target.as_ref().map(|target| &target.profile) {
        None => rights.allows(verb, CallTarget::Provider(provider)),
        Some(profile) => {
            rights.allows(verb, CallTarget::Profile(profile, Some(provider)))
                || rights.allows(verb, CallTarget::Through(provider, profile))
        }
    }
}
