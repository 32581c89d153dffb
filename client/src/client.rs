//! Questions to the broker.

use std::{sync::Arc, time::Duration};

use credbroker_proto::v1::{
    GetCredentialRequest, GetCredentialResponse, credential_broker_client::CredentialBrokerClient,
};
use http::Uri;
use tokio::time::{sleep, timeout};

use crate::{Error, Socket, connect::connect, patience::Patience, transport::Transport};

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// For a broker that is not there yet.
    pub for_broker: Duration,
    /// For the answer, everything included. Longer than a plugin may run, or its error never arrives.
    pub in_all: Duration,
}

/// Asks once, from finding the socket to the answer. A broker that is not there yet, or that leaves before it answers
/// (a restart), is waited for as `waits` says.
///
/// Dropping the future does not stop a plugin run that it started: other callers may be waiting for it.
///
/// # Errors
///
/// Every [`Error`]; its variants say what the caller can do.
pub async fn ask(
    socket: &Socket,
    request: GetCredentialRequest,
    waits: Waits,
) -> Result<GetCredentialResponse, Error> {
    // Why a broker is being waited for at this moment: out of time then means that there was none.
    let mut absent = None;
    let attempts = async {
        let mut patience = Patience::new(waits.for_broker);
        loop {
            let outcome = attempt(socket, request.clone()).await;
            let Err(error) = outcome else { return outcome };
            match patience.next().filter(|_| error.may_be_starting()) {
                Some(pause) => {
                    absent = Some(error);
                    sleep(pause).await;
                    absent = None;
                }
                None => return Err(error),
            }
        }
    };
    let limit = waits.in_all;
    match timeout(limit, attempts).await {
        Ok(outcome) => outcome,
        Err(_) => Err(absent.unwrap_or(Error::Timeout { limit })),
    }
}

/// One connection to the broker. Clones share it; requests on it run side by side.
#[derive(Clone, Debug)]
pub struct Client {
    rpc: CredentialBrokerClient<Transport>,
    socket: Socket,
}

impl Client {
    /// Connects to the first of the socket's paths that exists, once it is known to be trusted. One attempt; needs a
    /// tokio runtime, on which the connection lives.
    ///
    /// # Errors
    ///
    /// - [`Error::Unreachable`]: nothing listens there.
    /// - [`Error::Untrusted`]: something does, but it may be an impostor.
    pub async fn connect(socket: &Socket) -> Result<Self, Error> {
        let stream = connect(socket).await?;
        let transport = Transport::over(stream)
            .await
            .map_err(|lost| Error::Unreachable { socket: socket.clone(), source: Arc::new(lost) })?;
        let rpc = CredentialBrokerClient::with_origin(transport, Uri::from_static("http://localhost"));
        Ok(Self { rpc, socket: socket.clone() })
    }

    /// The credential; the broker runs its plugin only if it holds no valid one.
    ///
    /// # Errors
    ///
    /// - [`Error::Failed`]: the broker has none; its `reason` says why.
    /// - [`Error::Unreachable`]: the connection ended; [`Client::connect`] again.
    pub async fn credential(
        &mut self,
        request: GetCredentialRequest,
    ) -> Result<GetCredentialResponse, Error> {
        match self.rpc.get_credential(request).await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(Error::from_status(&self.socket, &status)),
        }
    }
}

async fn attempt(socket: &Socket, request: GetCredentialRequest) -> Result<GetCredentialResponse, Error> {
    Client::connect(socket).await?.credential(request).await
}
