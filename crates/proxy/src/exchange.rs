//! Requests that are open: their number is bounded, and they end early if their caller loses its right or their target goes.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use credbroker_client::tls::ResponseBody;
use http::StatusCode;
use tokio::{sync::watch, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{caller::Caller, status::Refused, target::KnownTarget};

/// After which time a watch is to begin again when the proxy ends. client-go tries ten times, which must take longer than a drain.
const RESTART: Duration = Duration::from_secs(2);

/// How many requests may be open at a time. Each has a connection to its API server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of all callers.
    pub total: usize,
    /// To one target.
    pub per_target: usize,
    /// Of one user.
    pub per_caller: usize,
}

impl Default for Limits {
    /// No user can take all places of a target, and no target all places of the proxy.
    fn default() -> Self {
        Self { total: 8_192, per_target: 6_144, per_caller: 4_096 }
    }
}

/// The open requests.
#[derive(Debug)]
pub(crate) struct Exchanges {
    limits: Limits,
    open: Mutex<Open>,
    count: watch::Sender<Count>,
    /// Cancelled when the proxy ends, after the time that streams have.
    streams: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    exchanges: HashMap<u64, Arc<Parties>>,
    of_targets: HashMap<Arc<KnownTarget>, usize>,
    /// By uid.
    of_callers: HashMap<Option<u32>, usize>,
    count: Count,
    /// Set when the proxy ends: no watch begins.
    is_draining: bool,
}

/// How many requests are open.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Count {
    all: usize,
    /// Those whose answers may last.
    long: usize,
}

/// How long a request may last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lasting {
    /// It is answered, and that is all.
    Short,
    /// A watch, which its client begins again where it was.
    Watch,
    /// A tunnel, or a log.
    Stream,
}

/// Whose request it is, where it goes, and how it ends early.
#[derive(Debug)]
pub(crate) struct Parties {
    pub(crate) caller: Arc<Caller>,
    pub(crate) target: Arc<KnownTarget>,
    pub(crate) ending: Ending,
    lasting: Lasting,
}

/// The early end of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// What is cut also while the client reads nothing: nothing polls the answer then.
    pub(crate) upstream: Upstream,
    /// A watch ends as soon as it is between two events.
    pub(crate) asked: CancellationToken,
    /// Everything ends immediately.
    pub(crate) cut: CancellationToken,
}

/// The body of the answer of an API server, while it is passed on, with its connection.
#[derive(Clone, Default)]
pub(crate) struct Upstream(Arc<Mutex<Option<ResponseBody>>>);

impl Upstream {
    pub(crate) fn open(&self, body: ResponseBody) {
        *self.lock() = Some(body);
    }

    /// `None`: it is closed.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut ResponseBody) -> T) -> Option<T> {
        self.lock().as_mut().map(act)
    }

    pub(crate) fn close(&self) {
        let closed = self.lock().take();
        drop(closed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<ResponseBody>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").finish_non_exhaustive()
    }
}

/// One open request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Exchange {
    number: u64,
    exchanges: Arc<Exchanges>,
    pub(crate) parties: Arc<Parties>,
}

impl Exchanges {
    pub(crate) fn new(limits: Limits, tasks: TaskTracker) -> Self {
        let (open, count, streams) = (Mutex::default(), watch::Sender::default(), CancellationToken::new());
        Self { limits, open, count, streams, tasks }
    }

