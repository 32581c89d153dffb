//! The claim to the one run of a key, which belongs to the cache and never to the caller that started it; and the account of
//! the run: one line in the log, and the counts.

use std::{
    future::pending,
    sync::{Arc, atomic::Ordering},
};

use tokio::time::sleep;
use tracing::{Instrument as _, debug, info, info_span, warn};

use super::{
    cache::CredentialCache,
    entry::{KeyEntry, millis, uid},
    error::{CacheError, Failure},
    prompts::{Asker, EndResult, Ending, Unattended},
    rejection::Rejections,
    request::Request,
    run::Run,
    state::{Current, Decision, KeyState, renewal},
};
use credbroker_credential::{Draft, Generation, LifetimeError, lifetime, rfc3339, text::chain};
use credbroker_observe::{
    clock::Now,
    metrics::{CallStatus, Metrics, RunOutcome, RunReason},
};
use credbroker_plugin::PluginSpec;
use credbroker_runner::{
    Attendance, ForeignTexts, PluginRunner, RunError, RunErrorKind, RunOutput, RunPermit, RunSource,
    StoredError, Ticket, Urgency,
};

/// Failures in a row that are warnings. Later ones, until the next success, are information.
const WARNED: u32 = 3;

/// The claim to run the plugin of an entry. It always publishes an outcome, also after a panic or when the runtime ends.
pub(super) struct Claim<R: PluginRunner> {
    pub(super) cache: CredentialCache<R>,
    pub(super) entry: Arc<KeyEntry>,
    pub(super) run: Arc<Run>,
}

/// What a run led to: a credential, and how it compares with the one that was held, or a failure. `None`: it was not needed.
type RunEffect = Option<Result<(RunOutcome, Current), Arc<Failure>>>;

impl<R: PluginRunner> CredentialCache<R> {
    /// Decides, and starts a run if the decision needs one and there is none: between two steps another run could start and
    /// end. Returns the run, if any, and whether it is new. `reason` is why a new run is started; `None`: the state says so.
    /// A new run has the session of the person who sent `request`, and the terminal if the plugin reads from one.
    pub(super) fn try_claim(
        &self,
        entry: &Arc<KeyEntry>,
        (urgency, reason, request): (Urgency, Option<RunReason>, Option<&Request>),
        decide: impl FnOnce(&mut KeyState) -> Decision,
    ) -> (Decision, Option<Arc<Run>>, bool) {
        let spec = &entry.spec;
        let scheduler = &self.inner.parts.scheduler;
        self.follow_account(entry);
        let (mut decision, mut run, mut ticket) = (Decision::Wait, None, None);
        entry.cell.send_if_modified(|state| {
            decision = match spec.provider.state.retirement() {
                Some(why) => Decision::Fail(CacheError::Retired(why).into()),
                None => decide(state),
            };
            let urgency = match (&decision, urgency) {
                // A caller that has its answer does not wait.
                (Decision::Serve { refresh: true, .. }, Urgency::Waited { .. }) => Some(Urgency::Background),
                (Decision::Serve { refresh: true, .. } | Decision::Wait, _) => Some(urgency),
                (Decision::Serve { .. } | Decision::Fail(_), _) => None,
            };
            if let Some(urgency) = urgency.filter(|_| state.run.is_none()) {
                let now = self.now();
                let is_awaited = matches!(decision, Decision::Wait);
                let reason = reason.unwrap_or_else(|| state.reason(is_awaited, spec.file.version(), now));
                let session = request.and_then(|request| request.session.clone());
                let lender = request.and_then(|request| request.lender.clone());
                let lender = lender.filter(|_| state.prompts.reads_terminal());
                let new = match spec.provider.stored {
                    None => scheduler.enter(&spec.provider, urgency, source(entry, request)),
                    Some(_) => scheduler.pass(&spec.provider),
                };
                let (attendance, queued) = (Attendance::of(session, lender), (urgency, new.handle.clone()));
                state.run = Some(Arc::new(Run::new((spec, reason), attendance, queued, now)));
                ticket = Some(new);
                self.changed();
            }
            run.clone_from(&state.run);
            false // watches need not know that a run starts
        });
        let is_new = ticket.is_some();
        if let Some((run, ticket)) = run.as_ref().zip(ticket) {
            let span = info_span!("plugin_run", provider = %spec.provider.name, id = %spec.key);
            let claim = Claim { cache: self.clone(), entry: Arc::clone(entry), run: Arc::clone(run) };
            self.inner.parts.tasks.spawn(claim.run(ticket).instrument(span.or_current()));
            // No maintenance ends the run of an entry that is not in the map: it is for the callers that still wait.
            if !entry.is_in_map() {
                run.detach();
            }
        }
        (decision, run, is_new)
    }

