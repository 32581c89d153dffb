//! The handle of a followed credential.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    registry::{Place, Sources},
    report,
    scope::Scope,
    state::{Progress, Rejection, SourceState},
};
use crate::{
    client::Client,
    clock::{self, Clock},
    credential::Credential,
    deadline::{BROKER_START, within},
    error::Error,
    link::Link,
    reference::CredentialRef,
    supervisor,
};

/// Time for the plugin run that a rejection starts, and for its credential to arrive.
const REPLACEMENT: Duration = Duration::from_secs(10);

/// A credential that follows every rotation until the last clone is dropped: [`Broker::source`](crate::Broker::source).
///
/// A task watches the broker, reconnects after a restart, and keeps the last valid credential meanwhile, until it expires.
/// Only when the broker reports that the provider was changed or removed, or that the credential was evicted
/// ([`Reason::ProviderChanged`](crate::Reason::ProviderChanged)), the credential is dropped immediately: no earlier credential is
/// returned again.
///
/// Reading is a plain call on a snapshot: it takes no lock, allocates nothing, does not wait, and never returns an expired
/// credential.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use credbroker_client::{Broker, CredentialRef};
/// use futures_util::StreamExt;
///
/// let source = Broker::from_env()?.source(CredentialRef::provider("gke"));
/// let mut changes = source.changes();
/// while let Some(credential) = changes.next().await {
///     println!("now {}", credential.generation());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CredentialSource {
    shared: Arc<SharedSource>,
    progress: watch::Receiver<Progress>,
    seen: u64,
    scope: Option<Arc<Scope>>,
    limit: Option<Duration>,
}

pub(super) struct SharedSource {
    reference: Arc<CredentialRef>,
    state: Arc<SourceState>,
    /// Ends with the last handle.
    _task: AbortOnDropHandle<()>,
    /// Among the sources of the broker.
    _place: Option<Place>,
}

impl CredentialSource {
    /// The newest credential. `None` before the first one, and when the last one expired or was dropped without a
    /// replacement.
    pub fn current(&self) -> Option<Arc<Credential>> {
        let state = &self.shared.state;
        let newest = state.current();
        match &self.scope {
            None => newest,
            Some(scope) => Some(scope.narrow(newest)).filter(|credential| state.is_valid(credential)),
        }
    }

    /// The same source restricted to one endpoint: it returns only credentials that came with the cluster of
    /// `credential`. When the cluster moves, the last credential of the old endpoint stays until it expires, so a
    /// connection to the old endpoint never gets a credential for the new one.
    #[must_use]
    pub fn at_endpoint_of(&self, credential: Arc<Credential>) -> Self {
        Self { scope: Some(Arc::new(Scope::of(credential))), ..self.clone() }
    }

    /// Why there is no newer credential, if the last attempt to get one failed. For logs and health checks.
    pub fn failure(&self) -> Option<Error> {
        self.shared.state.progress.borrow().failure.clone()
    }

    /// Waits until there is a credential: up to five seconds for a broker that is starting, and as long as a plugin run
    /// takes, unless [`Broker::timeout`](crate::Broker::timeout) sets a limit. Cancel safe.
    ///
    /// # Errors
    ///
    /// The error of the last attempt. The source continues to try: call this again later, or read [`Self::current`].
    ///
    /// - [`Error::Failed`]: the broker has no credential; [`Error::reason`] says why.
    /// - [`Error::Timeout`]: there was none in time. Its `source()` is the last failure, if there was one.
    /// - [`Error::Unreachable`]: no broker answered within five seconds.
    /// - [`Error::Untrusted`]: what listens there may be an impostor.
    pub async fn ready(&self) -> Result<Arc<Credential>, Error> {
        self.wait(self.limit).await
    }

    /// As [`Self::ready`], for up to `limit`. Do not put another timeout around a wait: its error does not say why there is no
    /// credential.
    ///
    /// # Errors
    ///
    /// As [`Self::ready`].
    pub async fn ready_within(&self, limit: Duration) -> Result<Arc<Credential>, Error> {
        self.wait(Some(limit)).await
    }

    async fn wait(&self, limit: Option<Duration>) -> Result<Arc<Credential>, Error> {
        let first = within(limit, self.first()).await;
        first.map_err(|error| error.waited_for(&*self.shared.reference, || self.failure()))
    }

    async fn first(&self) -> Result<Arc<Credential>, Error> {
        let mut progress = self.shared.state.progress.subscribe();
        let mut start = std::pin::pin!(sleep(BROKER_START));
        loop {
            if let Some(credential) = self.current() {
                return Ok(credential);
            }
            let failure = progress.borrow_and_update().failure.clone();
            if let Some(error) = failure
                && (start.is_elapsed() || !(error.may_be_starting() || error.withdraws()))
            {
                return Err(error);
            }
            tokio::select! {
                () = &mut start, if !start.is_elapsed() => {}
                // The sender lives as long as this source.
                changed = progress.changed() => drop(changed),
            }
        }
    }

    /// Waits for a generation or a cluster that this call has not reported to this handle. The first one counts; changes in
    /// between are skipped. Cancel safe.
    pub async fn changed(&mut self) {
        let seen = self.seen;
        if let Ok(progress) = self.progress.wait_for(|progress| progress.rotations != seen).await {
            self.seen = progress.rotations;
        }
    }

