//! The claim to the one run of a key, from the decision to the outcome. The run belongs to the cache, never to the caller
//! that started it.

use std::{
    future::pending,
    sync::{Arc, atomic::Ordering},
};

use tokio::time::sleep;
use tracing::{Instrument as _, info, info_span, warn};

use super::{
    account::{self, Account, RunEffect},
    attention::{Asker, EndResult, Ending, Unattended},
    cache::CredentialCache,
    entry::KeyEntry,
    error::{CacheError, Failure},
    request::Request,
    run::{Ended, Run},
    state::{Current, Decision, KeyState, Replacement, replace},
};
use credbroker_credential::{Draft, Generation, Issued, Lifetime, Material, Validity, lifetime};
use credbroker_observe::{
    clock::Now,
    metrics::{RunOutcome, RunReason},
};
use credbroker_runner::{
    Attendance, ForeignTexts, PluginRunner, RunError, RunOutput, RunPermit, RunSource, Urgency,
};

/// The claim to run the plugin of an entry. Its run always publishes an outcome, even after a panic or when the runtime
/// shuts down.
struct Claim<R: PluginRunner> {
    cache: CredentialCache<R>,
    entry: Arc<KeyEntry>,
    run: Arc<Run>,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// Decides, and starts a run if the decision needs one and there is none. Returns the run, if any. `reason` is why a new
    /// run is started; `None`: the state says so.
    pub(super) fn try_claim(
        &self,
        entry: &Arc<KeyEntry>,
        urgency: Urgency,
        reason: Option<RunReason>,
        decide: impl FnOnce(&mut KeyState) -> Decision,
    ) -> (Decision, Option<Arc<Run>>) {
        let (decision, run, _) = self.try_claim_for(entry, (urgency, reason, None), decide);
        (decision, run)
    }

    /// The same for a request, with whether the run is new: then it has the session of the person, and the terminal if the
    /// plugin reads from one.
    ///
    /// Deciding and claiming are one step: between two steps another run could start and end.
    pub(super) fn try_claim_for(
        &self,
        entry: &Arc<KeyEntry>,
        (urgency, reason, request): (Urgency, Option<RunReason>, Option<&Request>),
        decide: impl FnOnce(&mut KeyState) -> Decision,
    ) -> (Decision, Option<Arc<Run>>, bool) {
        let spec = &entry.spec;
        let (mut decision, mut run, mut is_new) = (Decision::Wait, None, false);
        entry.cell.send_if_modified(|state| {
            // An entry that is no longer in the map does not note that its provider was retired.
            decision = match state.retired.or_else(|| spec.provider.state.retirement()) {
                Some(why) => Decision::Fail(CacheError::Retired(why).into()),
                None => decide(state),
            };
            let urgency = match (&decision, urgency) {
                // A caller that has its answer does not wait.
                (Decision::ServeAndRefresh(_), Urgency::Waited { .. }) => Some(Urgency::Background),
                (Decision::ServeAndRefresh(_) | Decision::Wait, _) => Some(urgency),
                (Decision::Serve(_) | Decision::Fail(_), _) => None,
            };
            if let Some(urgency) = urgency.filter(|_| state.run.is_none()) {
                let now = self.now();
                let reason = reason.unwrap_or_else(|| state.reason(spec.file_version(), now));
                let session = request.and_then(|request| request.session.clone());
                let lender = request.and_then(|request| request.lender.clone());
                let attendance = Attendance::of(session, lender.filter(|_| state.attention.reads_terminal()));
                state.run = Some(Arc::new(Run::new(spec, urgency, reason, attendance, now)));
                is_new = true;
                self.changed();
            }
            run.clone_from(&state.run);
            false // watches need not know that a run starts
        });
        if let Some(run) = run.as_ref().filter(|_| is_new) {
            let span = info_span!("plugin_run", provider = %spec.provider.name, key = %spec.key);
            let claim = Claim { cache: self.clone(), entry: Arc::clone(entry), run: Arc::clone(run) };
            self.inner.parts.tasks.spawn(claim.run().instrument(span.or_current()));
            // No maintenance ends the run of an entry that is not in the map: it is for the callers that still wait.
            if entry.leaves.load(Ordering::Relaxed) {
                run.detach();
            }
        }
        (decision, run, is_new)
    }

