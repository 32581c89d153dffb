//! Which connections are open. No process can keep all places: what waits for its peer gives way.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

/// Connections at a time.
pub(super) const CONNECTIONS: usize = 16;

/// The open connections, the oldest one first.
#[derive(Debug, Default)]
pub(super) struct MonitorPlaces(Mutex<VecDeque<Arc<OpenConnection>>>);

#[derive(Debug, Default)]
struct OpenConnection {
    /// Its request is here, and its answer is not made yet.
    is_answered: AtomicBool,
    displaced: CancellationToken,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(super) struct MonitorPlace {
    connection: Arc<OpenConnection>,
    places: Arc<MonitorPlaces>,
}

impl MonitorPlaces {
    /// A place for a new connection. If there is none, the oldest connection that waits for its peer is displaced: it has
    /// not sent a whole head, or does not read its answer. `None`: all are being answered.
    pub(super) fn take(self: &Arc<Self>) -> Option<MonitorPlace> {
        let mut open = self.lock();
        if open.len() >= CONNECTIONS {
            let waits = |connection: &Arc<OpenConnection>| !connection.is_answered.load(Ordering::Relaxed);
            let oldest = open.iter().position(waits)?;
            if let Some(connection) = open.remove(oldest) {
                connection.displaced.cancel();
            }
        }
        let connection = Arc::<OpenConnection>::default();
        open.push_back(Arc::clone(&connection));
        Some(MonitorPlace { connection, places: Arc::clone(self) })
    }

    /// The list is consistent whenever the lock is free, so a poisoned lock is still usable.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<OpenConnection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MonitorPlace {
    /// Is cancelled when another connection gets the place.
    pub(super) fn displaced(&self) -> &CancellationToken {
        &self.connection.displaced
    }

    /// Makes an answer, for which the connection keeps its place.
    pub(super) async fn answer<T>(&self, answer: impl Future<Output = T>) -> T {
        self.connection.is_answered.store(true, Ordering::Relaxed);
        let answer = answer.await;
        self.connection.is_answered.store(false, Ordering::Relaxed);
        answer
    }
}

impl Drop for MonitorPlace {
    fn drop(&mut self) {
        self.places.lock().retain(|open| !Arc::ptr_eq(open, &self.connection));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn the_oldest_connection_that_waits_for_its_peer_gives_way() {
        let places = Arc::<MonitorPlaces>::default();
        let open: Vec<_> = (0..CONNECTIONS).map(|_| places.take().unwrap()).collect();
        let mut answer = Box::pin(open[0].answer(pending::<()>()));
        assert!(answer.as_mut().now_or_never().is_none());
        open[1].answer(async {}).now_or_never().unwrap();
        let newest = places.take().unwrap();
        let displaced: Vec<_> = open.iter().map(|place| place.displaced().is_cancelled()).collect();
        assert_eq!(displaced.iter().position(|displaced| *displaced), Some(1));
        assert_eq!(displaced.iter().filter(|displaced| **displaced).count(), 1);
        assert!(!newest.displaced().is_cancelled());
        assert_eq!(places.lock().len(), CONNECTIONS);
    }

    #[test]
    fn a_connection_that_is_answered_keeps_its_place() {
        let places = Arc::<MonitorPlaces>::default();
        let open: Vec<_> = (0..CONNECTIONS).map(|_| places.take().unwrap()).collect();
        let mut answers: Vec<_> = open.iter().map(|place| Box::pin(place.answer(pending::<()>()))).collect();
        assert!(answers.iter_mut().all(|answer| answer.as_mut().now_or_never().is_none()));
        assert!(places.take().is_none());
        drop(answers);
        drop(open);
        assert!(places.lock().is_empty());
    }
}