    /// The current credential, then one for each change. Changes in between two polls are skipped. The stream never ends.
    pub fn changes(&self) -> impl Stream<Item = Arc<Credential>> + Send + Unpin + use<> {
        let source = Self { seen: 0, ..self.clone() };
        let changes = stream::unfold(source, |mut source| async {
            loop {
                source.changed().await;
                if let Some(credential) = source.current() {
                    return Some((credential, source));
                }
            }
        });
        changes.boxed()
    }

    /// An item each time when all credentials so far are no longer to be used: connections that were made with them can be
    /// closed. Ends with the source, which it does not keep. For credbroker's proxy.
    #[doc(hidden)]
    pub fn withdrawals(&self) -> impl Stream<Item = ()> + Send + Unpin + use<> {
        let mut progress = self.shared.state.progress.subscribe();
        let seen = progress.borrow_and_update().withdrawals;
        let items = stream::unfold((progress, seen), |(mut progress, seen)| async move {
            let now = progress.wait_for(|progress| progress.withdrawals != seen).await.ok()?.withdrawals;
            Some(((), (progress, now)))
        });
        items.boxed()
    }

    /// Reports that the API server answered 401 to `generation`. It does not wait. Several reports of one generation are
    /// sent as one, and a report of a generation that is no longer current is not sent. The replacement arrives as any
    /// rotation does.
    pub fn reject(&self, generation: &str) {
        // What an endpoint rejects after the cluster has left it says nothing about the next credential.
        if !self.has_moved() {
            self.shared.state.reject(generation);
        }
    }

    /// As [`Self::reject`], and waits up to ten seconds for the credential to use instead. `None`: the broker has nothing
    /// newer, or does not answer.
    pub async fn replace(&self, generation: &str) -> Option<Arc<Credential>> {
        let state = &self.shared.state;
        let (mut progress, mut rejection) = (state.progress.subscribe(), state.rejection.subscribe());
        self.reject(generation);
        let replaced = async {
            loop {
                progress.mark_unchanged();
                if let Some(credential) = self.current().filter(|now| now.generation() != generation) {
                    return Some(credential);
                }
                let kept = Rejection::Reported { generation: generation.into(), replaced: false };
                let is_kept = *rejection.borrow_and_update() == kept;
                if is_kept || self.current().is_none() || self.has_moved() {
                    return None;
                }
                tokio::select! {
                    changed = progress.changed() => drop(changed),
                    changed = rejection.changed() => drop(changed),
                }
            }
        };
        timeout(REPLACEMENT, replaced).await.unwrap_or_default()
    }

    fn has_moved(&self) -> bool {
        let newest = self.shared.state.current();
        self.scope.as_ref().zip(newest).is_some_and(|(scope, newest)| !scope.covers(&newest))
    }

    pub(crate) fn over(
        link: &Arc<Link>,
        sources: &Arc<Sources>,
        reference: CredentialRef,
        limit: Option<Duration>,
    ) -> Self {
        let reference = Arc::new(reference);
        let start = |place| {
            let (shared, of) = (link.subscribe(), Arc::clone(&reference));
            let watch = move || {
                let (watcher, reference) = (Arc::clone(&shared), Arc::clone(&of));
                async move { watcher.watch(&reference).await }
            };
            let (link, of) = (Arc::clone(link), Arc::clone(&reference));
            let report = move |generation: String| {
                let (link, reference) = (Arc::clone(&link), Arc::clone(&of));
                async move {
                    let call = async |client: Client| client.report_rejected(&reference, &generation).await;
                    Ok(link.call(call).await?.credential.generation().to_owned())
                }
            };
            SharedSource::start(Arc::clone(&reference), Some(place), clock::system, watch, report)
        };
        Self { limit, ..Self::of(sources.get_or_start(&reference, start)) }
    }

    /// A new handle, which has seen no change.
    fn of(shared: Arc<SharedSource>) -> Self {
        Self { progress: shared.state.progress.subscribe(), shared, seen: 0, scope: None, limit: None }
    }
}

impl SharedSource {
    fn start<W, WF, S, R, RF>(
        reference: Arc<CredentialRef>,
        place: Option<Place>,
        clock: Clock,
        watch: W,
        report: R,
    ) -> Arc<Self>
    where
        W: FnMut() -> WF + Send + 'static,
        WF: Future<Output = Result<S, Error>> + Send,
        S: Stream<Item = Result<Credential, Error>> + Send + Unpin,
        R: FnMut(String) -> RF + Send + 'static,
        RF: Future<Output = Result<String, Error>> + Send,
    {
        let state = Arc::new(SourceState::new(clock));
        let (followed, reported) = (Arc::clone(&state), Arc::clone(&state));
        let work = async move {
            tokio::join!(supervisor::run(followed, watch), report::run(reported, report));
        };
        #[expect(clippy::disallowed_methods, reason = "ends with the last handle of the source")]
        let task = AbortOnDropHandle::new(tokio::spawn(work));
        Arc::new(Self { reference, state, _task: task, _place: place })
    }
}

impl fmt::Debug for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialSource")
            .field("reference", &self.shared.reference)
            .field("current", &self.current())
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