    /// Starts a run unless there is one, also if the entry holds a valid credential. Returns the run; `None`: the plugin
    /// needs a terminal, which the failure of the entry says.
    pub(super) fn force_claim(&self, entry: &Arc<KeyEntry>, urgency: Urgency) -> Option<Arc<Run>> {
        let decide = |state: &mut KeyState| match state.attention.refusal(Asker::Broker) {
            Some(Unattended::NeedsTerminal) if state.run.is_none() => {
                let why = CacheError::Unattended(Unattended::NeedsTerminal);
                let failure = self.reject(state.failure.as_ref(), why.clone(), state.current.as_ref());
                state.failure = Some(failure);
                self.changed();
                Decision::Fail(why.into())
            }
            _ => Decision::Wait,
        };
        self.try_claim(entry, urgency, Some(RunReason::Requested), decide).1
    }

    /// What a printed credential becomes in `entry`, which holds `held`.
    fn accept(
        &self,
        entry: &KeyEntry,
        held: Option<&Current>,
        RunOutput { decoded, file_version: file }: &RunOutput,
    ) -> Result<(RunOutcome, Current), CacheError> {
        let now = self.now();
        for warning in &decoded.warnings {
            warn!(command = %entry.spec.command(), "{warning}");
        }
        let lifetime = lifetime(decoded, entry.spec.provider.lifetime, now.wall)
            .map_err(|source| CacheError::Lifetime { command: entry.spec.command(), source })?;
        let u = (self.inner.parts.jitter)();
        let material = &decoded.material;
        let issue = |generation, due_in| {
            let issued = self.issue(entry, generation, material, lifetime, now);
            Current::new(Arc::new(issued), due_in, now, *file)
        };
        let accepted = match replace(held, material, lifetime, now, u, *file) {
            Replacement::Unchanged(current) => (RunOutcome::Unchanged, current),
            Replacement::Extended { old, due_in } => {
                (RunOutcome::Extended, issue(old.generation.clone(), due_in))
            }
            Replacement::Rotated { due_in } => {
                let number = self.inner.generations.fetch_add(1, Ordering::Relaxed);
                let generation = Generation::new(Arc::clone(&self.inner.parts.epoch), number);
                (RunOutcome::Rotated, issue(generation, due_in))
            }
        };
        if lifetime.within_skew {
            warn!("the credential had already expired when it arrived; check the clock of this machine");
        }
        Ok(accepted)
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
            within_skew: lifetime.within_skew,
            bound: lifetime.bound,
        }
    }

    /// The failure that `error` becomes beside the credential `held`.
    fn reject(&self, last: Option<&Failure>, error: CacheError, held: Option<&Current>) -> Failure {
        let now = self.now();
        let holds = held.is_some_and(|held| held.issued.is_valid_at(now));
        Failure::after(last, error, holds, now, (self.inner.parts.jitter)())
    }
}

