//! The credential of a broker, for a service that only sends it.

use anyhow::Result;
use credbroker_client::{Client, CredentialRef, Socket};
use credbroker_lab::broker::PROVIDER;
use credbroker_proto::v1::Credential;
use secrecy::ExposeSecret;

/// The broker's credential, as a message.
pub(crate) async fn credential(socket: &Socket) -> Result<Credential> {
    let client = Client::connect(socket).await?;
    let held = client.credential(&CredentialRef::provider(PROVIDER)).await?;
    Ok(Credential {
        generation: held.generation().to_owned(),
        token: held.token().map(|token| token.expose_secret().to_owned()),
        expiration_time: held.expires_at().map(Into::into),
        lifetime: held.lifetime().and_then(|lifetime| lifetime.try_into().ok()),
        ..Credential::default()
    })
}