    /// Starts a run unless there is one, also while a credential is valid. `None`: the plugin needs a terminal.
    pub(super) fn force_claim(&self, entry: &Arc<KeyEntry>, urgency: Urgency) -> Option<Arc<Run>> {
        let decide = |state: &mut KeyState| match state.prompts.refusal(Asker::Broker) {
            Some(Unattended::NeedsTerminal) if state.run.is_none() => {
                let why = CacheError::Unattended(Unattended::NeedsTerminal);
                let failure =
                    self.reject(state.failure.as_deref(), why.clone(), state.current.as_ref(), false);
                state.failure = Some(failure);
                self.changed();
                Decision::Fail(why.into())
            }
            _ => Decision::Wait,
        };
        self.try_claim(entry, (urgency, Some(RunReason::Requested), None), decide).1
    }

    /// The failure that `error` becomes beside the credential `held`.
    fn reject(
        &self,
        last: Option<&Failure>,
        error: CacheError,
        held: Option<&Current>,
        is_interactive: bool,
    ) -> Arc<Failure> {
        let now = self.now();
        let holds = held.is_some_and(|held| held.issued.is_valid_at(now));
        let failure = Failure::after(last, error, holds, now, (self.inner.parts.jitter)());
        Arc::new(Failure { is_interactive, ..failure })
    }
}

/// Who decides what the plugin of `entry` receives in a run for `request`.
fn source(entry: &KeyEntry, request: Option<&Request>) -> RunSource {
    let person = request.filter(|request| request.session.is_some());
    if person.is_none() && entry.spec.foreign_parts().is_empty() {
        return RunSource::Configuration(entry.spec.key);
    }
    RunSource::Others { uid: entry.party.or(person.map(|person| uid(person.caller.peer))) }
}

impl<R: PluginRunner> Claim<R> {
    async fn run(self, ticket: Ticket) {
        let result = tokio::select! {
            biased;
            () = self.cache.inner.parts.draining.cancelled() => Some(Err(CacheError::Draining)),
            () = self.run.abandoned.cancelled() => None,
            result = self.wait_and_run(ticket) => Some(result),
        };
        // Another caller may have a terminal too.
        let is_lost = matches!(
            result,
            Some(Err(CacheError::Run(RunError { kind: RunErrorKind::TerminalLost(_), .. })))
        );
        self.end(result.filter(|_| !is_lost));
    }

