//! The bare limit of a list: tonic as it comes, with the pages as they were answered once and nothing behind them.

use std::{
    fs, io,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};

use anyhow::Result;
use credbroker_proto::v1::{
    ListClustersRequest, ListClustersResponse,
    credential_broker_server::{CredentialBroker, CredentialBrokerServer},
};
use prost::Message as _;
use tokio::net::{UnixListener, UnixStream};
use tonic::{Request, Response, Status, codegen::tokio_stream::Stream, transport::Server};

/// The bench starts itself with this argument.
pub(crate) const COMMAND: &str = "mirror-server";

/// What [`serve`] reads.
pub(crate) fn encoded(pages: &[ListClustersResponse]) -> Vec<u8> {
    pages.iter().flat_map(ListClustersResponse::encode_length_delimited_to_vec).collect()
}

/// Serves until it is killed.
pub(crate) async fn serve(socket: &Path, pages: &Path) -> Result<()> {
    let bytes = fs::read(pages)?;
    let (mut rest, mut pages) = (bytes.as_slice(), Vec::new());
    while !rest.is_empty() {
        pages.push(ListClustersResponse::decode_length_delimited(&mut rest)?);
    }
    let service = CredentialBrokerServer::new(Mirror { pages });
    let incoming = Incoming(UnixListener::bind(socket)?);
    Ok(Server::builder().add_service(service).serve_with_incoming(incoming).await?)
}

struct Mirror {
    pages: Vec<ListClustersResponse>,
}

#[tonic::async_trait]
impl CredentialBroker for Mirror {
    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        let token = request.into_inner().page_token;
        let before = self.pages.iter().position(|page| page.next_page_token == token && token.is_some());
        let page = self.pages.get(before.map_or(0, |before| before + 1));
        Ok(Response::new(page.cloned().unwrap_or_default()))
    }
}

struct Incoming(UnixListener);

impl Stream for Incoming {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}
