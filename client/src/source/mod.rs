//! A credential that is always the current one.

mod backoff;
mod report;
mod scope;
mod state;
pub(crate) mod supervisor;
#[cfg(test)]
pub(crate) mod tests;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures_util::Stream;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use self::{
    scope::Scope,
    state::{Progress, Rejection, State},
};
use crate::{
    Connections, Credential, CredentialRef, Error, Socket,
    clock::{self, Clock},
};

/// For a broker that is just starting.
const FOR_BROKER: Duration = Duration::from_secs(5);
/// For the plugin run that a rejection starts, and for what it issued to arrive.
const FOR_REPLACEMENT: Duration = Duration::from_secs(10);

/// A credential that follows every rotation, for as long as the last clone of this lives.
///
/// A task watches the broker, comes back after a restart, and keeps the last valid credential meanwhile. Reading is a
/// plain call on a snapshot: no lock, no allocation, no waiting, and never an expired credential.
///
/// ```no_run
/// # async fn example() -> Result<(), credbroker_client::Error> {
/// use credbroker_client::{CredentialRef, CredentialSource, Socket};
///
/// let socket = Socket::at(Socket::SYSTEM);
/// let mut source = CredentialSource::open(socket, CredentialRef::provider("gke")).await?;
/// let credential = source.current().expect("it was just opened");
/// source.changed().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CredentialSource {
    shared: Arc<Following>,
    progress: watch::Receiver<Progress>,
    seen: u64,
    scope: Option<Arc<Scope>>,
}

struct Following {
    reference: CredentialRef,
    state: Arc<State>,
    /// Ends with the last handle.
    _task: AbortOnDropHandle<()>,
}

impl CredentialSource {
    /// Follows the credential over a connection of its own, and waits for the first one: for a broker that is just
    /// starting up to five seconds, for a plugin run as long as it takes. Sources that are to share connections, or
    /// that should exist before their credential does, come from [`Connections::source`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), credbroker_client::Error> {
    /// use credbroker_client::{CredentialRef, CredentialSource, Socket};
    ///
    /// let source =
    ///     CredentialSource::open(Socket::at(Socket::SYSTEM), CredentialRef::provider("gke")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As of [`CredentialSource::ready`].
    pub async fn open(socket: Socket, reference: CredentialRef) -> Result<Self, Error> {
        let mut source = Connections::to(socket).source(reference);
        source.ready().await?;
        source.seen = source.progress.borrow().rotations;
        Ok(source)
    }

    /// The newest credential; `None` before the first one, and when the last one expired without a replacement.
    ///
    /// ```no_run
    /// # fn example(source: &credbroker_client::CredentialSource, headers: &mut http::HeaderMap) {
    /// if let Some(credential) = source.current() {
    ///     credential.authorize(headers);
    /// }
    /// # }
    /// ```
    pub fn current(&self) -> Option<Arc<Credential>> {
        let state = &self.shared.state;
        let newest = state.current();
        match &self.scope {
            None => newest,
            Some(scope) => Some(scope.narrow(newest)).filter(|credential| state.is_valid(credential)),
        }
    }

