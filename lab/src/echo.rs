//! The bare service: tonic without changes, with the same contract, one answer for all callers, and no logic.

use std::{
    fs, io,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};

use anyhow::Result;
use credbroker_proto::v1::{
    Credential, GetCredentialRequest, GetCredentialResponse,
    credential_broker_server::{CredentialBroker, CredentialBrokerServer},
};
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tonic::{Request, Response, Status, codegen::tokio_stream::Stream, transport::Server};

/// The bench starts itself with this argument.
pub const COMMAND: &str = "echo-server";

/// What [`serve`] reads.
pub fn encoded(credential: &Credential) -> Vec<u8> {
    GetCredentialResponse { credential: Some(credential.clone()), ..Default::default() }.encode_to_vec()
}

/// Serves until it is killed, on the same kind of runtime as the daemon.
pub fn serve(socket: &Path, answer: &Path) -> Result<()> {
    let answer = GetCredentialResponse::decode(fs::read(answer)?.as_slice())?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = UnixListener::bind(socket)?;
        let service = CredentialBrokerServer::new(Echo { answer });
        Ok(Server::builder().add_service(service).serve_with_incoming(Incoming(listener)).await?)
    })
}

struct Echo {
    answer: GetCredentialResponse,
}

#[tonic::async_trait]
impl CredentialBroker for Echo {
    async fn get_credential(
        &self,
        _: Request<GetCredentialRequest>,
    ) -> Result<Response<GetCredentialResponse>, Status> {
        Ok(Response::new(self.answer.clone()))
    }
}

struct Incoming(UnixListener);

impl Stream for Incoming {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}
