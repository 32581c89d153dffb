//! Listener U: a Unix socket for containers and sandboxes. The kernel says who connects.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{Either, Full as Whole};
use hyper::body::Incoming;
use serde::Serialize;
use tokio::net::UnixStream;
use tracing::debug;

use super::{
    Answer, Listeners, Serve,
    connection::{Handler, serve},
    refusal, usage,
    watched::Progress,
};
use crate::{caller::Caller, headers::Site, status::Refused};

/// Clients reach a Unix socket by any name of the machine, through a port of another program.
pub(super) const SITE: Site = Site { scheme: "http", port: None, origins: Vec::new() };

pub(super) fn admit<S: Serve>(listeners: &Arc<Listeners<S>>, stream: UnixStream, name: &Arc<str>) {
    let identity = match listeners.seats.identify(&stream, 0) {
        Ok(identity) => identity,
        Err(error) => return debug!(%error, "a connection without an identity was closed"),
    };
    let peer = identity.peer;
    let Some(seat) = listeners.seat(&peer) else { return };
    let principal = (listeners.parts.identify)(identity, Arc::clone(name));
    let pid = peer.pid.map(i32::cast_unsigned);
    let caller = Arc::new(Caller { principal, pid, rule: None });
    let handler = Arc::new(Socket { listeners: Arc::clone(listeners), caller });
    let (progress, tasks) = (Progress::new(seat, true), listeners.parts.tasks.clone());
    listeners.parts.tasks.spawn(async move {
        // Now, while the process still runs: rules may name its groups and its executable.
        handler.caller.principal.process.facts();
        serve(stream, progress, true, handler, tasks).await;
    });
}

struct Socket<S> {
    listeners: Arc<Listeners<S>>,
    caller: Arc<Caller>,
}

impl<S: Serve> Handler<S> for Socket<S> {
    async fn handle(&self, request: Request<Incoming>) -> Answer<S> {
        if let Err(why) = SITE.check(request.method(), request.uri(), request.headers()) {
            return self.refuse(why);
        }
        if usage::is_asked(&request) {
            let answer = usage::answer(&self.listeners, &self.caller);
            return answer.map_or_else(|why| self.refuse(why), |answer| answer.map(Either::Left));
        }
        if request.method() == Method::GET && request.uri().path() == "/" {
            return self.list().await.map(Either::Left);
        }
        let answer = Arc::clone(&self.listeners.parts.serve).answer(Arc::clone(&self.caller), request);
        answer.await.map(Either::Right)
    }
}

impl<S: Serve> Socket<S> {
    fn refuse(&self, why: Refused) -> Answer<S> {
        self.listeners.parts.serve.refused(Arc::clone(&self.caller), &why);
        refusal::<S>(why)
    }

    /// What a bridge asks for: the targets, and the network of this process, so that it can tell whether it is in another one.
    async fn list(&self) -> Response<Whole<Bytes>> {
        let targets = self.listeners.parts.serve.targets(&self.caller).await;
        let targets = targets.iter().map(|(name, path)| Target { name, path }).collect();
        let network = std::fs::read_link("/proc/self/ns/net").ok();
        let network = network.as_deref().and_then(Path::to_str);
        // Text, which JSON can always have.
        let body = serde_json::to_vec(&List { targets, network }).unwrap_or_default();
        let mut response = Response::new(Whole::from(body));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

#[derive(Serialize)]
struct List<'a> {
    targets: Vec<Target<'a>>,
    /// The network namespace, as `/proc` names it. `None`: it is not known.
    network: Option<&'a str>,
}

#[derive(Serialize)]
struct Target<'a> {
    name: &'a str,
    path: &'a str,
}
