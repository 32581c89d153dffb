//! The claim to the one run of a key, from the decision to the outcome. The run belongs to the cache, never to the caller
//! that started it.

use std::{
    future::pending,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use tokio::time::sleep;
use tracing::{Instrument as _, info, info_span, warn};

use super::{
    CacheError, CredentialCache, Request,
    account::{self, Accepted, Account, Ended, RunEffect},
    attention::{Asker, EndResult, Ending, Unattended},
    entry::KeyEntry,
    error::Failure,
    flight::Flight,
    state::{self, Current, Decision, KeyState, Replacement},
};
use credbroker_credential::{Draft, Generation, Issued, Lifetime, Material, Validity, lifetime};
use credbroker_observe::{
    clock::Now,
    metrics::{RunOutcome, RunReason},
    trace::RunSpan,
};
use credbroker_runner::{
    Attendance, ForeignTexts, PluginRunner, RunError, RunOutput, RunPermit, RunSource, Throttled, Urgency,
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

impl<R: PluginRunner> Claim<R> {
    pub(super) async fn run(mut self) {
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
        let source = self.source();
        let ticket = self.flight.queue(|urgency| parts.scheduler.enter(&spec.provider, urgency, source));
        let permit = ticket.turn().await.map_err(|throttled| throttled.into_error(spec.command()))?;
        // After an eviction, the entry does not end this run when its provider is retired.
        if let Some(why) = spec.provider.standing.retirement() {
            return Err(CacheError::Retired(why));
        }
        let started = self.cache.now();
        self.flight.started(started);
        self.entry.runs.fetch_add(1, Ordering::Relaxed);
        let result = self.run_plugin(&permit).await;
        account::called(&parts.metrics, &result);
        let ran = self.cache.now().boot.saturating_sub(started.boot);
        let _first = self.ended.set(Ended { ran, failure: result.as_ref().err().map(account::failure) });
        let is_first = self.entry.cell.borrow().failure.as_ref().is_none_or(|failure| failure.throttled == 0);
        let foreign = || ForeignTexts::of(spec, self.flight.attendance.session().map(Arc::as_ref));
        let Some(retry_after) = permit.finish(&result, is_first, foreign) else { return Ok(result?) };
        // The issuer asked for fewer runs. Callers need to know that, and for how long.
        let throttled = Throttled { provider: Arc::clone(&spec.provider), of_key: true, retry_after };
        Err(throttled.into_error(spec.command()).into())
    }

    /// Who decides what the plugin receives.
    fn source(&self) -> RunSource {
        let Self { entry, flight, .. } = self;
        if flight.attendance.session().is_none() && entry.spec.foreign_parts().is_empty() {
            return RunSource::Configuration(entry.spec.key);
        }
        RunSource::Others { uid: entry.share.party.or(flight.session_uid()) }
    }

    /// Runs the plugin. If it waits for a person, it gives its slot to other runs. One line says that it may run into its
    /// limit.
    async fn run_plugin(&self, permit: &RunPermit) -> Result<RunOutput, RunError> {
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
        self.account(None, &RunEffect::Abandoned);
        let flight = &self.flight;
        self.entry.cell.send_if_modified(|state| {
            state.flight.take_if(|found| Arc::ptr_eq(found, flight));
            self.cache.changed();
            false
        });
        flight.publish(None);
    }
}

impl<R: PluginRunner> Claim<R> {
    /// Publishes the outcome. Everything that may panic comes before that: a run without an outcome leaves its callers
    /// waiting.
    pub(super) fn publish(&mut self, result: Result<RunOutput, CacheError>) {
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
        let outcome = outcome.map_err(|error| self.cache.reject(last.as_ref(), error, held.as_ref()));
        self.account(held.as_ref(), &outcome.as_ref().map_or_else(RunEffect::Failed, RunEffect::Accepted));
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
        let (flight, mut is_refused) = (&self.flight, false);
        let is_leased = attendance.lender().is_some();
        let standing = &self.entry.spec.provider.standing;
        self.entry.cell.send_if_modified(|state| {
            // Asked in the cell: a reload that shares the provider looks at the cell afterwards.
            let is_forgeable = is_leased && standing.is_shared();
            // An entry that is no longer in the map does not note that it is retired.
            is_refused = state.retired.is_some() || standing.retirement().is_some() || is_forgeable;
            // After an eviction the entry has another run or none, and does not keep this outcome.
            if state.flight.take_if(|found| Arc::ptr_eq(found, flight)).is_none() {
                return false;
            }
            self.cache.changed();
            if is_forgeable {
                return false;
            }
            state.attention = ending.map_or(state.attention, |ending| state.attention.after(ending));
            match outcome {
                Ok(current) => {
                    state.accept(current);
                    state.is_leased = is_leased;
                }
                Err(failure) => state.failure = Some(failure),
            }
            true
        });
        // Not even the callers that wait get the credential of a definition that is no longer in force, or one that another
        // user could have forged.
        flight.publish(Some(issued).filter(|_| !is_refused));
        self.cache.resized(&self.entry);
    }

    /// Counts and logs the run, which found `held` in the entry.
    pub(super) fn account(&self, held: Option<&Current>, end: &RunEffect<'_>) {
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
                RunEffect::Accepted(accepted) => Ok(&*accepted.current.issued),
                RunEffect::Failed(failure) => Err(Some(&failure.error)),
                RunEffect::Abandoned => Err(None),
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

impl<R: PluginRunner> CredentialCache<R> {
    /// What a printed credential becomes in `entry`, which holds `held`.
    pub(super) fn accept(
        &self,
        entry: &KeyEntry,
        held: Option<&Current>,
        output: &RunOutput,
    ) -> Result<Accepted, CacheError> {
        let RunOutput { decoded, file_version: file } = output;
        let (now, file) = (self.now(), *file);
        for warning in &decoded.warnings {
            warn!(command = %entry.spec.command(), "{warning}");
        }
        let lifetime = lifetime(decoded, entry.spec.provider.lifetime, now.wall)
            .map_err(|source| CacheError::Lifetime { command: entry.spec.command(), source })?;
        let u = (self.inner.parts.jitter)();
        let material = &decoded.material;
        let issue = |generation, due_in| {
            let issued = self.issue(entry, generation, material, lifetime, now);
            Current::new(Arc::new(issued), due_in, now, file)
        };
        let (outcome, current) = match state::replace(held, material, lifetime, now, u, file) {
            Replacement::Unchanged(current) => (RunOutcome::Unchanged, current),
            Replacement::Extended { old, due_in } => {
                (RunOutcome::Extended, issue(old.generation.clone(), due_in))
            }
            Replacement::Rotated { due_in } => (RunOutcome::Rotated, issue(self.next_generation(), due_in)),
        };
        if lifetime.within_skew {
            warn!("the credential had already expired when it arrived; check the clock of this machine");
        }
        Ok(Accepted { current, outcome })
    }

    /// Encodes a credential, once for all responses.
    fn issue(
        &self,
        entry: &KeyEntry,
        generation: Generation,
        material: &Material,
        lifetime: Lifetime,
        now: Now,
    ) -> Issued {
        let (token, pair) = Draft::secrets(material);
        let fingerprint = material.pair.as_ref().map(|pair| pair.fingerprint);
        let (expires_at, left) = (lifetime.expires_at, lifetime.left(now.wall));
        let encoded = (self.inner.parts.encode)(&Draft {
            generation: &generation,
            token,
            pair,
            fingerprint,
            expires_at,
            lifetime: left,
            cluster: entry.spec.endpoint(),
        });
        let within_skew = lifetime.within_skew;
        let certificate =
            material.pair.as_ref().map(|pair| Validity { from: pair.not_before, to: pair.not_after });
        Issued {
            generation,
            encoded,
            fingerprint,
            certificate,
            fetched: now,
            expires_at,
            lifetime: left,
            within_skew,
            bound: lifetime.bound,
        }
    }

    fn next_generation(&self) -> Generation {
        let number = self.inner.generations.fetch_add(1, Ordering::Relaxed);
        Generation::new(Arc::clone(&self.inner.parts.epoch), number)
    }

    /// The failure that `error` becomes beside the credential `held`.
    pub(super) fn reject(
        &self,
        last: Option<&Failure>,
        error: CacheError,
        held: Option<&Current>,
    ) -> Failure {
        let now = self.now();
        let holds = held.is_some_and(|held| held.issued.is_valid_at(now));
        Failure::after(last, error, holds, now, (self.inner.parts.jitter)())
    }
}
