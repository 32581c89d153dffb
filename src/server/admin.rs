//! `CredentialBrokerAdmin`: the cache, the providers and the broker itself, for people and tools.

use credbroker_proto::v1 as pb;
use pb::credential_broker_admin_server::CredentialBrokerAdmin;
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

use super::{
    overview::{self, PAGE},
    paging::{self, Paging},
    selector::selector,
    service::{BrokerService, span},
};
use crate::{
    cache::Selector,
    exec::PluginRunner,
    plugin::{Definition, Provider},
};

#[tonic::async_trait]
impl<R: PluginRunner> CredentialBrokerAdmin for BrokerService<R> {
    async fn list_credentials(
        &self,
        request: Request<pb::ListCredentialsRequest>,
    ) -> Result<Response<pb::ListCredentialsResponse>, Status> {
        span(&request, "list_credentials")?;
        let pb::ListCredentialsRequest { selector, page_size, page_token } = request.into_inner();
        let selector = match selector {
            None => Selector::All,
            selector => self::selector(selector, &self.resolver)?,
        };
        Ok(Response::new(overview::page(&self.cache, &selector, page_size, &page_token)?))
    }

    async fn refresh_credentials(
        &self,
        request: Request<pb::RefreshCredentialsRequest>,
    ) -> Result<Response<pb::RefreshCredentialsResponse>, Status> {
        let span = span(&request, "refresh_credentials")?;
        let selector = selector(request.into_inner().selector, &self.resolver)?;
        let refreshed = count(self.cache.refresh(&selector).instrument(span).await);
        Ok(Response::new(pb::RefreshCredentialsResponse { refreshed }))
    }

    async fn evict_credentials(
        &self,
        request: Request<pb::EvictCredentialsRequest>,
    ) -> Result<Response<pb::EvictCredentialsResponse>, Status> {
        span(&request, "evict_credentials")?;
        let selector = selector(request.into_inner().selector, &self.resolver)?;
        let evicted = count(self.cache.evict(&selector));
        Ok(Response::new(pb::EvictCredentialsResponse { evicted }))
    }

    async fn list_providers(
        &self,
        request: Request<pb::ListProvidersRequest>,
    ) -> Result<Response<pb::ListProvidersResponse>, Status> {
        span(&request, "list_providers")?;
        let pb::ListProvidersRequest { page_size, page_token } = request.into_inner();
        let (paging, after) = Paging::read("providers", &(), PAGE, page_size, &page_token)?;
        let providers = self.resolver.providers();
        let position = |provider: &Provider| {
            let definition = provider.definition.as_ref().map_or("", Definition::digest);
            format!("{definition}/{}", provider.name)
        };
        let mut rest = providers.iter();
        if let Some(after) = after {
            rest.find(|provider| position(provider) == after).ok_or_else(paging::foreign)?;
        }
        let rows = rest.map(|provider| (overview::provider(&providers, provider), provider));
        let (providers, next_page_token) = paging.fill(rows, |provider| position(provider));
        Ok(Response::new(pb::ListProvidersResponse { providers, next_page_token }))
    }

    async fn get_broker_info(
        &self,
        request: Request<pb::GetBrokerInfoRequest>,
    ) -> Result<Response<pb::GetBrokerInfoResponse>, Status> {
        span(&request, "get_broker_info")?;
        let hub = self.resolver.fleet().map(|_| self.clusters.hub());
        Ok(Response::new(self.info.message(hub)))
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
