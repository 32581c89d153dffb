//! Gives out handles on a Unix socket: one `POST` to the path of a target. And says what the proxy does.

use std::{sync::Arc, time::UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full as Whole};
use hyper::body::Incoming;
use secrecy::ExposeSecret as _;
use tokio::net::UnixStream;
use tracing::debug;

use super::{
    Answer, Listeners, Port, Serve,
    connection::{Handler, serve},
    socket::SITE,
    usage,
    watched::Progress,
};
use crate::{caller::Caller, handle::Claims, path::Address, status::Refused};

pub(super) fn admit<S: Serve>(listeners: &Arc<Listeners<S>>, stream: UnixStream, port: &Arc<Port>) {
    let identity = match listeners.seats.identify(&stream, 0) {
        Ok(identity) => identity,
        Err(error) => return debug!(%error, "a connection without an identity was closed"),
    };
    let Some(seat) = listeners.seat(&identity.peer) else { return };
    let (listeners, port) = (Arc::clone(listeners), Arc::clone(port));
    let (tasks, tracker) = (listeners.parts.tasks.clone(), listeners.parts.tasks.clone());
    let (uid, pid) = (identity.uid, identity.peer.pid.map(i32::cast_unsigned));
    let principal = (listeners.parts.identify)(identity, Arc::clone(&port.name));
    let caller = Caller { principal, pid, rule: None };
    let handler = Arc::new(Handles { listeners, port, uid, caller });
    tracker.spawn(serve(stream, Progress::new(seat, true), true, handler, tasks));
}

struct Handles<S> {
    listeners: Arc<Listeners<S>>,
    port: Arc<Port>,
    /// `None`: the number identifies no user.
    uid: Option<u32>,
    /// All that the kernel says. The rights of a handle are those of the uid alone.
    caller: Caller,
}

impl<S: Serve> Handler<S> for Handles<S> {
    async fn handle(&self, request: Request<Incoming>) -> Answer<S> {
        let issued = match self.usage(&request) {
            Some(Ok(usage)) => return usage.map(Either::Left),
            Some(Err(why)) => Err(why),
            None => self.issue(&request).await,
        };
        let (code, text) = match issued {
            Ok(issued) => (StatusCode::OK, issued),
            Err(why) => {
                self.listeners.refused_at_port(&self.port, self.uid, &why);
                (why.code, why.message)
            }
        };
        // Text, so that a small client needs no parser.
        let mut response = Response::new(Either::Left(Whole::from(text)));
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

impl<S: Serve> Handles<S> {
    /// The answer to a request for what the proxy does; `None`: it is another request.
    fn usage(&self, request: &Request<Incoming>) -> Option<Result<Response<Whole<Bytes>>, Refused>> {
        usage::is_asked(request).then(|| {
            SITE.check(request.method(), request.uri(), request.headers())?;
            usage::answer(&self.listeners, &self.caller)
        })
    }

    /// The handle, when it ends in whole seconds since 1970, and its lifetime in seconds.
    async fn issue(&self, request: &Request<Incoming>) -> Result<String, Refused> {
        SITE.check(request.method(), request.uri(), request.headers())?;
        if request.method() != Method::POST {
            let message = "a handle is requested with `POST` and the path of its target";
            return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let target = Address::read(request.method(), request.uri(), request.version())?.target;
        let uid = self.uid.ok_or_else(Refused::target)?;
        // The rights are those that the handle has at the port.
        let principal = self.listeners.at_port(&self.port, uid);
        let caller = Caller { principal, pid: None, rule: None };
        let rule = self.listeners.parts.serve.ready(&caller, &target).await?;
        let now = self.listeners.parts.clock.now().wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        let lifetime = self.port.handle_lifetime.as_secs();
        let claims = Claims { uid, rule, expires: now.as_secs() + lifetime };
        let token = self.port.handles.issue(&claims, &target.to_string());
        Ok(format!("{} {} {lifetime}\n", token.expose_secret(), claims.expires))
    }
}