    /// Waits until the scheduler permits the run, and runs the plugin.
    async fn wait_and_run(&self, ticket: Ticket) -> Result<RunOutput, CacheError> {
        let Self { cache, entry, run } = self;
        let spec = &entry.spec;
        let permit = ticket.turn().await.map_err(|left| RunError::throttled(spec, false, left))?;
        // After an eviction, the entry does not end this run when its provider is retired.
        if let Some(why) = spec.provider.state.retirement() {
            return Err(CacheError::Retired(why));
        }
        let before = self.account_now().await;
        if let Some(account) = before
            && entry.starts_as(account, run)
        {
            cache.changed();
            cache.resized(entry);
        }
        run.progress().started = Some(cache.now().boot);
        entry.runs.fetch_add(1, Ordering::Relaxed);
        let result = self.run_plugin(&permit).await;
        run.progress().ended = Some(cache.now().boot);
        let after = self.account_now().await;
        run.progress().account = after.filter(|_| after == before);
        if spec.provider.stored.is_none() {
            called(&cache.inner.parts.metrics, &result);
        }
        let is_first = entry.cell.borrow().failure.as_ref().is_none_or(|failure| failure.throttled == 0);
        let foreign = || ForeignTexts::of(spec, run.attendance.session.as_deref());
        let Some(retry_after) = permit.finish(&result, is_first, foreign) else { return Ok(result?) };
        // The issuer asked for fewer runs. Callers need to know that, and for how long.
        if let Err(error) = result {
            let _first = run.throttled_by.set(error);
        }
        Err(RunError::throttled(spec, true, retry_after).into())
    }

    /// Reads which account the files select. `None`: there are none, or it is not certain.
    async fn account_now(&self) -> Option<u64> {
        self.cache.judge(self.entry.identity.as_ref()?).await
    }

