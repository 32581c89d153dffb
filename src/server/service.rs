//! The RPCs: convert, ask the cache, convert.

use std::sync::Arc;

use credbroker_proto::{FILE_DESCRIPTOR_SET, v1 as pb};
use pb::credential_broker_server::{CredentialBroker, CredentialBrokerServer};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, service::Routes};
use tonic_health::server::HealthReporter;
use tracing::{Instrument as _, debug, debug_span};

use super::{Peer, convert, status, until_drained::UntilDrained};
use crate::{cache::CredentialCache, exec::PluginRunner, plugin::Providers};

/// Bytes of a request: a cluster with its authorities, and the caller's variables.
const REQUEST: usize = 256 * 1024;

/// The service over one cache and one configuration.
#[derive(Debug)]
pub struct BrokerService<R> {
    cache: CredentialCache<R>,
    providers: Arc<Providers>,
}

/// The broker's routes: the service, gRPC health and server reflection.
pub fn routes<R: PluginRunner>(
    cache: CredentialCache<R>,
    providers: Arc<Providers>,
    health: HealthReporter,
    draining: &CancellationToken,
) -> Routes {
    let service =
        CredentialBrokerServer::new(BrokerService { cache, providers }).max_decoding_message_size(REQUEST);
    let health = tonic_health::server::HealthService::from_health_reporter(health);
    let health = tonic_health::pb::health_server::HealthServer::new(health);
    let ending = || draining.clone();
    let routes = Routes::new(service).add_service(UntilDrained::new(health, ending()));
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Both descriptor sets are ours and committed; a test asks the service for them.
    match (reflection().build_v1(), reflection().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => {
            let routes = routes.add_service(UntilDrained::new(v1, ending()));
            routes.add_service(UntilDrained::new(v1alpha, ending()))
        }
        _ => routes,
    }
}

#[tonic::async_trait]
impl<R: PluginRunner> CredentialBroker for BrokerService<R> {
    async fn get_credential(
        &self,
        request: Request<pb::GetCredentialRequest>,
    ) -> Result<Response<pb::GetCredentialResponse>, Status> {
        let peer = request.extensions().get::<Peer>().copied().ok_or_else(status::no_peer)?;
        // At debug: a span that nobody sees costs nothing, and a hit has nothing to tell.
        let span = debug_span!("get_credential", uid = peer.uid, pid = peer.pid);
        let ask = convert::ask(request.into_inner().credential)?;
        self.get(ask).instrument(span).await
    }
}

impl<R: PluginRunner> BrokerService<R> {
    async fn get(&self, ask: crate::plugin::Ask) -> Result<Response<pb::GetCredentialResponse>, Status> {
        let spec = self.providers.resolve(ask).map_err(|error| {
            debug!("request refused: {error}");
            status::unresolved(&error)
        })?;
        let (provider, key) = (Arc::clone(&spec.provider), spec.key);
        let cluster = spec.cluster.as_ref().map(convert::cluster_message);
        let issued = self.cache.get(spec).await.map_err(|failed| {
            debug!(provider = %provider.name, %key, "request failed: {failed}");
            status::failed(&provider.name, &failed)
        })?;
        let credential = Some(convert::credential(&issued));
        Ok(Response::new(pb::GetCredentialResponse { credential, cluster }))
    }
}
