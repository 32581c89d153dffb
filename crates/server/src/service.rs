//! The gRPC services, and the calls about clusters.

use std::sync::Arc;

use credbroker_proto::{FILE_DESCRIPTOR_SET, v1 as pb};
use pb::{
    credential_broker_admin_server::CredentialBrokerAdminServer,
    credential_broker_server::{CredentialBroker, CredentialBrokerServer},
};
use tonic::{Request, Response, Status, service::Routes};
use tonic_health::pb::health_server::HealthServer;

use super::{
    access::{Access, watch_slot},
    attend::Leases,
    audit_record::Asked,
    broker::Broker,
    clusters::Clusters,
    convert::deadline,
    credentials::Get,
    health::Health,
    preencoded::{self, MessageStream},
    status,
};
use credbroker_plugin::access::{Rights, Verb};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::REQUEST;

/// The broker's own services.
#[derive(Debug)]
pub(super) struct BrokerService<R> {
    pub(super) broker: Arc<Broker<R>>,
    leases: Leases,
}

/// The services of `broker`: its own, and gRPC health.
pub(super) fn services<R: PluginRunner>(broker: &Arc<Broker<R>>) -> Routes {
    let health = HealthServer::new(Health(Arc::clone(broker)));
    let service = Arc::new(BrokerService { broker: Arc::clone(broker), leases: Leases::default() });
    let admin =
        CredentialBrokerAdminServer::from_arc(Arc::clone(&service)).max_decoding_message_size(REQUEST);
    let service = CredentialBrokerServer::from_arc(service).max_decoding_message_size(REQUEST);
    Routes::new(service).add_service(admin).add_service(health).prepare()
}

/// Server reflection. Its decoded descriptors take half a megabyte.
pub(super) fn reflection() -> Routes {
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
        let frame = self.broker.get(&access, get, deadline).await?;
        preencoded::decoded(&frame).map(Response::new)
    }

    async fn watch_credential(
        &self,
        request: Request<pb::WatchCredentialRequest>,
    ) -> Result<Response<MessageStream<pb::WatchCredentialResponse>>, Status> {
        self.broker.watch(request).await
    }

    async fn attend_credential(
        &self,
        request: Request<pb::AttendCredentialRequest>,
    ) -> Result<Response<MessageStream<pb::AttendCredentialResponse>>, Status> {
        self.broker.attend(&self.leases, request).await
    }

    async fn report_rejected(
        &self,
        request: Request<pb::ReportRejectedRequest>,
    ) -> Result<Response<pb::ReportRejectedResponse>, Status> {
        self.broker.report(request).await
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
        Asked::call(&self.broker.audit, &access, "deposit_output").decided(deposited)?;
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
        self.broker.resolver.fleet().map(|_| &self.broker.clusters).ok_or_else(status::no_hub)
    }

    /// The rights of the caller, if it may do `verb` with anything. Records the decision.
    pub(super) fn need<T>(
        &self,
        request: &Request<T>,
        call: &'static str,
        verb: Verb,
    ) -> Result<Arc<Rights>, Status> {
        let access = Access::of(request)?;
        Asked::call(&self.broker.audit, access, call).decided(access.need(verb))
    }
}
