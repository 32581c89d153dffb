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

fn leases(connections: &Arc<ConnectionPool>) -> Vec<usize> {
    connections.slots().iter().map(|slot| slot.leases).collect()
}

fn nowhere() -> Arc<ConnectionPool> {
    ConnectionPool::new(Socket::at("/nonexistent/socket"))
}

fn watch(connections: &Arc<ConnectionPool>) -> (Lease, Connecting) {
    ConnectionPool::lease(connections, Slot::takes_a_watch)
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

/// A broker that answers every call with one status, over connections without a socket.
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

    fn to(&self) -> Arc<ConnectionPool> {
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
        ConnectionPool::over(Socket::at("/s"), Box::new(connect))
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
        let connections = broker.to();
        let followers = (
            CredentialSource::over(&connections, &Arc::default(), CredentialRef::provider("p"), None),
            Clusters::over(&connections, None, None),
        );
        while broker.calls.load(Ordering::SeqCst) < 2_000 {
            sleep(Duration::from_secs(60)).await;
        }
        assert_eq!(leases(&connections), [2], "{limit:?}");
        assert_eq!(broker.connections.load(Ordering::SeqCst), 1, "{limit:?}");
        drop(followers);
        while !leases(&connections).is_empty() {
            sleep(Duration::from_secs(1)).await; // the tasks of the followers end
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_because_the_connection_is_full_opens_one_at_a_time() {
    let broker = Refusing::with(refusal(Some("watches of a connection")));
    let connections = broker.to();
    let _source = CredentialSource::over(&connections, &Arc::default(), CredentialRef::provider("p"), None);
    while broker.calls.load(Ordering::SeqCst) < 100 {
        sleep(Duration::from_secs(60)).await;
        assert!(leases(&connections).len() <= 1, "{:?}", leases(&connections));
    }
}

#[test]
fn a_hundred_share_a_connection_and_the_next_opens_another() {
    let connections = nowhere();
    let mut held: Vec<_> = (0..250).map(|_| watch(&connections)).collect();
    assert_eq!(leases(&connections), [100, 100, 50]);
    held.truncate(150);
    assert_eq!(leases(&connections), [100, 50]);
    held.clear();
    assert!(leases(&connections).is_empty(), "a connection without watches is closed");
}

#[test]
fn a_report_needs_no_place_of_a_watch() {
    let connections = nowhere();
    let held: Vec<_> = (0..100).map(|_| watch(&connections)).collect();
    held[0].0.on_error(&overloaded(Some("watches of a connection")));
    let report = ConnectionPool::lease(&connections, |_| true);
    assert_eq!(leases(&connections), [101]);
    drop(report);
    assert_eq!(leases(&connections), [100]);
}

#[test]
fn a_lost_connection_gets_no_more_watches_and_the_old_ones_may_end_later() {
    let connections = nowhere();
    let (lost, _) = watch(&connections);
    lost.on_error(&Error::ended(&connections.socket));
    let (_other, _) = watch(&connections);
    drop(lost);
    assert_eq!(leases(&connections), [1]);
}

#[test]
fn a_full_connection_gets_no_more_watches_and_goes_with_its_last_one() {
    let connections = nowhere();
    let (one, _) = watch(&connections);
    let (refused, _) = watch(&connections);
    refused.on_error(&overloaded(Some("watches of a connection")));
    drop(refused);
    let (other, _) = watch(&connections);
    assert_eq!(leases(&connections), [1, 1]);
    drop(one);
    assert_eq!(leases(&connections), [1], "the full one is gone");
    drop(other);
    assert!(leases(&connections).is_empty());
}

#[test]
fn an_error_that_is_not_about_the_connection_leaves_it_open_to_others() {
    let connections = nowhere();
    let (first, _) = watch(&connections);
    for error in [
        overloaded(None),
        overloaded(Some("limits.credentials")),
        Error::timeout(Duration::from_secs(45)),
        Error::Unusable { problem: "x" },
    ] {
        first.on_error(&error);
        drop(watch(&connections));
        let (_second, _) = watch(&connections);
        assert_eq!(leases(&connections), [2], "{error:?}");
    }
}

#[tokio::test]
async fn all_who_wait_share_one_failed_attempt_and_the_next_is_a_new_one() {
    let connections = nowhere();
    let (_first, connecting) = watch(&connections);
    let (_second, same) = watch(&connections);
    assert!(connecting.ptr_eq(&same));
    assert!(connections.subscribe().client().await.is_err());
    let (_third, fresh) = watch(&connections);
    assert!(!fresh.ptr_eq(&same));
}
