//! The gRPC services, and the calls about clusters.

use std::sync::{Arc, OnceLock};

use credbroker_proto::{FILE_DESCRIPTOR_SET, v1 as pb};
use pb::{
    credential_broker_admin_server::CredentialBrokerAdminServer,
    credential_broker_server::{CredentialBroker, CredentialBrokerServer},
};
use tonic::{Request, Response, Status, service::Routes};
use tonic_health::{pb::health_server::HealthServer, server::HealthReporter};

use super::{
    access::{Access, watch_slot},
    attend::Leases,
    audit_record::Asked,
    clusters::Clusters,
    convert::deadline,
    credentials::{Credentials, Get},
    health::Health,
    overview::BrokerInfo,
    preencoded::{self, MessageStream},
    readiness::HealthChecks,
    status,
};
use credbroker_cache::CredentialCache;
use credbroker_fleet::resolver::Resolver;
use credbroker_observe::{audit::Audit, metrics::Metrics};
use credbroker_plugin::access::{Rights, Verb};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::REQUEST;

/// The broker's own service, over one cache and one configuration.
#[derive(Debug)]
pub struct BrokerService<R> {
    pub(super) credentials: Arc<Credentials<R>>,
    /// Empty while the broker reads no ClusterProfiles.
    pub(super) clusters: Arc<Clusters<R>>,
    pub(super) info: BrokerInfo,
    leases: Leases,
}

/// The services that answer requests.
#[derive(Debug)]
pub struct Services<R> {
    pub(super) routes: Routes,
    pub(super) credentials: Arc<Credentials<R>>,
    pub(super) metrics: Arc<Metrics>,
    reflection: OnceLock<Routes>,
}

/// The broker's services: its own, gRPC health and server reflection.
pub fn services<R: PluginRunner>(
    cache: CredentialCache<R>,
    resolver: Arc<Resolver>,
    clusters: Arc<Clusters<R>>,
    health: HealthReporter,
    info: BrokerInfo,
    (metrics, audit): (Arc<Metrics>, Audit),
) -> Services<R> {
    let readiness = HealthChecks::new(cache.clone(), Arc::clone(&resolver));
    let credentials = Arc::new(Credentials { cache, resolver, audit });
    let broker = Arc::new(BrokerService {
        credentials: Arc::clone(&credentials),
        clusters,
        info,
        leases: Leases::default(),
    });
    let health = HealthServer::new(Health::of(health, readiness));
    let admin = CredentialBrokerAdminServer::from_arc(Arc::clone(&broker)).max_decoding_message_size(REQUEST);
    let broker = CredentialBrokerServer::from_arc(broker).max_decoding_message_size(REQUEST);
    let routes = Routes::new(broker).add_service(admin).add_service(health).prepare();
    Services { routes, credentials, metrics, reflection: OnceLock::new() }
}

impl<R> Services<R> {
    /// Server reflection. The first request builds it: its decoded descriptors take half a megabyte.
    pub(super) fn reflection(&self) -> &Routes {
        self.reflection.get_or_init(|| {
            let builder = || {
                tonic_reflection::server::Builder::configure()
                    .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
                    .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                    // Error details, for clients that do not have their definitions.
                    .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
            };
            // Both builds succeed: the descriptor sets are constants, and a test queries the services.
            match (builder().build_v1(), builder().build_v1alpha()) {
                (Ok(v1), Ok(v1alpha)) => Routes::new(v1).add_service(v1alpha).prepare(),
                _ => Routes::default(),
            }
        })
    }
}

#[tonic::async_trait]
impl<R: PluginRunner> CredentialBroker for BrokerService<R> {
    /// For requests that the look-up in memory could not read.
    async fn get_credential(
        &self,
        request: Request<pb::GetCredentialRequest>,
    ) -> Result<Response<pb::GetCredentialResponse>, Status> {
        let (access, deadline) = (Arc::clone(Access::of(&request)?), deadline(request.metadata().as_ref()));
        let get = Get::of(request.into_inner(), &access)?;
        let frame = self.credentials.get(&access, get, deadline).await?;
        preencoded::decoded(&frame).map(Response::new)
    }

    async fn watch_credential(
        &self,
        request: Request<pb::WatchCredentialRequest>,
    ) -> Result<Response<MessageStream<pb::WatchCredentialResponse>>, Status> {
        self.credentials.watch(request).await
    }

    async fn attend_credential(
        &self,
        request: Request<pb::AttendCredentialRequest>,
    ) -> Result<Response<MessageStream<pb::AttendCredentialResponse>>, Status> {
        self.credentials.attend(&self.leases, request).await
    }

    async fn report_rejected(
        &self,
        request: Request<pb::ReportRejectedRequest>,
    ) -> Result<Response<pb::ReportRejectedResponse>, Status> {
        self.credentials.report(request).await
    }

    async fn list_clusters(
        &self,
        request: Request<pb::ListClustersRequest>,
    ) -> Result<Response<pb::ListClustersResponse>, Status> {
        let rights = self.need(&request, "list_clusters", Verb::List)?;
        Ok(Response::new(self.clusters()?.page(request.into_inner(), rights).await?))
    }

    async fn deposit_output(
        &self,
        request: Request<pb::DepositOutputRequest>,
    ) -> Result<Response<pb::DepositOutputResponse>, Status> {
        let access = Arc::clone(Access::of(&request)?);
        let deposited = self.leases.deposit(&access.peer, request.into_inner());
        Asked::call(&self.credentials.audit, &access, "deposit_output").decided(deposited)?;
        Ok(Response::new(pb::DepositOutputResponse {}))
    }

    async fn watch_clusters(
        &self,
        request: Request<pb::WatchClustersRequest>,
    ) -> Result<Response<MessageStream<pb::WatchClustersResponse>>, Status> {
        let (access, slot) = (Arc::clone(Access::of(&request)?), watch_slot(&request)?);
        self.need(&request, "watch_clusters", Verb::List)?;
        Ok(self.clusters()?.follow(request.into_inner().namespace, access, slot).await)
    }
}

impl<R: PluginRunner> BrokerService<R> {
    fn clusters(&self) -> Result<&Arc<Clusters<R>>, Status> {
        self.credentials.resolver.fleet().map(|_| &self.clusters).ok_or_else(status::no_hub)
    }

    /// The rights of the caller, if it may do `verb` with anything. Records the decision.
    pub(super) fn need<T>(
        &self,
        request: &Request<T>,
        call: &'static str,
        verb: Verb,
    ) -> Result<Arc<Rights>, Status> {
        let access = Access::of(request)?;
        Asked::call(&self.credentials.audit, access, call).decided(access.need(verb))
    }
}
