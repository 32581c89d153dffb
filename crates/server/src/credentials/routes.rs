//! The `CredentialBroker` service: which call is handled where.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use credbroker_proto::v1 as pb;
use http::Request as HttpRequest;
use pb::credential_broker_server::CredentialBrokerServer;
use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, NamedService, ServerStreamingService, UnaryService},
};
use tower::Service;

use super::GET;
use crate::{codec::Encoded, follow::CredentialMessages, service::BrokerService};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::REQUEST;

/// The `CredentialBroker` service. It handles the calls of this module, and the generated service handles the others.
#[derive(Debug)]
pub(crate) struct Credentials<R> {
    broker: Arc<BrokerService<R>>,
    others: CredentialBrokerServer<BrokerService<R>>,
}

impl<R> Clone for Credentials<R> {
    fn clone(&self) -> Self {
        Self { broker: Arc::clone(&self.broker), others: self.others.clone() }
    }
}

impl<R: PluginRunner> Credentials<R> {
    pub(crate) fn new(broker: Arc<BrokerService<R>>) -> Self {
        let others = CredentialBrokerServer::from_arc(Arc::clone(&broker));
        Self { broker, others: others.max_decoding_message_size(REQUEST) }
    }
}

impl<R> NamedService for Credentials<R> {
    const NAME: &'static str = "credbroker.v1.CredentialBroker";
}

type ResponseFuture<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;

impl<R: PluginRunner> Service<HttpRequest<Body>> for Credentials<R> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let broker = Arc::clone(&self.broker);
        match request.uri().path() {
            GET => Box::pin(async move { Ok(grpc().unary(GetCredential(broker), request).await) }),
            "/credbroker.v1.CredentialBroker/WatchCredential" => {
                Box::pin(async move { Ok(grpc().server_streaming(WatchCredential(broker), request).await) })
            }
            "/credbroker.v1.CredentialBroker/AttendCredential" => {
                Box::pin(async move { Ok(grpc().server_streaming(AttendCredential(broker), request).await) })
            }
            "/credbroker.v1.CredentialBroker/ReportRejected" => {
                Box::pin(async move { Ok(grpc().unary(ReportRejected(broker), request).await) })
            }
            _ => self.others.call(request),
        }
    }
}

fn grpc<T: prost::Message + Default + Send + 'static>() -> Grpc<Encoded<T>> {
    Grpc::new(Encoded::default()).apply_max_message_size_config(Some(REQUEST), None)
}

struct GetCredential<R>(Arc<BrokerService<R>>);

impl<R: PluginRunner> UnaryService<pb::GetCredentialRequest> for GetCredential<R> {
    type Response = Bytes;
    type Future = ResponseFuture<Response<Bytes>>;

    fn call(&mut self, request: Request<pb::GetCredentialRequest>) -> Self::Future {
        let broker = Arc::clone(&self.0);
        Box::pin(async move { broker.get(request).await })
    }
}

struct WatchCredential<R>(Arc<BrokerService<R>>);

impl<R: PluginRunner> ServerStreamingService<pb::WatchCredentialRequest> for WatchCredential<R> {
    type Response = Bytes;
    type ResponseStream = CredentialMessages;
    type Future = ResponseFuture<Response<CredentialMessages>>;

    fn call(&mut self, request: Request<pb::WatchCredentialRequest>) -> Self::Future {
        let broker = Arc::clone(&self.0);
        Box::pin(async move { broker.watch(request).await })
    }
}

struct AttendCredential<R>(Arc<BrokerService<R>>);

impl<R: PluginRunner> ServerStreamingService<pb::AttendCredentialRequest> for AttendCredential<R> {
    type Response = Bytes;
    type ResponseStream = CredentialMessages;
    type Future = ResponseFuture<Response<CredentialMessages>>;

    fn call(&mut self, request: Request<pb::AttendCredentialRequest>) -> Self::Future {
        let broker = Arc::clone(&self.0);
        Box::pin(async move { broker.attend(request).await })
    }
}

struct ReportRejected<R>(Arc<BrokerService<R>>);

impl<R: PluginRunner> UnaryService<pb::ReportRejectedRequest> for ReportRejected<R> {
    type Response = Bytes;
    type Future = ResponseFuture<Response<Bytes>>;

    fn call(&mut self, request: Request<pb::ReportRejectedRequest>) -> Self::Future {
        let broker = Arc::clone(&self.0);
        Box::pin(async move { broker.report(request).await })
    }
}
