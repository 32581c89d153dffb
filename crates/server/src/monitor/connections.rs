//! The open connections of the monitor: which one gets a place, and which one gives way.

use std::{
    cmp::Reverse,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

/// How many connections are open at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Limits {
    pub(super) all: usize,
    /// From one address.
    pub(super) of_one: usize,
}

/// The open connections, the oldest one first. No peer can keep all places: what waits for its peer gives way.
#[derive(Debug)]
pub(super) struct Connections {
    limits: Limits,
    open: Mutex<Vec<Arc<OpenConnection>>>,
}

#[derive(Debug, Default)]
pub(super) struct OpenConnection {
    /// `None`: a Unix socket, whose peers have no address.
    from: Option<IpAddr>,
    /// Its request is here, and its answer is not made yet.
    is_answered: AtomicBool,
    /// Cancelled when another connection gets its place.
    pub(super) displaced: CancellationToken,
}

impl Connections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: Mutex::default() }
    }

    /// A new connection, which is open until it is dropped. If there is no place, a connection that waits for its peer is
    /// displaced: it has not sent a whole head, or does not read its answer. An address that has its share loses its
    /// oldest one; otherwise the address with the most connections does. `None`: all are being answered.
    pub(super) fn admit(&self, from: Option<IpAddr>) -> Option<Arc<OpenConnection>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| Arc::strong_count(connection) > 1);
        // An IPv4 address is the same one on an IPv6 socket.
        let from = from.map(|address| address.to_canonical());
        let held = |address| open.iter().filter(|connection| connection.from == address).count();
        let has_share = held(from) >= self.limits.of_one;
        if has_share || open.len() >= self.limits.all {
            let waits = |connection: &OpenConnection| !connection.is_answered.load(Ordering::Relaxed);
            let may_leave = |connection: &OpenConnection| !has_share || connection.from == from;
            let waiting =
                open.iter().enumerate().filter(|(_, connection)| waits(connection) && may_leave(connection));
            let (oldest, _) =
                waiting.max_by_key(|(index, connection)| (held(connection.from), Reverse(*index)))?;
            open.remove(oldest).displaced.cancel();
        }
        let connection = Arc::new(OpenConnection { from, ..OpenConnection::default() });
        open.push(Arc::clone(&connection));
        Some(connection)
    }
}

impl OpenConnection {
    /// Makes an answer, for which the connection keeps its place.
    pub(super) async fn answer<T>(&self, answer: impl Future<Output = T>) -> T {
        self.is_answered.store(true, Ordering::Relaxed);
        let answer = answer.await;
        self.is_answered.store(false, Ordering::Relaxed);
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt as _;

    use super::*;

    const LIMITS: Limits = Limits { all: 16, of_one: 4 };

    fn open(connections: &Connections) -> usize {
        let open = connections.open.lock().unwrap();
        open.iter().filter(|connection| Arc::strong_count(connection) > 1).count()
    }

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// The positions of those that were displaced.
    fn displaced(all: &[Arc<OpenConnection>]) -> Vec<usize> {
        (0..all.len()).filter(|index| all[*index].displaced.is_cancelled()).collect()
    }

    #[test]
    fn the_oldest_connection_that_waits_for_its_peer_gives_way() {
        let connections = Connections::new(Limits { all: 16, of_one: 16 });
        let all: Vec<_> = (0..16).map(|_| connections.admit(None).unwrap()).collect();
        let mut answer = Box::pin(all[0].answer(pending::<()>()));
        assert!(answer.as_mut().now_or_never().is_none());
        all[1].answer(async {}).now_or_never().unwrap();
        let newest = connections.admit(None).unwrap();
        assert_eq!(displaced(&all), [1]);
        assert!(!newest.displaced.is_cancelled());
        assert_eq!(open(&connections), 16);
    }

    #[test]
    fn a_connection_that_is_answered_keeps_its_place() {
        let connections = Connections::new(Limits { all: 16, of_one: 16 });
        let all: Vec<_> = (0..16).map(|_| connections.admit(None).unwrap()).collect();
        let mut answers: Vec<_> =
            all.iter().map(|connection| Box::pin(connection.answer(pending::<()>()))).collect();
        assert!(answers.iter_mut().all(|answer| answer.as_mut().now_or_never().is_none()));
        assert!(connections.admit(None).is_none());
        drop(answers);
        drop(all);
        assert_eq!(open(&connections), 0);
        assert!(connections.admit(None).is_some());
    }

    #[test]
    fn an_address_that_has_its_share_displaces_its_own() {
        let connections = Connections::new(LIMITS);
        let other = connections.admit(Some(address(1))).unwrap();
        let mapped = IpAddr::V6(std::net::Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped());
        let all: Vec<_> = [Some(mapped), Some(address(2))]
            .repeat(3)
            .into_iter()
            .map(|from| connections.admit(from).unwrap())
            .collect();
        assert_eq!(displaced(&all), [0, 1]);
        assert!(!other.displaced.is_cancelled());
        let answers = all[2..].iter().map(|connection| Box::pin(connection.answer(pending::<()>())));
        let mut answers: Vec<_> = answers.collect();
        assert!(answers.iter_mut().all(|answer| answer.as_mut().now_or_never().is_none()));
        assert!(connections.admit(Some(address(2))).is_none(), "it may wait for its answers");
        assert!(connections.admit(Some(address(3))).is_some());
    }

    #[test]
    fn the_address_with_the_most_connections_gives_way_to_others() {
        let connections = Connections::new(LIMITS);
        let scraper = connections.admit(Some(address(1))).unwrap();
        let strangers: Vec<_> =
            (0..15).map(|number| connections.admit(Some(address(2 + number / 4))).unwrap()).collect();
        assert!(displaced(&strangers).is_empty());
        let newest = connections.admit(Some(address(9))).unwrap();
        assert_eq!(displaced(&strangers), [0], "the oldest one of those with four");
        let more: Vec<_> =
            (20..200).map(|number| connections.admit(Some(address(number))).unwrap()).collect();
        assert!(scraper.displaced.is_cancelled(), "one of each address is left, and it is the oldest");
        assert!(newest.displaced.is_cancelled() && !more.last().unwrap().displaced.is_cancelled());
        assert_eq!(connections.open.lock().unwrap().len(), LIMITS.all);
    }
}
