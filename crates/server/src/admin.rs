//! `CredentialBrokerAdmin`: the cache, the providers and the broker itself, for people and tools.

use std::sync::Arc;

use credbroker_proto::v1 as pb;
use pb::credential_broker_admin_server::CredentialBrokerAdmin;
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

use super::{
    access::Access,
    audit_record::Asked,
    numbers::ValueNumbers,
    overview::{self, PAGE},
    paging::{self, Paging},
    selector::{administered, selector},
    service::{BrokerService, span},
};
use credbroker_cache::{KeyStatus, Selector};
use credbroker_plugin::{
    Definition, Provider,
    access::{CallTarget, Permit, Rights, Verb},
};
use credbroker_runner::PluginRunner;

#[tonic::async_trait]
impl<R: PluginRunner> CredentialBrokerAdmin for BrokerService<R> {
    async fn list_credentials(
        &self,
        request: Request<pb::ListCredentialsRequest>,
    ) -> Result<Response<pb::ListCredentialsResponse>, Status> {
        span(&request, "list_credentials")?;
        let rights = self.need(&request, "list_credentials", Verb::List)?;
        let pb::ListCredentialsRequest { selector, page_size, page_token, with_key_parts } =
            request.into_inner();
        let selector = self.listed(selector, &rights)?;
        let mut numbers = with_key_parts.then(ValueNumbers::default);
        let row = |held: &KeyStatus| pb::CredentialState {
            key_parts: numbers.as_mut().map(|numbers| numbers.key_parts(&held.spec)).unwrap_or_default(),
            ..overview::state(held)
        };
        let page = (page_size, page_token.as_str());
        let (credentials, next_page_token) = overview::page(&self.cache, &selector, &rights, page, row)?;
        Ok(Response::new(pb::ListCredentialsResponse { credentials, next_page_token }))
    }

    async fn refresh_credentials(
        &self,
        request: Request<pb::RefreshCredentialsRequest>,
    ) -> Result<Response<pb::RefreshCredentialsResponse>, Status> {
        let span = span(&request, "refresh_credentials")?;
        let rights = self.need(&request, "refresh_credentials", Verb::Admin)?;
        let permit = Permit::new(Arc::clone(&rights), Verb::Admin);
        let selector = selector(request.into_inner().selector, &self.resolver, &permit)?;
        let selector = administered(selector, &self.cache, &rights);
        let refreshed = count(self.cache.refresh(&selector).instrument(span).await);
        Ok(Response::new(pb::RefreshCredentialsResponse { refreshed }))
    }

    async fn evict_credentials(
        &self,
        request: Request<pb::EvictCredentialsRequest>,
    ) -> Result<Response<pb::EvictCredentialsResponse>, Status> {
        span(&request, "evict_credentials")?;
        let rights = self.need(&request, "evict_credentials", Verb::Admin)?;
        let permit = Permit::new(Arc::clone(&rights), Verb::Admin);
        let selector = selector(request.into_inner().selector, &self.resolver, &permit)?;
        let selector = administered(selector, &self.cache, &rights);
        let evicted = count(self.cache.evict(&selector));
        Ok(Response::new(pb::EvictCredentialsResponse { evicted }))
    }

    async fn list_providers(
        &self,
        request: Request<pb::ListProvidersRequest>,
    ) -> Result<Response<pb::ListProvidersResponse>, Status> {
        span(&request, "list_providers")?;
        let rights = self.need(&request, "list_providers", Verb::List)?;
        let pb::ListProvidersRequest { page_size, page_token } = request.into_inner();
        let (paging, after) = Paging::read("providers", &(), PAGE, page_size, &page_token)?;
        let after = match after {
            None => None,
            Some(position) => {
                let (definition, name) = position.split_once('/').ok_or_else(paging::foreign)?;
                Some((name, definition))
            }
        };
        let providers = self.resolver.providers();
        let shows = |name: &str| rights.allows(Verb::List, CallTarget::Provider(name));
        let mut rest: Vec<_> = providers
            .iter()
            .filter(|provider| shows(&provider.name) && after.is_none_or(|after| position(provider) > after))
            .collect();
        rest.sort_unstable_by(|one, other| position(one).cmp(&position(other)));
        let rows = rest.into_iter().map(|provider| (overview::provider(&providers, provider), provider));
        let (providers, next_page_token) = paging.fill(rows, |provider| {
            let (name, definition) = position(provider);
            format!("{definition}/{name}")
        });
        Ok(Response::new(pb::ListProvidersResponse { providers, next_page_token }))
    }

    async fn get_broker_info(
        &self,
        request: Request<pb::GetBrokerInfoRequest>,
    ) -> Result<Response<pb::GetBrokerInfoResponse>, Status> {
        span(&request, "get_broker_info")?;
        self.need(&request, "get_broker_info", Verb::List)?;
        let hub = self.resolver.fleet().map(|_| self.clusters.hub());
        Ok(Response::new(self.info.message(hub)))
    }
}

impl<R: PluginRunner> BrokerService<R> {
    /// The rights of the caller, if it may do `verb` with anything. Records the decision.
    fn need<T>(&self, request: &Request<T>, call: &'static str, verb: Verb) -> Result<Arc<Rights>, Status> {
        let access = Access::of(request)?;
        Asked::call(&self.audit, access, call).decided(access.need(verb))
    }

    /// What a request selects to see; everything if it has no selector.
    fn listed(
        &self,
        selector: Option<pb::CredentialSelector>,
        rights: &Arc<Rights>,
    ) -> Result<Selector, Status> {
        match selector {
            None => Ok(Selector::All),
            selector => {
                self::selector(selector, &self.resolver, &Permit::new(Arc::clone(rights), Verb::List))
            }
        }
    }
}

/// Place of a provider in the list. A page token has it too, and is valid without that provider.
fn position(provider: &Provider) -> (&str, &str) {
    (&provider.name, provider.definition.as_ref().map_or("", Definition::digest))
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
