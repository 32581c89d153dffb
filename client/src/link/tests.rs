#![expect(clippy::disallowed_methods, reason = "tests start the other end")]

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use credbroker_proto::{DOMAIN, LIMIT, Reason, to_tonic};
use futures_util::future::{Ready, ready};
use tokio::{io::duplex, time::sleep};
use tonic::{Status, body::Body, server::NamedService};
use tonic_types::{ErrorDetails, StatusExt};
use tower::Service;

use super::*;
use crate::{fleet::clusters::Clusters, source::handle::CredentialSource};

/// The users of the connection, if it is open.
fn leases(link: &Link) -> Option<usize> {
    link.open().as_ref().map(|open| open.leases)
}

fn nowhere() -> Arc<Link> {
    Link::new(Socket::at("/nonexistent/socket"))
}

fn overloaded(limit: Option<&str>) -> Error {
    Error::from_status(&Socket::at("/s"), &refusal(limit))
}

fn refusal(limit: Option<&str>) -> Status {
    let metadata: HashMap<_, _> =
        limit.map(|limit| (LIMIT.to_owned(), limit.to_owned())).into_iter().collect();
    let details = ErrorDetails::with_error_info(Reason::Overloaded.name(), DOMAIN, metadata);
    Status::with_error_details(to_tonic(Reason::Overloaded.code()), "too much at once", details)
}

/// A broker that answers every call with one status, over link without a socket.
#[derive(Clone)]
struct Refusing {
    status: Status,
    calls: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Refusing {
    fn with(status: Status) -> Self {
        Self { status, calls: Arc::default(), connections: Arc::default() }
    }

    fn to(&self) -> Arc<Link> {
        let broker = self.clone();
        let connect = move |socket: Socket| {
            let broker = broker.clone();
            broker.connections.fetch_add(1, Ordering::SeqCst);
            let (ours, theirs) = duplex(64 * 1024);
            let served = async move {
                let incoming = tokio_stream::once(Ok::<_, std::io::Error>(theirs));
                tonic::transport::Server::builder().add_service(broker).serve_with_incoming(incoming).await
            };
            tokio::spawn(served);
            async move { Client::over(ours, &socket).await }.boxed()
        };
        Link::over(Socket::at("/s"), Box::new(connect))
    }
}

impl NamedService for Refusing {
    const NAME: &'static str = "credbroker.v1.CredentialBroker";
}

impl Service<http::Request<Body>> for Refusing {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(self.status.clone().into_http()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_refusals_that_are_not_about_the_connection_leave_one_connection() {
    for limit in [None, Some("limits.credentials"), Some("a limit of a later release")] {
        let broker = Refusing::with(refusal(limit));
        let link = broker.to();
        let followers = (
            CredentialSource::over(&link, &Arc::default(), CredentialRef::provider("p"), None),
            Clusters::over(&link, None, false, None),
        );
        while broker.calls.load(Ordering::SeqCst) < 2_000 {
            sleep(Duration::from_secs(60)).await;
        }
        assert_eq!(leases(&link), Some(2), "{limit:?}");
        assert_eq!(broker.connections.load(Ordering::SeqCst), 1, "{limit:?}");
        drop(followers);
        while leases(&link).is_some() {
            sleep(Duration::from_secs(1)).await; // the tasks of the followers end
        }
    }
}

#[test]
fn a_lost_connection_gets_no_more_watches_and_the_old_ones_may_end_later() {
    let link = nowhere();
    let (lost, _) = Link::lease(&link);
    lost.on_error(&Error::ended(&link.socket));
    let (_other, _) = Link::lease(&link);
    drop(lost);
    assert_eq!(leases(&link), Some(1));
}

#[test]
fn an_error_that_is_not_about_the_connection_leaves_it_open_to_others() {
    let link = nowhere();
    let (first, _) = Link::lease(&link);
    for error in [
        overloaded(None),
        overloaded(Some("limits.credentials")),
        Error::timeout(Duration::from_secs(45)),
        Error::Unusable { problem: "x" },
    ] {
        first.on_error(&error);
        drop(Link::lease(&link));
        let (_second, _) = Link::lease(&link);
        assert_eq!(leases(&link), Some(2), "{error:?}");
    }
}

#[tokio::test]
async fn all_who_wait_share_one_failed_attempt_and_the_next_is_a_new_one() {
    let link = nowhere();
    let (_first, connecting) = Link::lease(&link);
    let (_second, same) = Link::lease(&link);
    assert!(connecting.ptr_eq(&same));
    assert!(link.subscribe().client().await.is_err());
    let (_third, fresh) = Link::lease(&link);
    assert!(!fresh.ptr_eq(&same));
}
