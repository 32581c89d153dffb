//! Listener U: a Unix socket for containers and sandboxes. The kernel says who connects.

use std::sync::Arc;

use http::Request;
use http_body_util::Either;
use hyper::body::Incoming;
use tokio::net::UnixStream;
use tracing::debug;

use super::{
    Answer, Listeners, Serve,
    connection::{Handler, serve},
    refused,
    watched::Progress,
};
use crate::{caller::Caller, headers::Site};

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
    let handler = Arc::new(Socket { serve: Arc::clone(&listeners.parts.serve), caller });
    let (progress, tasks) = (Progress::new(seat, true), listeners.parts.tasks.clone());
    listeners.parts.tasks.spawn(async move {
        // Now, while the process still runs: rules may name its groups and its executable.
        handler.caller.principal.process.facts();
        serve(stream, progress, true, handler, tasks).await;
    });
}

struct Socket<S> {
    serve: Arc<S>,
    caller: Arc<Caller>,
}

impl<S: Serve> Handler<S> for Socket<S> {
    async fn handle(&self, request: Request<Incoming>) -> Answer<S> {
        if let Err(why) = SITE.check(request.method(), request.uri(), request.headers()) {
            return refused::<S>(why);
        }
        let answer = Arc::clone(&self.serve).answer(Arc::clone(&self.caller), request);
        answer.await.map(Either::Right)
    }
}
