//! Listener T: a loopback port with TLS. A caller shows a handle, and the kernel says whose the connection is.

use std::{future::pending, sync::Arc, time::Duration};

use http::{Request, StatusCode, header};
use http_body_util::Either;
use hyper::body::Incoming;
use rustls::ServerConnection;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use super::{
    Answer, Listeners, Port, Serve,
    connection::{Handler, serve},
    is_loopback, refusal,
    watched::Progress,
};
use crate::{
    caller::Caller,
    handle::HandleError,
    headers::{self, Site},
    owner::OwnerError,
    path::Address,
    status::Refused,
};
use credbroker_uds_server::Peer;

const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections whose owner is not known share one account, which no user has.
const UNKNOWN: u32 = u32::MAX;

pub(super) fn admit<S: Serve>(listeners: &Arc<Listeners<S>>, stream: TcpStream, port: &Arc<Port>) {
    let (Ok(peer), Ok(own)) = (stream.peer_addr(), stream.local_addr()) else {
        return debug!("a connection went away before it was served");
    };
    // A listener of systemd's may have another address.
    if !is_loopback(&peer) || !is_loopback(&own) {
        return debug!(%peer, "a connection of another host was closed");
    }
    let owner = (port.owner)(peer, own);
    if let Err(OwnerError::Closed | OwnerError::Other) = &owner {
        return debug!(%peer, "a connection that its client has closed was closed");
    }
    let uid = *owner.as_ref().unwrap_or(&UNKNOWN);
    let Some(seat) = listeners.seat(&Peer { listener: 0, uid, gid: uid, pid: None }) else { return };
    // Answers are not larger than the segments of a loopback interface, and wait for nothing.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "answers may be delayed");
    }
    let site = Site { scheme: "https", port: Some(own.port()), origins: Vec::new() };
    let handler = Connection { listeners: Arc::clone(listeners), port: Arc::clone(port), site, owner };
    let (tasks, draining) = (listeners.parts.tasks.clone(), listeners.parts.draining.clone());
    let acceptor = TlsAcceptor::from(Arc::clone(&port.tls));
    listeners.parts.tasks.spawn(async move {
        // A drain ends a connection after its first request.
        let is_displaced = async {
            seat.end().cancelled().await;
            if draining.is_cancelled() {
                pending::<()>().await;
            }
        };
        // A stream that is in scope has room in the future, also where it was moved from.
        let connection = {
            let stream = tokio::select! {
                () = is_displaced => return,
                stream = timeout(HANDSHAKE, Box::pin(acceptor.accept(stream))) => match stream {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(error)) => return debug!(uid, %error, "a TLS handshake failed"),
                    Err(_late) => return debug!(uid, "a TLS handshake took too long"),
                },
            };
            let is_http1 = !is_http2(stream.get_ref().1);
            serve(stream, Progress::new(seat, is_http1), is_http1, Arc::new(handler), tasks)
        };
        connection.await;
    });
}

fn is_http2(connection: &ServerConnection) -> bool {
    connection.alpn_protocol() == Some(b"h2")
}

struct Connection<S> {
    listeners: Arc<Listeners<S>>,
    port: Arc<Port>,
    site: Site,
    owner: Result<u32, OwnerError>,
}

impl<S: Serve> Handler<S> for Connection<S> {
    async fn handle(&self, mut request: Request<Incoming>) -> Answer<S> {
        let caller = match self.caller(&mut request).await {
            Ok(caller) => caller,
            Err(why) => {
                debug!(owner = ?self.owner, code = why.code.as_u16(), why = why.message, "a request was refused");
                self.listeners.refused_at_port(&self.port, self.owner.as_ref().ok().copied(), &why);
                return refusal::<S>(why);
            }
        };
        Arc::clone(&self.listeners.parts.serve).answer(Arc::new(caller), request).await.map(Either::Right)
    }
}

impl<S: Serve> Connection<S> {
    /// Who sends a request. The handle is removed from it.
    async fn caller(&self, request: &mut Request<Incoming>) -> Result<Caller, Refused> {
        self.site.check(request.method(), request.uri(), request.headers())?;
        let owner = match &self.owner {
            Ok(uid) => Some(*uid),
            Err(error) if self.port.require_uid => {
                let message = format!(
                    "{error}, so it cannot be used; with `proxy.tls.requireUid: false` the handle alone decides, or use a socket of the proxy"
                );
                return Err(Refused::new(StatusCode::FORBIDDEN, message));
            }
            Err(_) => None,
        };
        let Some(handle) = headers::handle(request.headers())? else {
            let message = "a handle is missing; the kubeconfig of the proxy has a plugin that gets one";
            return Err(Refused::new(StatusCode::UNAUTHORIZED, message));
        };
        let target = Address::read(request.method(), request.uri(), request.version())?.target;
        let now = self.listeners.parts.clock.now().wall;
        let claims = self.port.handles.check(&handle, &target.to_string(), now).map_err(|error| {
            let message = match error {
                HandleError::Expired => "the handle has expired; get another one",
                HandleError::Foreign => "the token is not a handle of this proxy for this target",
            };
            Refused::new(StatusCode::UNAUTHORIZED, message)
        })?;
        if owner.is_some_and(|owner| owner != claims.uid) {
            let message = "the handle is for another user than the one that sends the request";
            return Err(Refused::new(StatusCode::FORBIDDEN, message));
        }
        let principal = self.listeners.at_port(&self.port, claims.uid);
        request.headers_mut().remove(header::AUTHORIZATION);
        let caller = Caller { principal, pid: None, rule: claims.rule };
        if self.listeners.parts.serve.rule(&caller, &target).await? != caller.rule {
            let message = "the access rules have changed since the handle was given out; get another one";
            return Err(Refused::new(StatusCode::UNAUTHORIZED, message));
        }
        Ok(caller)
    }
}
