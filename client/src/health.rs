//! gRPC health of the broker.

use http::{Uri, uri::PathAndQuery};
use tonic::{Status, client::Grpc};
use tonic_prost::ProstCodec;

use crate::{deadline::CallDeadline, error::Error, socket::Socket, transport::Transport};

const CHECK: &str = "/grpc.health.v1.Health/Check";
/// `ServingStatus.SERVING`.
const SERVING: i32 = 1;

/// Whether `service` of the broker on `socket` is serving. gRPC health has no name for the broker itself.
pub(crate) async fn check(
    transport: Transport,
    socket: &Socket,
    deadline: CallDeadline,
    service: &str,
) -> Result<bool, Error> {
    let mut rpc = Grpc::with_origin(transport, Uri::from_static("http://localhost"));
    // Both messages have one field, and the same bytes as protobuf's wrappers of a string and a number.
    let request = deadline.request(service.to_owned());
    let answer = async {
        rpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        rpc.unary(request, PathAndQuery::from_static(CHECK), ProstCodec::<String, i32>::default()).await
    };
    Ok(deadline.response(socket, answer).await? == SERVING)
}