impl<R: PluginRunner> Claim<R> {
    async fn run(self) {
        let result = tokio::select! {
            biased;
            () = self.cache.inner.parts.draining.cancelled() => Err(CacheError::Draining),
            () = self.run.abandoned.cancelled() => return self.abandon(),
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
        let Self { cache, entry, run } = self;
        let (parts, spec) = (&cache.inner.parts, &entry.spec);
        let source = self.source();
        let ticket = run.queue(|urgency| parts.scheduler.enter(&spec.provider, urgency, source));
        let permit = ticket.turn().await.map_err(|left| RunError::throttled(spec, false, left))?;
        // After an eviction, the entry does not end this run when its provider is retired.
        if let Some(why) = spec.provider.state.retirement() {
            return Err(CacheError::Retired(why));
        }
        run.started(cache.now());
        entry.runs.fetch_add(1, Ordering::Relaxed);
        let result = self.run_plugin(&permit).await;
        account::called(&parts.metrics, &result);
        let ran = run.took(cache.now()).unwrap_or_default();
        let _first = run.ended.set(Ended { ran, failure: result.as_ref().err().map(account::failure) });
        let is_first = entry.cell.borrow().failure.as_ref().is_none_or(|failure| failure.throttled == 0);
        let foreign = || ForeignTexts::of(spec, run.attendance.session().map(Arc::as_ref));
        let Some(retry_after) = permit.finish(&result, is_first, foreign) else { return Ok(result?) };
        // The issuer asked for fewer runs. Callers need to know that, and for how long.
        Err(RunError::throttled(spec, true, retry_after).into())
    }

    /// Who decides what the plugin receives.
    fn source(&self) -> RunSource {
        let Self { entry, run, .. } = self;
        if run.attendance.session().is_none() && entry.spec.foreign_parts().is_empty() {
            return RunSource::Configuration(entry.spec.key);
        }
        RunSource::Others { uid: entry.share.party.or(run.session_uid()) }
    }

    /// Runs the plugin. If it waits for a person, it gives its slot to other runs. One line says that it may run into its
    /// limit.
    async fn run_plugin(&self, permit: &RunPermit) -> Result<RunOutput, RunError> {
        let (spec, attendance) = (&self.entry.spec, &self.run.attendance);
        let timeout = spec.provider.timeout;
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
    fn abandon(self) {
        self.account(None, &RunEffect::Abandoned);
        self.entry.update(|state| {
            state.run.take_if(|found| Arc::ptr_eq(found, &self.run));
            self.cache.changed();
        });
        self.run.publish(None);
    }

    /// Publishes the outcome. What may panic comes first: a run without an outcome leaves its callers waiting.
    fn publish(&self, result: Result<RunOutput, CacheError>) {
        let Self { cache, entry, run } = self;
        let (held, last) = {
            let state = entry.cell.borrow();
            (state.current.clone(), state.failure.clone())
        };
        let outcome = result
            .and_then(|output| cache.accept(entry, held.as_ref(), &output))
            .map_err(|error| cache.reject(last.as_ref(), error, held.as_ref()));
        let effect = match &outcome {
            Ok((outcome, current)) => RunEffect::Accepted(*outcome, current),
            Err(failure) => RunEffect::Failed(failure),
        };
        self.account(held.as_ref(), &effect);
        if let (Some(failure), Ok(_)) = (&last, &outcome) {
            info!(failures = failure.attempts, "the plugin works again");
        }
        drop(held);
        let outcome = outcome.map(|(_, current)| current);
        let ending = self.ending(outcome.as_ref().err().map(|failure| &failure.error));
        let issued = outcome.as_ref().map(|current| Arc::clone(&current.issued)).map_err(Clone::clone);
        if issued.is_ok() {
            // A verification in progress holds the old credential.
            entry.forget_verification();
        }
        let mut is_refused = false;
        let is_leased = run.attendance.lender().is_some();
        let provider = &entry.spec.provider.state;
        entry.cell.send_if_modified(|state| {
            // Asked in the cell: a reload that shares the provider looks at the cell afterwards.
            let is_forgeable = is_leased && provider.is_shared();
            // An entry that is no longer in the map does not note that it is retired.
            is_refused = state.retired.is_some() || provider.retirement().is_some() || is_forgeable;
            // After an eviction the entry has another run or none, and does not keep this outcome.
            if state.run.take_if(|found| Arc::ptr_eq(found, run)).is_none() {
                return false;
            }
            cache.changed();
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
        run.publish(Some(issued).filter(|_| !is_refused));
        cache.resized(entry);
    }

    /// How the run ended, as far as persons are concerned; `None`: the plugin did not run to its end.
    fn ending(&self, error: Option<&CacheError>) -> Option<Ending> {
        let result = match error {
            Some(CacheError::Draining | CacheError::Run(RunError::Throttled { .. })) => return None,
            Some(CacheError::Run(RunError::Timeout { stderr, .. })) if !stderr.is_empty() => {
                EndResult::Prompt
            }
            Some(error) if error.needs_terminal() => EndResult::NoTerminal,
            Some(_) => EndResult::Failure,
            None => EndResult::Credential,
        };
        let (is_attended, needed_person) =
            (self.run.attendance.is_attended(), self.run.attendance.needed_person());
        self.run.started_at().map(|_| Ending { result, is_attended, needed_person })
    }

    /// Counts and logs the run, which found `held` in the entry.
    fn account(&self, held: Option<&Current>, effect: &RunEffect<'_>) {
        let Self { cache, entry, run } = self;
        let (now, parts) = (cache.now(), &cache.inner.parts);
        let outcome = Account { entry, run, metrics: &parts.metrics, held, now }.close(effect);
        run.span.end(outcome, run.queued());
        if let Some(took) = run.took(now) {
            let issued = match effect {
                RunEffect::Accepted(_, current) => Ok(&*current.issued),
                RunEffect::Failed(failure) => Err(Some(&failure.error)),
                RunEffect::Abandoned => Err(None),
            };
            (parts.on_run)(&entry.spec, issued, took);
        }
    }
}

impl<R: PluginRunner> Drop for Claim<R> {
    fn drop(&mut self) {
        if !self.run.is_over() {
            let is_draining = self.cache.inner.parts.draining.is_cancelled();
            let panicked = || RunError::Panicked { command: self.entry.spec.command() };
            self.publish(Err(if is_draining { CacheError::Draining } else { panicked().into() }));
        }
    }
}
