//! The claim to the one run of a key. The run belongs to the cache, never to the caller that started it.

mod publish;
mod run;

use std::{
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use tracing::{Instrument as _, info_span};

use super::{
    CacheError, CredentialCache, Request,
    account::Ended,
    attention::{Asker, Unattended},
    entry::KeyEntry,
    flight::Flight,
    policy::Decision,
    state::KeyState,
};
use credbroker_observe::{metrics::RunReason, trace::RunSpan};
use credbroker_runner::{Attendance, PluginRunner, Urgency};

/// The claim to run the plugin of an entry. Its run always publishes an outcome, even after a panic or when the runtime
/// shuts down.
struct Claim<R: PluginRunner> {
    entry: Arc<KeyEntry>,
    flight: Arc<Flight>,
    cache: CredentialCache<R>,
    /// Time since boot at which it was made.
    entered: Duration,
    /// Not set before the plugin has ended.
    ended: OnceLock<Ended>,
    is_over: bool,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// Decides, and starts a run if the decision needs one and none is in flight. Returns the run in flight, if any.
    /// `reason` is why a new run is started; `None`: the state says so.
    ///
    /// Deciding and claiming are one step: between two steps another run could start and end.
    pub(super) fn try_claim(
        &self,
        entry: &Arc<KeyEntry>,
        urgency: Urgency,
        reason: Option<RunReason>,
        decide: impl FnOnce(&mut KeyState) -> Decision,
    ) -> (Decision, Option<Arc<Flight>>) {
        self.try_claim_for(entry, (urgency, reason, None), decide)
    }

    /// The same for a request: a new run has the session of its person, and its terminal if the plugin reads from one.
    pub(super) fn try_claim_for(
        &self,
        entry: &Arc<KeyEntry>,
        (urgency, reason, request): (Urgency, Option<RunReason>, Option<&Request>),
        decide: impl FnOnce(&mut KeyState) -> Decision,
    ) -> (Decision, Option<Arc<Flight>>) {
        let mut decision = Decision::Wait;
        let (mut flight, mut is_new) = (None, false);
        entry.cell.send_if_modified(|state| {
            // An entry that is no longer in the map does not note that its provider was retired.
            decision = match state.retired.or_else(|| entry.spec.provider.standing.retirement()) {
                Some(why) => Decision::Fail(CacheError::Retired(why).into()),
                None => decide(state),
            };
            let needs_run = matches!(decision, Decision::Wait | Decision::ServeAndRefresh(_));
            if needs_run && state.flight.is_none() {
                let reason = reason.unwrap_or_else(|| state.reason(entry.spec.file_version(), self.now()));
                let session = request.and_then(|request| request.session.clone());
                let lender = request.and_then(|request| request.lender.clone());
                let lender = lender.filter(|_| state.attention.reads_terminal());
                // A caller that has its answer does not wait.
                let urgency = match (&decision, urgency) {
                    (Decision::ServeAndRefresh(_), Urgency::Waited { .. }) => Urgency::Background,
                    _ => urgency,
                };
                let attendance = Attendance::of(session, lender);
                state.flight = Some(Arc::new(Flight::new(urgency, reason, attendance)));
                is_new = true;
                self.changed();
            }
            flight.clone_from(&state.flight);
            false // watches need not know that a run starts
        });
        if let Some(flight) = flight.as_ref().filter(|_| is_new) {
            self.start(entry, flight);
            // No maintenance ends the run of an entry that is not in the map: it is for the callers that still wait.
            if entry.leaves.load(Ordering::Relaxed) {
                flight.detach();
            }
        }
        (decision, flight)
    }

    /// Starts a run unless one is in flight, also if the entry holds a valid credential. Returns the run in flight; `None`:
    /// the plugin needs a terminal, which the failure of the entry says.
    pub(super) fn force_claim(&self, entry: &Arc<KeyEntry>, urgency: Urgency) -> Option<Arc<Flight>> {
        let decide = |state: &mut KeyState| match state.attention.refusal(Asker::Broker) {
            Some(Unattended::NeedsTerminal) if state.flight.is_none() => {
                let why = CacheError::Unattended(Unattended::NeedsTerminal);
                state.failure =
                    Some(self.reject(state.failure.as_ref(), why.clone(), state.current.as_ref()));
                self.changed();
                Decision::Fail(why.into())
            }
            _ => Decision::Wait,
        };
        self.try_claim(entry, urgency, Some(RunReason::Requested), decide).1
    }

    fn start(&self, entry: &Arc<KeyEntry>, flight: &Arc<Flight>) {
        let span = info_span!(
            "plugin_run",
            provider = %entry.spec.provider.name,
            key = %entry.spec.key,
        );
        flight.trace(RunSpan::start(&entry.spec, flight.reason));
        let (entry, flight, entered) = (Arc::clone(entry), Arc::clone(flight), self.now().boot);
        let (cache, ended) = (self.clone(), OnceLock::new());
        let claim = Claim { entry, flight, cache, entered, ended, is_over: false };
        self.inner.parts.tasks.spawn(claim.run().instrument(span.or_current()));
    }
}
