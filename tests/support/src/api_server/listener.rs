//! The accept loop, on a thread and a runtime of its own: a test may block as it likes.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::identity::{Presented, bearer_token};
use super::{SeenRequest, State, lock, routes};

/// Serves until `stopped` resolves; then the runtime goes, and every connection with it.
pub(super) fn run(
    socket: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    state: Arc<State>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async move {
        socket.set_nonblocking(true).expect("a socket for tokio");
        let socket = tokio::net::TcpListener::from_std(socket).expect("a socket for tokio");
        let accept = async {
            loop {
                if let Ok((stream, _)) = socket.accept().await {
                    tokio::spawn(serve(stream, TlsAcceptor::from(Arc::clone(&tls)), Arc::clone(&state)));
                }
            }
        };
        tokio::select! { () = accept => {}, _ = stopped => {} }
    });
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let connection = state.connections.fetch_add(1, Ordering::SeqCst) + 1;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let presented = Presented(chain.iter().map(|certificate| certificate.clone().into_owned()).collect());
    let name = presented.common_name();
    let count = |change: fn(&mut usize)| {
        state.open.send_modify(|open| change(open.entry(name.clone()).or_default()));
    };
    count(|open| *open += 1);
    let service = service_fn(|request| answer(&state, &presented, connection, request));
    // A client that goes away is no failure of the server.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await);
    count(|open| *open -= 1);
}

async fn answer(
    state: &State,
    presented: &Presented,
    connection: u64,
    mut request: Request<Incoming>,
) -> Result<Response<Either<Full<Bytes>, Endless>>, hyper::Error> {
    let upgrade = request.headers().get(UPGRADE).cloned().map(|to| (to, hyper::upgrade::on(&mut request)));
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let token = bearer_token(&head.headers);
    let path = head.uri.path();
    let watches = head.uri.query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
    let (status, document) = if !state.knows(presented, token.as_deref()) {
        routes::failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    } else if upgrade.is_some() {
        (StatusCode::SWITCHING_PROTOCOLS, Value::Null)
    } else {
        routes::respond(&mut lock(&state.objects), &head.method, path, &body)
    };
    lock(&state.requests).push(SeenRequest {
        token,
        certificate: presented.common_name(),
        method: head.method.to_string(),
        path: path.to_owned(),
        body: String::from_utf8_lossy(&body).into_owned(),
        status: status.as_u16(),
        connection,
    });
    if let Some((to, upgrade)) = upgrade
        && status == StatusCode::SWITCHING_PROTOCOLS
    {
        tokio::spawn(echo(upgrade));
        let response = Response::builder().status(status).header(CONNECTION, "upgrade").header(UPGRADE, to);
        return Ok(response.body(Either::Left(Full::default())).expect("headers that the client sent"));
    }
    let response = Response::builder().status(status).header("content-type", "application/json");
    let body = if watches && status.is_success() {
        Either::Right(Endless)
    } else {
        Either::Left(Full::from(document.to_string()))
    };
    Ok(response.body(body).expect("a constant header"))
}

/// Whatever the protocol is called that the client asked for: it gets back what it sends.
async fn echo(upgrade: OnUpgrade) {
    let Ok(upgraded) = upgrade.await else { return };
    let (mut from, mut to) = tokio::io::split(TokioIo::new(upgraded));
    drop(tokio::io::copy(&mut from, &mut to).await);
}

/// The events of a watch in which nothing happens.
#[derive(Debug)]
struct Endless;

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}
