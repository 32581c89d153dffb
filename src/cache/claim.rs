//! The claim to the one run of a key. The run belongs to the cache, never to the caller that started it.

use std::{
    future::pending,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use tokio::time::sleep;
use tracing::{Instrument as _, info, info_span, warn};

use super::{
    CacheError, CredentialCache, Request,
    account::{self, Account, Ended, RunEnd},
    attention::{Asker, EndResult, Ending, Unattended},
    entry::KeyEntry,
    flight::Flight,
    policy::Decision,
    state::{Current, KeyState},
};
use crate::{
    exec::{Attendance, Permit, PluginRunner, RunError, RunOutput, Urgency},
    metrics::RunReason,
    trace::RunSpan,
};

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
            decision = match state.retired {
                Some(why) => Decision::Fail(CacheError::Retired(why).into()),
                None => decide(state),
            };
            let needs_run = matches!(decision, Decision::Wait | Decision::ServeAndRefresh(_));
            if needs_run && state.flight.is_none() {
                let reason = reason.unwrap_or_else(|| state.reason(entry.spec.file_version(), self.now()));
                let session = request.and_then(|request| request.session.clone());
                let lender = request.and_then(|request| request.lender.clone());
                let lender = lender.filter(|_| state.attention.reads_terminal());
                let attendance = Attendance::of(session, lender);
                state.flight = Some(Arc::new(Flight::new(urgency, reason, attendance)));
                is_new = true;
            }
            flight.clone_from(&state.flight);
            false // watches need not know that a run starts
        });
        if let Some(flight) = flight.as_ref().filter(|_| is_new) {
            self.start(entry, flight);
        }
        (decision, flight)
    }

    /// Starts a run unless one is in flight, also if the entry holds a valid credential. Returns the run in flight; `None`:
    /// the plugin needs a terminal, which the failure of the entry says.
    pub(super) fn force_claim(&self, entry: &Arc<KeyEntry>, urgency: Urgency) -> Option<Arc<Flight>> {
        let decide = |state: &mut KeyState| match state.attention.refusal(Asker::Broker) {
            Some(Unattended::NeedsTerminal) if state.flight.is_none() => {
                let why = CacheError::Unattended(Unattended::NeedsTerminal);
                state.failure = Some(self.reject(state.failure.as_ref(), why.clone()));
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

impl<R: PluginRunner> Claim<R> {
    async fn run(mut self) {
        let parts = &self.cache.inner.parts;
        let result = tokio::select! {
            biased;
            () = parts.draining.cancelled() => Err(CacheError::Draining),
            () = self.flight.abandoned.cancelled() => return self.abandon(),
            result = self.wait_and_run() => result,
        };
        // Another caller may have a terminal too.
        if let Err(CacheError::Run(RunError::TerminalLost { .. })) = result {
            return self.abandon();
        }
        self.publish(result);
    }

    /// Waits until the scheduler permits the run, and runs the plugin.
    async fn wait_and_run(&self) -> Result<RunOutput, CacheError> {
        let (parts, spec) = (&self.cache.inner.parts, &self.entry.spec);
        let ticket = parts.scheduler.enter(&spec.provider, self.flight.urgency());
        self.flight.queued(ticket.handle());
        let permit = ticket.turn().await.map_err(|throttled| throttled.into_error(spec.command()))?;
        let started = self.cache.now();
        self.flight.started(started);
        self.entry.runs.fetch_add(1, Ordering::Relaxed);
        let result = self.run_plugin(&permit).await;
        account::called(&parts.metrics, &result);
        let ran = self.cache.now().boot.saturating_sub(started.boot);
        let _first = self.ended.set(Ended { ran, failure: result.as_ref().err().map(account::failure) });
        if !permit.finish(&result) {
            return Ok(result?);
        }
        // The issuer asked for fewer runs. Callers need to know that, and for how long.
        let throttled = parts.scheduler.throttled(&spec.provider);
        result
            .map_err(|error| throttled.map_or(error, |throttled| throttled.into_error(spec.command())).into())
    }

    /// Runs the plugin. If it waits for a person, it gives its slot to other runs. One line says that it may run into its
    /// limit.
    async fn run_plugin(&self, permit: &Permit) -> Result<RunOutput, RunError> {
        let spec = &self.entry.spec;
        let timeout = spec.provider.timeout;
        let attendance = &self.flight.attendance;
        let half = async {
            sleep(timeout / 2).await;
            if !attendance.is_attended() {
                warn!(
                    timeout_s = timeout.as_secs(),
                    "the plugin has used half of its time limit (`timeout`)"
                );
            }
        };
        let beside = async {
            tokio::join!(half, attendance.take_place(|| permit.step_aside()));
            pending().await
        };
        tokio::select! {
            biased;
            result = self.cache.inner.parts.runner.run(Arc::clone(spec), Arc::clone(attendance)) => result,
            never = beside => never,
        }
    }

    /// Ends without an outcome, because it is not needed.
    fn abandon(mut self) {
        self.is_over = true;
        self.account(None, &RunEnd::Abandoned);
        let flight = &self.flight;
        self.entry.cell.send_if_modified(|state| {
            state.flight.take_if(|found| Arc::ptr_eq(found, flight));
            false
        });
        flight.publish(None);
    }

    /// Publishes the outcome. Everything that may panic comes before that: a run without an outcome leaves its callers
    /// waiting.
    fn publish(&mut self, result: Result<RunOutput, CacheError>) {
        let (held, last) = {
            let state = self.entry.cell.borrow();
            (state.current.clone(), state.failure.clone())
        };
        let failure = match &result {
            Err(CacheError::Run(RunError::Timeout { stderr, .. })) if !stderr.is_empty() => EndResult::Prompt,
            Err(error) if error.needs_terminal() => EndResult::NoTerminal,
            _ => EndResult::Failure,
        };
        let has_run = self.flight.started_at().is_some()
            && !matches!(result, Err(CacheError::Draining | CacheError::Run(RunError::Throttled { .. })));
        let outcome = result.and_then(|output| self.cache.accept(&self.entry, held.as_ref(), &output));
        let outcome = outcome.map_err(|error| self.cache.reject(last.as_ref(), error));
        self.account(held.as_ref(), &outcome.as_ref().map_or_else(RunEnd::Failed, RunEnd::Accepted));
        if let (Some(failure), Ok(_)) = (&last, &outcome) {
            info!(failures = failure.attempts, "the plugin works again");
        }
        drop(held);
        let outcome = outcome.map(|accepted| accepted.current);
        let attendance = &self.flight.attendance;
        let ending = has_run.then(|| Ending {
            result: if outcome.is_ok() { EndResult::Credential } else { failure },
            is_attended: attendance.is_attended(),
            needed_person: attendance.needed_person(),
        });
        self.is_over = true;
        let issued = outcome.as_ref().map(|current| Arc::clone(&current.issued));
        let issued = issued.map_err(Clone::clone);
        if issued.is_ok() {
            // A verification in progress holds the old credential.
            self.entry.forget_verification();
        }
        let (flight, mut is_retired) = (&self.flight, false);
        self.entry.cell.send_if_modified(|state| {
            is_retired = state.retired.is_some();
            // After an eviction the entry has another run or none, and does not keep this outcome.
            if state.flight.take_if(|found| Arc::ptr_eq(found, flight)).is_none() {
                return false;
            }
            state.attention = ending.map_or(state.attention, |ending| state.attention.after(ending));
            match outcome {
                Ok(current) => state.accept(current),
                Err(failure) => state.failure = Some(failure),
            }
            true
        });
        // Not even the callers that wait get the credential of a definition that is no longer in force.
        flight.publish(Some(issued).filter(|_| !is_retired));
    }
}

impl<R: PluginRunner> Claim<R> {
    /// Counts and logs the run, which found `held` in the entry.
    fn account(&self, held: Option<&Current>, end: &RunEnd<'_>) {
        let now = self.cache.now();
        let account = Account {
            entry: &self.entry,
            metrics: &self.cache.inner.parts.metrics,
            reason: self.flight.reason,
            queued: self.flight.started_at().map(|started| started.saturating_sub(self.entered)),
            ended: self.ended.get(),
            held,
            now,
        };
        let outcome = account.close(end);
        self.flight.end_trace(outcome, account.queued);
        if let Some(started) = self.flight.started_at() {
            let took = self.ended.get().map_or(now.boot.saturating_sub(started), |ended| ended.ran);
            let end = match end {
                RunEnd::Accepted(accepted) => Ok(&*accepted.current.issued),
                RunEnd::Failed(failure) => Err(Some(&failure.error)),
                RunEnd::Abandoned => Err(None),
            };
            (self.cache.inner.parts.on_run)(&self.entry.spec, end, took);
        }
    }
}

impl<R: PluginRunner> Drop for Claim<R> {
    fn drop(&mut self) {
        if !self.is_over {
            let is_draining = self.cache.inner.parts.draining.is_cancelled();
            let panicked = || RunError::Panicked { command: self.entry.spec.command() };
            self.publish(Err(if is_draining { CacheError::Draining } else { panicked().into() }));
        }
    }
}
