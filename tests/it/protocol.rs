//! What is served beside the credential: health, reflection.

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::harness::InProcess;

/// The client that everybody else uses: tonic's own.
pub(crate) async fn channel(broker: &InProcess) -> Channel {
    let path = broker.socket();
    let connect = tower::service_fn(move |_| {
        let path = path.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connect).await.unwrap()
}

#[tokio::test]
async fn health_is_served_as_a_whole_and_for_the_service() {
    let broker = InProcess::idle();
    let mut health = HealthClient::new(channel(&broker).await);
    for service in ["", "credbroker.v1.CredentialBroker"] {
        let answer =
            health.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
}

#[tokio::test]
async fn reflection_names_every_service() {
    let broker = InProcess::idle();
    let mut reflection = ServerReflectionClient::new(channel(&broker).await);
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = reflection.server_reflection_info(tokio_stream(ask)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["credbroker.v1.CredentialBroker", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
}

/// A stream of one message.
fn tokio_stream<T: Send + 'static>(item: T) -> impl tonic::IntoStreamingRequest<Message = T> {
    tonic::Request::new(tokio_stream::once(item))
}
