#![expect(clippy::disallowed_methods, reason = "tests read the paused clock and start the other end")]

use std::pin::Pin;

use credbroker_proto::v1::{
    self,
    credential_broker_server::{CredentialBroker, CredentialBrokerServer},
};
use futures_util::{StreamExt as _, stream};
use tokio::io::duplex;
use tonic::{Request, Response, Status};

use super::*;
use crate::admin::{Selector, client::REFRESH};

fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// A listener that accepts every connection and sends nothing.
fn mute() -> (tempfile::TempDir, Socket, tokio::net::UnixListener) {
    use std::os::unix::fs::PermissionsExt as _;
    let private = std::fs::Permissions::from_mode(0o700);
    let directory = tempfile::Builder::new().permissions(private).tempdir().unwrap();
    let path = directory.path().join("broker.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    (directory, Socket::at(path), listener)
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_accepts_and_sends_nothing_costs_five_seconds_and_no_more() {
    let (_directory, socket, _listener) = mute();
    let begun = now();
    let error = Client::connect(&socket).await.unwrap_err();
    assert_eq!(now() - begun, HANDSHAKE);
    assert!(error.is_silence(), "{error:?}");
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(text.ends_with(": it accepted the connection and sent nothing for 5s"), "{text}");
}

#[tokio::test]
async fn the_connection_to_a_silent_peer_is_closed() {
    let (ours, mut theirs) = duplex(64 * 1024);
    let transport = timeout(Duration::from_millis(10), Transport::over(ours)).await;
    assert!(transport.is_err());
    let mut said = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut theirs, &mut said).await.unwrap();
    assert!(said.starts_with(b"PRI * HTTP/2.0"));
}

/// Sends SETTINGS and acknowledges ours, and pings too if it is to; answers no request.
async fn begins_and_stops(mut stream: tokio::io::DuplexStream, pings: bool) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut preface = [0; 24];
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    stream.read_exact(&mut preface).await.unwrap();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        let (kind, acknowledged) = (head[3], head[4] & 1 == 1);
        let settings = kind == 4 && !acknowledged;
        let ping = kind == 6 && !acknowledged && pings;
        if settings {
            stream.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).await.unwrap();
        } else if ping {
            stream.write_all(&[0, 0, 8, 6, 1, 0, 0, 0, 0]).await.unwrap();
            stream.write_all(&payload).await.unwrap();
        }
    }
}

async fn stuck(pings: bool) -> Client {
    let (ours, theirs) = duplex(64 * 1024);
    tokio::spawn(begins_and_stops(theirs, pings));
    Client::over(ours, &Socket::at("/s")).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_call_ends_at_its_deadline() {
    let limit = Duration::from_secs(7);
    let reference = CredentialRef::provider("p");
    let default = stuck(true).await;
    for (client, expected) in [(default.clone(), ANSWER), (default.timeout(limit), limit)] {
        macro_rules! late {
            ($call:expr, $limit:expr) => {
                let begun = now();
                let Err(error) = $call.await else { panic!("an answer") };
                assert!(
                    matches!(error, Error::Timeout { limit, .. } if limit == $limit),
                    "{}: {error:?}",
                    stringify!($call)
                );
                assert_eq!(now() - begun, $limit);
            };
        }
        late!(client.credential(&reference), expected);
        late!(client.clusters(None), expected);
        late!(client.watch(&reference), expected);
        late!(client.watch_clusters(None, false), expected);
        late!(client.report_rejected(&reference, "1"), expected);
        let admin = client.admin();
        late!(admin.credentials(&Selector::All), expected);
        late!(admin.providers(), expected);
        late!(admin.broker_info(), expected);
        late!(admin.evict(&Selector::All), expected);
        let refresh = client.limit.unwrap_or(REFRESH);
        late!(admin.refresh(&Selector::All), refresh);
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_answering_pings_is_lost_long_before_a_generous_deadline() {
    let admin = stuck(false).await.admin();
    let begun = now();
    let error = admin.refresh(&Selector::All).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(now() - begun <= Duration::from_secs(46), "{:?}", now() - begun);
}

/// A broker whose watches have one message and then the end, which the test chooses.
struct Ending {
    credential: v1::Credential,
    end: Option<Status>,
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Ending {
    /// Without an end the stream stays open.
    fn messages<T: Send + 'static>(&self, message: T, is_open: bool) -> Messages<T> {
        let first = stream::iter([Ok(message)]).chain(stream::iter(self.end.clone().map(Err)));
        if is_open { first.chain(stream::pending()).boxed() } else { first.boxed() }
    }

    fn is_unusable(&self) -> bool {
        self.credential.token.is_none()
    }
}

/// A client of this broker, over a connection without a socket.
pub(crate) async fn serve(broker: impl CredentialBroker) -> Client {
    let (ours, theirs) = duplex(64 * 1024);
    let incoming = tokio_stream::once(Ok::<_, std::io::Error>(theirs));
    let service = CredentialBrokerServer::new(broker);
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    Client::over(ours, &Socket::at("/s")).await.unwrap()
}

#[tonic::async_trait]
impl CredentialBroker for Ending {
    async fn watch_credential(
        &self,
        _: Request<WatchCredentialRequest>,
    ) -> Result<Response<Messages<v1::WatchCredentialResponse>>, Status> {
        let message =
            v1::WatchCredentialResponse { credential: Some(self.credential.clone()), cluster: None };
        Ok(Response::new(self.messages(message, self.is_unusable())))
    }

    async fn watch_clusters(
        &self,
        _: Request<WatchClustersRequest>,
    ) -> Result<Response<Messages<v1::WatchClustersResponse>>, Status> {
        Ok(Response::new(self.messages(v1::WatchClustersResponse::default(), false)))
    }
}

fn token() -> v1::Credential {
    v1::Credential { generation: "1".into(), token: Some("t".into()), ..v1::Credential::default() }
}

/// The errors of a stream, which ends.
async fn errors<T>(stream: impl Stream<Item = Result<T, Error>>) -> Vec<Error> {
    let items: Vec<_> = stream.collect().await;
    items.into_iter().filter_map(Result::err).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_first_error_and_has_no_other() {
    let reference = CredentialRef::provider("p");
    let denied = || Some(Status::permission_denied("no"));
    let client = serve(Ending { credential: token(), end: denied() }).await;
    for errors in [
        errors(client.watch(&reference).await.unwrap()).await,
        errors(client.watch_clusters(None, false).await.unwrap()).await,
    ] {
        assert!(matches!(&*errors, [Error::Failed(failure)] if failure.message == "no"), "{errors:?}");
    }

    let client = serve(Ending { credential: token(), end: None }).await;
    for errors in [
        errors(client.watch(&reference).await.unwrap()).await,
        errors(client.watch_clusters(None, false).await.unwrap()).await,
    ] {
        assert!(matches!(&*errors, [Error::Unreachable { .. }]), "{errors:?}");
    }

    let unusable = v1::Credential { token: None, ..token() };
    let client = serve(Ending { credential: unusable, end: None }).await;
    let errors = timeout(ANSWER, errors(client.watch(&reference).await.unwrap())).await.unwrap();
    assert!(matches!(&*errors, [Error::Unusable { .. }]), "{errors:?}");
}

#[tokio::test]
async fn the_longest_duration_is_a_timeout_as_any_other() {
    let client = serve(Ending { credential: token(), end: None }).await.timeout(Duration::MAX);
    let error = client.clusters(None).await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, credbroker_proto::Code::Unimplemented, "{error:?}");
}