    /// Runs the plugin. If it waits for a person, it gives its slot to other runs.
    async fn run_plugin(&self, permit: &RunPermit) -> Result<RunOutput, RunError> {
        let (spec, attendance) = (&self.entry.spec, &self.run.attendance);
        let timeout_s = spec.provider.timeout.as_secs();
        let half = async {
            sleep(spec.provider.timeout / 2).await;
            if !attendance.is_attended() {
                warn!(timeout_s, "the plugin has used half of its time limit (`timeout`)");
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

    /// Publishes the outcome; `None`: it is not needed. What may panic comes first: callers wait for the outcome.
    fn end(&self, result: Option<Result<RunOutput, CacheError>>) {
        let Self { cache, entry, run } = self;
        let (held, last, is_suspected) = {
            let state = entry.cell.borrow();
            let concern =
                |rejections: &Rejections| rejections.concern(&state.current.as_ref()?.issued).then_some(());
            let is_suspected = state.rejections.as_deref().and_then(concern).is_some();
            (state.current.clone(), state.failure.clone(), is_suspected)
        };
        let effect = result.map(|result| {
            let accepted = result.and_then(|output| self.accept(held.as_ref(), is_suspected, &output));
            let is_interactive = run.attendance.needed_person();
            accepted.map_err(|error| cache.reject(last.as_deref(), error, held.as_ref(), is_interactive))
        });
        self.account(held.as_ref(), &effect);
        if let (Some(failure), Some(Ok(_))) = (&last, &effect) {
            info!(failures = failure.attempts, "the plugin works again");
        }
        drop(held);
        let ending = effect.as_ref().and_then(|effect| self.ending(effect.as_ref().err()));
        let issued = |(_, current): &(RunOutcome, Current)| Arc::clone(&current.issued);
        let issued = effect.as_ref().map(|effect| effect.as_ref().map(issued).map_err(Arc::clone));
        let (account, has_started) = {
            let progress = run.progress();
            (progress.account, progress.started.is_some())
        };
        // The outcome may belong to the account before, or to both. Only the callers that wait get it.
        let is_doubtful = entry.identity.is_some() && has_started && account != Some(entry.account());
        if is_doubtful {
            info!(
                "the files that select the account changed during the run, or cannot be read, so the broker discards the result of the run"
            );
        }
        let mut is_refused = false;
        let is_leased = run.attendance.lender.is_some();
        let provider = &entry.spec.provider.state;
        entry.cell.send_if_modified(|state| {
            // Asked in the cell: a reload that shares the provider looks at the cell afterwards.
            let is_forgeable = is_leased && provider.is_shared();
            is_refused = is_forgeable || provider.retirement().is_some();
            // After an eviction the entry has another run or none, and does not keep this outcome.
            if state.run.take_if(|found| Arc::ptr_eq(found, run)).is_none() {
                return false;
            }
            cache.changed();
            let Some(effect) = effect.filter(|_| !is_forgeable && !is_doubtful) else { return false };
            state.prompts = ending.map_or(state.prompts, |ending| state.prompts.after(ending));
            match effect {
                Ok((_, current)) => {
                    state.accept(current);
                    state.is_leased = is_leased;
                }
                Err(failure) => state.failure = Some(failure),
            }
            true
        });
        // Not even the callers that wait get the credential of a retired definition, or one that another user could have forged.
        run.publish(issued.filter(|_| !is_refused));
        cache.resized(entry);
    }

    /// What a printed credential becomes, compared with `held`. It replaces that even if it expires earlier: it is what the
    /// issuer accepts now. But a run for a longer lifetime, which nothing but that needed, does not shorten what other callers
    /// get: it keeps a credential that lives longer, unless there is evidence that an API server rejects it (`is_suspected`).
    fn accept(
        &self,
        held: Option<&Current>,
        is_suspected: bool,
        output: &RunOutput,
    ) -> Result<(RunOutcome, Current), CacheError> {
        let Self { cache, entry, .. } = self;
        let (now, parts, decoded) = (cache.now(), &cache.inner.parts, &output.decoded);
        for warning in &decoded.warnings {
            warn!(command = %entry.spec.command(), "{warning}");
        }
        let lifetime = lifetime(decoded, entry.spec.provider.lifetime, now.wall)
            .map_err(|source| not_served(&entry.spec, source))?;
        if lifetime.within_skew {
            warn!("the credential had already expired when it arrived; check the clock of this machine");
        }
        let material = &decoded.material;
        let (outcome, due_in) = renewal(held, material, lifetime, now, (parts.jitter)());
        let is_early = |held: &Current| {
            self.run.reason == RunReason::MinLifetime && !held.is_due_at(now, output.file_version)
        };
        let is_longer = |held: &Current| held.issued.left(now) > lifetime.left(now.wall);
        let generation = match (outcome, held) {
            (RunOutcome::Unchanged, Some(held)) if is_early(held) => return Ok((outcome, held.still(now))),
            (RunOutcome::Rotated, Some(held)) if is_early(held) && !is_suspected && is_longer(held) => {
                info!(
                    "the plugin ran for a longer lifetime, but its credential expires before the current credential, which stays in use"
                );
                return Ok((RunOutcome::Unchanged, held.still(now)));
            }
            (RunOutcome::Unchanged, Some(held)) => {
                return Ok((outcome, held.again(due_in, now, output.file_version)));
            }
            (RunOutcome::Extended, Some(held)) => held.issued.generation.clone(),
            _ => {
                let number = cache.inner.generations.fetch_add(1, Ordering::Relaxed);
                Generation::new(Arc::clone(&parts.epoch), number)
            }
        };
        let draft = Draft { generation, material, fetched: now, lifetime, cluster: entry.spec.endpoint() };
        let issued = draft.issue(parts.encode);
        Ok((outcome, Current::new(Arc::new(issued), due_in, now, output.file_version)))
    }

    /// How the run ended, as far as persons are concerned; `None`: the plugin did not run to its end.
    fn ending(&self, failure: Option<&Arc<Failure>>) -> Option<Ending> {
        let attendance = &self.run.attendance;
        self.run.progress().started?;
        let result = match failure.map(|failure| &failure.error) {
            Some(CacheError::Draining) => return None,
            Some(error) if error.pause().is_some() => return None,
            Some(CacheError::Run(error)) if error.may_wait_for_person() => EndResult::Prompt,
            Some(error) if error.needs_terminal() => EndResult::NoTerminal,
            Some(_) => EndResult::Failure,
            None => EndResult::Credential,
        };
        let (is_attended, needed_person) = (attendance.is_attended(), attendance.needed_person());
        Some(Ending { result, is_attended, needed_person })
    }

    /// Counts and logs the run, which found `held` in the entry and led to `effect`.
    fn account(&self, held: Option<&Current>, effect: &RunEffect) {
        let Self { cache, entry, run } = self;
        let (parts, now) = (&cache.inner.parts, cache.now());
        let (reason, outcome, queued) = (run.reason, self.outcome(effect), run.queued());
        if queued.is_some() || outcome.is_success().is_some() {
            entry.counts(&parts.metrics).ran(reason, outcome, queued, run.ran());
        }
        match effect {
            Some(Ok((_, current))) => self.accepted(current, outcome, held, now),
            Some(Err(failure)) if outcome.is_success().is_some() => self.failed(failure, outcome, held, now),
            _ if queued.is_some() => {
                info!(reason = %reason.name(), outcome = %outcome.name(), "plugin run ended without an outcome");
            }
            _ => debug!(reason = %reason.name(), outcome = %outcome.name(), "plugin run not started"),
        }
        run.span.end(outcome, queued);
        let started = run.progress().started;
        if let Some(started) = started {
            let issued = match effect {
                Some(Ok((_, current))) => Ok(&*current.issued),
                Some(Err(failure)) => Err(Some(&failure.error)),
                None => Err(None),
            };
            let took = run.ran().unwrap_or_else(|| now.boot.saturating_sub(started));
            (parts.on_run)(&entry.spec, issued, took);
        }
    }

    fn outcome(&self, effect: &RunEffect) -> RunOutcome {
        match effect {
            None => RunOutcome::Cancelled,
            Some(Ok((outcome, _))) => *outcome,
            Some(Err(failure)) => match (&failure.error, self.run.throttled_by.get()) {
                (_, Some(error)) | (CacheError::Run(error), None) => failed_run(error).0,
                (CacheError::Lifetime(..), None) => RunOutcome::ExpiredOutput,
                (_, None) => RunOutcome::Cancelled,
            },
        }
    }

    fn accepted(&self, current: &Current, outcome: RunOutcome, held: Option<&Current>, now: Now) {
        let Self { entry, run, .. } = self;
        let issued = &current.issued;
        let (generation, expires) = (&issued.generation, rfc3339(issued.expires_at));
        info!(
            reason = %run.reason.name(),
            outcome = %outcome.name(),
            duration_ms = run.ran().map(millis),
            queued_ms = run.queued().map(millis),
            %generation,
            %expires,
            "plugin run finished"
        );
        let micros = run.ran().map_or(0, |ran| u64::try_from(ran.as_micros()).unwrap_or(u64::MAX));
        entry.run_micros.store(micros, Ordering::Relaxed);
        let old = held.map(|held| &held.issued).filter(|old| old.generation != *generation);
        if let Some(old) = old {
            let watchers = entry.watchers.load(Ordering::Relaxed);
            info!(%generation, previous = %old.generation, %expires, watches = watchers, "credential rotated");
            let certificate = old.certificate.filter(|_| old.fingerprint != issued.fingerprint);
            if let Some(Ok(age)) = certificate.map(|replaced| now.wall.duration_since(replaced.from)) {
                self.cache.inner.parts.metrics.calls.replaced(age);
            }
        }
    }

    fn failed(&self, failure: &Failure, outcome: RunOutcome, held: Option<&Current>, now: Now) {
        let Self { cache, entry, run } = self;
        let cause = run.throttled_by.get().map_or_else(|| chain(&failure.error), |error| chain(error));
        let retry = failure.refresh_at.saturating_sub(now.boot);
        let served = held.is_some_and(|held| held.issued.is_valid_at(now));
        // One missing plugin fails the runs of all keys of its provider.
        let suppressed = if outcome == RunOutcome::NotFound {
            cache.inner.parts.metrics.missing.admit(Arc::clone(&entry.spec.provider.name), now.boot)
        } else {
            (failure.attempts <= WARNED).then_some(0)
        };
        macro_rules! line {
            ($level:ident) => {
                $level!(
                    reason = %run.reason.name(),
                    outcome = %outcome.name(),
                    duration_ms = run.ran().map(millis),
                    queued_ms = run.queued().map(millis),
                    attempts = failure.attempts,
                    retry_ms = millis(retry),
                    still_served = served,
                    others = suppressed.filter(|others| *others > 0),
                    "plugin run failed: {cause}"
                )
            };
        }
        if suppressed.is_some() { line!(warn) } else { line!(info) }
    }
}

impl<R: PluginRunner> Drop for Claim<R> {
    fn drop(&mut self) {
        if !self.run.is_over() {
            let is_draining = self.cache.inner.parts.draining.is_cancelled();
            let panicked = || RunError::of(&self.entry.spec, RunErrorKind::Panicked);
            self.end(Some(Err(if is_draining { CacheError::Draining } else { panicked().into() })));
        }
    }
}

/// The outcome of a run that failed, and how client-go counts the call of its plugin: by the end of the process.
fn failed_run(error: &RunError) -> (RunOutcome, i32, CallStatus) {
    use CallStatus::{ClientInternalError, NoError, PluginExecutionError, PluginNotFoundError};
    match &error.kind {
        RunErrorKind::Exit(code) => (RunOutcome::Exit, *code, PluginExecutionError),
        // The broker or another process ended these by a signal.
        RunErrorKind::Signal(_) => (RunOutcome::Signal, -1, PluginExecutionError),
        RunErrorKind::Timeout(..) => (RunOutcome::Timeout, -1, PluginExecutionError),
        RunErrorKind::OutputTooLarge(_) => (RunOutcome::OutputTooLarge, -1, PluginExecutionError),
        RunErrorKind::Recursion => (RunOutcome::Recursion, -1, PluginExecutionError),
        RunErrorKind::NeedsTerminal | RunErrorKind::TerminalLost(_) => {
            (RunOutcome::InteractionRequired, -1, PluginExecutionError)
        }
        RunErrorKind::Decode(_) | RunErrorKind::Stored(_) => (RunOutcome::InvalidOutput, 0, NoError),
        RunErrorKind::NotFound(_) | RunErrorKind::Unreadable(_) => {
            (RunOutcome::NotFound, 1, PluginNotFoundError)
        }
        RunErrorKind::Spawn(_) => (RunOutcome::NotStarted, 1, PluginNotFoundError),
        RunErrorKind::NotAllowed(refusal) if refusal.is_of_policy() => {
            (RunOutcome::PolicyDenied, 1, ClientInternalError)
        }
        RunErrorKind::ArgumentsTooLong(_)
        | RunErrorKind::Directory(..)
        | RunErrorKind::ExecInfo(_)
        | RunErrorKind::NotAllowed(_)
        | RunErrorKind::Unanswered => (RunOutcome::NotStarted, 1, ClientInternalError),
        RunErrorKind::Throttled { .. } => (RunOutcome::Throttled, 1, ClientInternalError),
        RunErrorKind::Panicked => (RunOutcome::Panicked, 1, ClientInternalError),
    }
}

fn not_served(spec: &PluginSpec, source: LifetimeError) -> CacheError {
    match spec.provider.stored {
        None => CacheError::Lifetime(spec.command(), source),
        Some(_) => RunError::of(spec, RunErrorKind::Stored(StoredError::Lifetime(source).into())).into(),
    }
}

/// Counts a call of a plugin. A plugin that the policy denies is not called.
fn called(metrics: &Metrics, result: &Result<RunOutput, RunError>) {
    let (code, status) = match result.as_ref().map_err(failed_run) {
        _ if matches!(result, Err(RunError { kind: RunErrorKind::ExecInfo(_), .. })) => return, // before the policy
        Err((RunOutcome::PolicyDenied, ..)) => return metrics.calls.checked(false),
        Err((_, code, status)) => (code, status),
        Ok(_) => (0, CallStatus::NoError),
    };
    metrics.calls.checked(true);
    metrics.calls.called(code, status);
}

#[cfg(test)]
mod tests;
