//! The watches of all sources on one connection, which share a `WatchCredentials` stream.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use credbroker_proto::v1::{
    CredentialRef, WatchCredentialsRequest, WatchCredentialsResponse, watch_credentials_request::Addition,
    watch_credentials_response::Result as Outcome,
};
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use prost::Message as _;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::SHARED;
use crate::{client::Client, clock, credential::Credential, error::Error, failure::Failure};

/// Numbers in one request at most, each of up to eleven bytes.
const REMOVALS: usize = 1000;

/// The stream. It ends with the last watch and the last lease of its connection.
pub(super) struct References {
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when there is something to send.
    changed: Notify,
}

#[derive(Default)]
struct State {
    seats: HashMap<u64, Arc<Seat>>,
    /// What was not sent yet.
    add: BTreeMap<u64, CredentialRef>,
    remove: Vec<u64>,
    /// The number that was given last. None is used twice, so a late answer is not taken for another one.
    last: u64,
    /// Why the stream has ended.
    over: Option<Error>,
    /// Its last user is gone.
    is_left: bool,
}

/// What one watch has not read.
#[derive(Default)]
struct Seat {
    newest: Mutex<Newest>,
    news: Notify,
}

#[derive(Default)]
struct Newest {
    credential: Option<Credential>,
    end: Option<Error>,
}

/// A number on the stream, which is given back on drop.
struct Watch {
    references: Arc<References>,
    number: u64,
    seat: Arc<Seat>,
}

impl References {
    pub(super) fn start(client: Client) -> Arc<Self> {
        let shared = Arc::<Shared>::default();
        let reading = read(client, Arc::clone(&shared));
        #[expect(clippy::disallowed_methods, reason = "ends with the stream")]
        let task = AbortOnDropHandle::new(tokio::spawn(reading));
        Arc::new(Self { shared, _task: task })
    }

    /// Whether the stream has ended, so that the next watch needs another one.
    pub(super) fn are_over(&self) -> bool {
        self.shared.state().over.is_some()
    }

    /// The credential of a reference now, and after each rotation: only the newest, for a reader that is slow. It ends with
    /// its first error.
    pub(super) fn watch(
        self: Arc<Self>,
        reference: CredentialRef,
    ) -> impl Stream<Item = Result<Credential, Error>> + Send + Unpin {
        let seat = Arc::<Seat>::default();
        let number = self.shared.state().add(reference, &seat);
        self.shared.changed.notify_one();
        stream::unfold(Some(Watch { references: self, number, seat }), async |watch| {
            let watch = watch?;
            let item = watch.seat.next().await;
            let rest = item.is_ok().then_some(watch);
            Some((item, rest))
        })
        .boxed()
    }
}

/// The connection carries what is to be sent until that ends, and is open for as long.
impl Drop for References {
    fn drop(&mut self) {
        self.shared.state().is_left = true;
        self.shared.changed.notify_one();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let shared = &self.references.shared;
        shared.state().remove(self.number);
        shared.changed.notify_one();
    }
}

impl Seat {
    async fn next(&self) -> Result<Credential, Error> {
        loop {
            if let Some(item) = self.take() {
                return item;
            }
            self.news.notified().await;
        }
    }

    fn take(&self) -> Option<Result<Credential, Error>> {
        let Newest { credential, end } = &mut *self.newest();
        credential.take().map(Ok).or_else(|| end.take().map(Err))
    }

    fn put(&self, item: Result<Credential, Error>) {
        match item {
            Ok(credential) => self.newest().credential = Some(credential),
            Err(error) => self.newest().end = Some(error),
        }
        self.news.notify_one();
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, reference: CredentialRef, seat: &Arc<Seat>) -> u64 {
        self.last += 1;
        if let Some(error) = &self.over {
            seat.put(Err(error.clone()));
        } else {
            self.seats.insert(self.last, Arc::clone(seat));
            self.add.insert(self.last, reference);
        }
        self.last
    }

    fn remove(&mut self, number: u64) {
        let is_watched = self.seats.remove(&number).is_some();
        if self.add.remove(&number).is_none() && is_watched {
            self.remove.push(number);
        }
    }

    /// What to send next, in one message.
    fn request(&mut self) -> Option<WatchCredentialsRequest> {
        let rest = self.remove.split_off(self.remove.len().min(REMOVALS));
        let (remove, mut add, mut size) = (mem::replace(&mut self.remove, rest), Vec::new(), 0);
        while let Some(next) = self.add.first_entry() {
            size += next.get().encoded_len() + 32;
            if size > SHARED && !add.is_empty() {
                break;
            }
            let (number, reference) = next.remove_entry();
            add.push(Addition { number, r#ref: Some(reference) });
        }
        (!add.is_empty() || !remove.is_empty()).then_some(WatchCredentialsRequest { add, remove })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be sent, as it comes up, until the stream is over or its last user is gone.
    fn requests(self: Arc<Self>) -> impl Stream<Item = WatchCredentialsRequest> {
        stream::unfold(self, async |shared| {
            loop {
                let (request, is_over) = {
                    let mut state = shared.state();
                    (state.request(), state.is_left || state.over.is_some())
                };
                match request {
                    _ if is_over => return None,
                    Some(request) => return Some((request, shared)),
                    None => shared.changed.notified().await,
                }
            }
        })
    }

    fn receive(&self, WatchCredentialsResponse { number, result, cluster }: WatchCredentialsResponse) {
        let item = match result {
            Some(Outcome::Credential(credential)) => {
                Credential::receive(credential, cluster, clock::system())
            }
            Some(Outcome::Failure(failure)) => Err(Failure::from_message(failure).into()),
            None => Err(Error::Unusable { problem: "the answer has neither a credential nor a failure" }),
        };
        let mut state = self.state();
        // Of a reference that was just removed, an answer may be on its way.
        let Some(seat) = state.seats.get(&number).map(Arc::clone) else { return };
        if matches!(item, Err(Error::Failed(_))) {
            state.seats.remove(&number);
        }
        drop(state);
        seat.put(item);
    }

    fn end(&self, error: &Error) {
        let mut state = self.state();
        state.over = Some(error.clone());
        for (_, seat) in state.seats.drain() {
            seat.put(Err(error.clone()));
        }
        drop(state);
        self.changed.notify_one();
    }
}

async fn read(client: Client, shared: Arc<Shared>) {
    let ended = match client.watch_many(Arc::clone(&shared).requests()).await {
        Ok(mut answers) => loop {
            match answers.message().await {
                Ok(Some(answer)) => shared.receive(answer),
                Ok(None) => break Error::ended(&client.socket),
                Err(status) => break Error::from_status(&client.socket, &status),
            }
        },
        Err(error) => error,
    };
    shared.end(&ended);
}

#[cfg(test)]
mod tests;
