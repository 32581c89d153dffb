//! One request: who asks, what goes back, and a note of both.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::faults::GARBAGE;
use super::flood;
use super::identity::bearer_token;
use super::listener::{Connection, Cut};
use super::routes::{self, Reply, failure};
use super::{SeenRequest, State, lock};

type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(super) async fn answer(
    state: &Arc<State>,
    from: &Connection,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    let upgrade = request.headers().get(UPGRADE).cloned().map(|to| (to, hyper::upgrade::on(&mut request)));
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    if let Some((collection, watch)) = routes::reads_many(&head) {
        state.count_request(collection, watch);
    }
    state.until_answering().await;
    let token = bearer_token(&head.headers);
    let reply = if !state.knows(&from.presented, token.as_deref()) {
        Reply::Document(failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"))
    } else if upgrade.is_some() {
        Reply::Document((StatusCode::SWITCHING_PROTOCOLS, Value::Null))
    } else {
        routes::respond(state, &head, token.as_deref())
    };
    let status = reply.status();
    lock(&state.requests).push(SeenRequest {
        token,
        certificate: from.presented.common_name(),
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        body: String::from_utf8_lossy(&body).into_owned(),
        status: status.as_u16(),
        connection: from.number,
    });
    if let Some((to, upgrade)) = upgrade
        && status == StatusCode::SWITCHING_PROTOCOLS
    {
        tokio::spawn(echo(upgrade, from.cut.clone()));
        return Ok(switched(to));
    }
    let response = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
    let (body, encoding) = body_of(reply);
    let response = encoding.into_iter().fold(response, |head, by| head.header(CONTENT_ENCODING, by));
    Ok(response.body(body).expect("a constant header"))
}

/// The body, and how it is encoded.
fn body_of(reply: Reply) -> (Body, Option<&'static str>) {
    let body = match reply {
        Reply::Flood(flood) => return flood::body(flood),
        Reply::Document((_, document)) => Full::from(document.to_string()).boxed_unsync(),
        Reply::Garbage => Full::from(GARBAGE).boxed_unsync(),
        Reply::Silence => StreamBody::new(stream::pending()).boxed_unsync(),
        Reply::Watch(watching) => {
            let events = stream::unfold(watching, async |mut watching| {
                watching.next().await.map(|events| (Ok(Frame::data(events)), watching))
            });
            StreamBody::new(events).boxed_unsync()
        }
    };
    (body, None)
}

fn switched(to: HeaderValue) -> Response<Body> {
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let response = response.header(CONNECTION, "upgrade").header(UPGRADE, to);
    response.body(Full::default().boxed_unsync()).expect("headers that the client sent")
}

/// Upgrades to the protocol that the client asked for, and echoes what it sends.
async fn echo(upgrade: OnUpgrade, mut cut: Cut) {
    let Ok(upgraded) = upgrade.await else { return };
    let (mut from, mut to) = tokio::io::split(TokioIo::new(upgraded));
    tokio::select! {
        copied = tokio::io::copy(&mut from, &mut to) => drop(copied),
        () = cut.requested() => {}
    }
}
