//! What is served beside the credential: health, reflection.

use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::harness::InProcess;

const SERVICES: [&str; 3] = [
    "credbroker.v1.CredentialBroker",
    "credbroker.v1alpha1.CredentialBrokerAdmin",
    "credbroker.v1alpha1.CredentialBrokerLogin",
];

#[tokio::test]
async fn health_is_served_as_a_whole_and_for_the_service() {
    let broker = InProcess::idle();
    let mut health = HealthClient::new(broker.channel().await);
    for service in ["", SERVICES[0], SERVICES[1], SERVICES[2]] {
        let answer =
            health.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
}

#[tokio::test]
async fn reflection_names_every_service() {
    let broker = InProcess::idle();
    let mut reflection = ServerReflectionClient::new(broker.channel().await);
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = reflection.server_reflection_info(tokio_stream(ask)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    for name in SERVICES.into_iter().chain(["grpc.health.v1.Health"]) {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
}

/// A client such as grpcurl decodes the details of an error with it.
#[tokio::test]
async fn reflection_describes_the_details_of_errors() {
    let broker = InProcess::idle();
    let mut reflection = ServerReflectionClient::new(broker.channel().await);
    for symbol in ["google.rpc.ErrorInfo", "google.rpc.RetryInfo", "credbroker.v1.ErrorReason"] {
        let ask = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::FileContainingSymbol(symbol.to_owned())),
        };
        let mut answers = reflection.server_reflection_info(tokio_stream(ask)).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
        assert!(matches!(answer, MessageResponse::FileDescriptorResponse(_)), "{symbol}: {answer:?}");
    }
}

/// A stream of one message.
fn tokio_stream<T: Send + 'static>(item: T) -> impl tonic::IntoStreamingRequest<Message = T> {
    tonic::Request::new(tokio_stream::once(item))
}