    /// Begins a request. A watch does not begin while the proxy ends: one that ends immediately would make its client list again.
    pub(crate) fn begin(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        target: &Arc<KnownTarget>,
        lasting: Lasting,
    ) -> Result<Exchange, Refused> {
        let uid = caller.principal.uid;
        let mut open = self.open();
        let is_late = match lasting {
            Lasting::Short => false,
            Lasting::Watch => open.is_draining,
            Lasting::Stream => self.streams.is_cancelled(),
        };
        if is_late {
            let message = "the proxy is being restarted";
            return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(RESTART));
        }
        let of_target = open.of_targets.get(target).copied().unwrap_or_default();
        let of_caller = open.of_callers.get(&uid).copied().unwrap_or_default();
        let full = [
            (open.exchanges.len(), self.limits.total, "requests are open".to_owned()),
            (of_target, self.limits.per_target, format!("requests to {target} are open")),
            (of_caller, self.limits.per_caller, "requests of this user are open".to_owned()),
        ];
        if let Some((_, limit, what)) = full.into_iter().find(|(count, limit, _)| count >= limit) {
            return Err(again(StatusCode::TOO_MANY_REQUESTS, format!("{limit} {what}, which is the limit")));
        }
        let (caller, target) = (Arc::clone(caller), Arc::clone(target));
        let mut ending = Ending::default();
        if lasting == Lasting::Stream {
            ending.cut = self.streams.child_token();
        }
        let parties = Arc::new(Parties { caller, target, ending, lasting });
        let number = open.next;
        open.next += 1;
        open.exchanges.insert(number, Arc::clone(&parties));
        *open.of_targets.entry(Arc::clone(&parties.target)).or_default() += 1;
        *open.of_callers.entry(uid).or_default() += 1;
        open.count.all += 1;
        open.count.long += usize::from(parties.is_long());
        self.count.send_replace(open.count);
        Ok(Exchange { number, exchanges: Arc::clone(self), parties })
    }

    /// Ends the requests that `ends` is true for: watches between two events, and all after `grace`.
    pub(crate) fn end(&self, grace: Duration, ends: impl Fn(&Parties) -> bool) {
        let endings: Vec<Ending> = {
            let open = self.open();
            let ended = open.exchanges.values().filter(|parties| ends(parties));
            ended.map(|parties| parties.ending.clone()).collect()
        };
        if endings.is_empty() {
            return;
        }
        for ending in &endings {
            ending.asked.cancel();
        }
        self.tasks.spawn(async move {
            sleep(grace).await;
            for ending in &endings {
                ending.cut.cancel();
                ending.upstream.close();
            }
        });
    }

    /// Ends all requests: no watch begins from now on, and other streams have `limit`, also those that begin meanwhile.
    pub(crate) fn begin_draining(&self, limit: Duration) {
        self.open().is_draining = true;
        self.end(limit, |_| true);
        let streams = self.streams.clone();
        self.tasks.spawn(async move {
            sleep(limit).await;
            streams.cancel();
        });
    }

    /// Waits until no request is open.
    pub(crate) async fn ended(&self) {
        // The sender lives as long as this.
        drop(self.count.subscribe().wait_for(|count| count.all == 0).await);
    }

    /// Waits until no request is open whose answer may last.
    pub(crate) async fn long_ended(&self) {
        drop(self.count.subscribe().wait_for(|count| count.long == 0).await);
    }

    /// Whether a request to `target` is open.
    pub(crate) fn is_used(&self, target: &KnownTarget) -> bool {
        self.open().of_targets.contains_key(target)
    }

    pub(crate) fn count(&self) -> usize {
        self.count.borrow().all
    }

    /// The open requests by target.
    pub(crate) fn by_target(&self) -> Vec<(Arc<KnownTarget>, usize)> {
        self.open().of_targets.iter().map(|(target, count)| (Arc::clone(target), *count)).collect()
    }

    /// The open watches, logs and tunnels, by target.
    pub(crate) fn streams(&self) -> HashMap<Arc<KnownTarget>, usize> {
        let mut streams = HashMap::new();
        for parties in self.open().exchanges.values().filter(|parties| parties.is_long()) {
            *streams.entry(Arc::clone(&parties.target)).or_default() += 1;
        }
        streams
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parties {
    /// Whether its answer may last.
    fn is_long(&self) -> bool {
        self.lasting != Lasting::Short
    }
}

fn again(code: StatusCode, message: String) -> Refused {
    Refused::new(code, message).retry_after(Duration::from_secs(1))
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut open = self.exchanges.open();
        open.exchanges.remove(&self.number);
        subtract(&mut open.of_targets, &self.parties.target);
        subtract(&mut open.of_callers, &self.parties.caller.principal.uid);
        open.count.all -= 1;
        open.count.long -= usize::from(self.parties.is_long());
        self.exchanges.count.send_replace(open.count);
    }
}

fn subtract<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