    /// The same source, for one endpoint: it shows no credential that came with another cluster than `credential` did,
    /// but the last one of this cluster for as long as that is valid. Connections to an endpoint that are made in its
    /// name never carry what is meant for the next one.
    ///
    /// ```no_run
    /// # async fn example(source: credbroker_client::CredentialSource) -> Result<(), credbroker_client::Error> {
    /// use credbroker_client::Authenticate;
    ///
    /// let credential = source.ready().await?;
    /// let server = credential.cluster().map(|cluster| cluster.server.clone());
    /// let layer = Authenticate::new(source.at_endpoint_of(credential));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn at_endpoint_of(&self, credential: Arc<Credential>) -> Self {
        Self { scope: Some(Arc::new(Scope::of(credential))), ..self.clone() }
    }

    /// Why there is no newer credential, if the last attempt to get one failed. For logs and health checks.
    ///
    /// ```no_run
    /// # fn example(source: &credbroker_client::CredentialSource) {
    /// let healthy = source.current().is_some();
    /// let degraded = source.failure().is_some();
    /// # }
    /// ```
    pub fn failure(&self) -> Option<Error> {
        self.shared.state.progress.borrow().failure.clone()
    }

    /// Waits until there is a credential. Dropping the future changes nothing.
    ///
    /// ```no_run
    /// # async fn example(source: &credbroker_client::CredentialSource) -> Result<(), credbroker_client::Error> {
    /// let credential = source.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Whatever the last attempt met. The source goes on trying: ask again later, or read [`Self::current`].
    ///
    /// - [`Error::Failed`]: the broker has none; its `reason` says why.
    /// - [`Error::Unreachable`]: no broker came within five seconds.
    /// - [`Error::Untrusted`]: whoever listens may be an impostor.
    pub async fn ready(&self) -> Result<Arc<Credential>, Error> {
        let mut progress = self.shared.state.progress.subscribe();
        let mut patience = std::pin::pin!(sleep(FOR_BROKER));
        loop {
            if let Some(credential) = self.current() {
                return Ok(credential);
            }
            let failure = progress.borrow_and_update().failure.clone();
            if let Some(error) = failure
                && (patience.is_elapsed() || !error.may_be_starting())
            {
                return Err(error);
            }
            tokio::select! {
                () = &mut patience, if !patience.is_elapsed() => {}
                // The sender is our own: this never is an error.
                changed = progress.changed() => drop(changed),
            }
        }
    }

    /// Waits for a generation, or a cluster beside it, that this handle was not told of: by this call, by
    /// [`Self::open`], or before it was cloned. Rotations in between are skipped. Dropping the future loses nothing.
    ///
    /// ```no_run
    /// # async fn example(mut source: credbroker_client::CredentialSource) {
    /// loop {
    ///     source.changed().await;
    ///     if let Some(credential) = source.current() {
    ///         println!("now {}", credential.generation());
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn changed(&mut self) {
        let seen = self.seen;
        if let Ok(progress) = self.progress.wait_for(|progress| progress.rotations != seen).await {
            self.seen = progress.rotations;
        }
    }

    /// Says that the API server answered 401 to `generation`. Does not wait; reports of one generation become one, and
    /// of one that is no longer current, none. The replacement comes as any rotation does.
    ///
    /// ```no_run
    /// # fn example(source: &credbroker_client::CredentialSource, used: &credbroker_client::Credential) {
    /// source.reject(used.generation());
    /// # }
    /// ```
    pub fn reject(&self, generation: &str) {
        // What an endpoint that was left thinks of a credential says nothing of the next one.
        if !self.has_moved() {
            self.shared.state.reject(generation);
        }
    }

    /// As [`Self::reject`], and waits for what to use instead, up to ten seconds. `None`: the broker has nothing
    /// newer, or cannot be asked.
    ///
    /// ```no_run
    /// # async fn example(source: &credbroker_client::CredentialSource, used: &credbroker_client::Credential) {
    /// if let Some(newer) = source.replace(used.generation()).await {
    ///     println!("once more, with {}", newer.generation());
    /// }
    /// # }
    /// ```
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
        timeout(FOR_REPLACEMENT, replaced).await.unwrap_or_default()
    }

    fn has_moved(&self) -> bool {
        let newest = self.shared.state.current();
        self.scope.as_ref().zip(newest).is_some_and(|(scope, newest)| !scope.covers(&newest))
    }

    pub(crate) fn follow(connections: &Connections, reference: CredentialRef) -> Self {
        let (place, reporting) = (connections.place(), connections.clone());
        let (watched, reported) = (reference.clone(), reference.clone());
        let watch = move || {
            let (place, reference) = (Arc::clone(&place), watched.clone());
            place.watch(reference)
        };
        let report = move |generation| {
            let (connections, reference) = (reporting.clone(), reported.clone());
            async move {
                let instead = connections.report(reference, generation).await?;
                Ok(instead.generation().to_owned())
            }
        };
        Self::start(reference, clock::system, watch, report)
    }

    fn start<W, WF, S, R, RF>(reference: CredentialRef, clock: Clock, watch: W, report: R) -> Self
    where
        W: FnMut() -> WF + Send + 'static,
        WF: Future<Output = Result<S, Error>> + Send,
        S: Stream<Item = Result<Credential, Error>> + Send + Unpin,
        R: FnMut(String) -> RF + Send + 'static,
        RF: Future<Output = Result<String, Error>> + Send,
    {
        let state = Arc::new(State::new(clock));
        let progress = state.progress.subscribe();
        let (following, reporting) = (Arc::clone(&state), Arc::clone(&state));
        let work = async move {
            tokio::join!(supervisor::follow(following, watch), report::report(reporting, report));
        };
        #[expect(clippy::disallowed_methods, reason = "ends with the last handle of the source")]
        let task = AbortOnDropHandle::new(tokio::spawn(work));
        Self { shared: Arc::new(Following { reference, state, _task: task }), progress, seen: 0, scope: None }
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
