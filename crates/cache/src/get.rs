//! Serving a credential from memory, or from a run that the caller waits for; and watching one.

use std::{
    future::ready,
    mem::take,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use tokio::{sync::watch, time::timeout};

use super::{
    cache::CredentialCache,
    entries::Interest,
    entry::KeyEntry,
    error::{CacheError, Failed},
    prompts::Asker,
    rejection::Caller,
    request::Request,
    run::{STARTING, Waiter},
    state::{Current, Decision, FirstStep, KeyState, decide},
};
use credbroker_credential::{Generation, Issued};
use credbroker_observe::{clock::Now, metrics::RunReason};
use credbroker_plugin::{PluginKey, PluginSpec, Retirement};
use credbroker_runner::{PluginRunner, Urgency};

const WITHOUT_DEADLINE: Duration = Duration::from_secs(60);

/// What memory has for a caller.
enum Recalled {
    Served(Arc<Issued>),
    /// The caller has it already, before it is due.
    Repeated(Arc<Issued>),
    /// Nothing that lives long enough.
    Nothing,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// Returns the credential of `key` from memory if it is valid and `caller` does not have it yet, and no run can be made for
    /// one that lives for `min_lifetime`. Never waits.
    pub fn lookup(&self, key: &PluginKey, caller: &Caller, min_lifetime: Duration) -> Option<Arc<Issued>> {
        let now = self.now();
        let entry = self.lock().find(key).map(Arc::clone)?;
        if entry.identity.as_ref().is_some_and(|files| files.is_unsettled()) {
            return None;
        }
        entry.touch(caller.peer, now);
        match self.recall(&entry, caller, min_lifetime, now) {
            Recalled::Served(issued) => Some(issued),
            Recalled::Repeated(_) | Recalled::Nothing => None,
        }
    }

    /// Whether `issued` is served for less than `min_lifetime` from now on.
    pub fn is_short(&self, issued: &Issued, min_lifetime: Duration) -> bool {
        issued.is_shorter_than(min_lifetime, self.now())
    }

    /// Returns the credential of `spec`: from memory while it is valid, otherwise from one plugin run that all callers
    /// share. Dropping the future does not stop that run.
    ///
    /// A login ([`Request::is_login`]) runs the plugin even if there is a credential, unless a login succeeded in the last ten
    /// seconds. A caller that asks again for the generation that it has, before that is due, may have seen it rejected; see
    /// [`Request::verify_at`]. For a caller that needs a longer lifetime ([`Request::min_lifetime`]) the plugin runs while a
    /// credential is valid, and that is the answer if the run fails, cannot be made or brings nothing better.
    pub async fn get(&self, spec: PluginSpec, request: &Request) -> Result<Arc<Issued>, Failed> {
        let interest = self.enter(spec, request.caller.peer)?;
        let (entry, caller) = (&interest.entry, &request.caller);
        self.settle(entry).await;
        let now = self.now();
        let recalled = if request.is_login {
            let served = entry.cell.borrow().after_login(now).inspect(|_| self.count_served(entry));
            served.map_or(Recalled::Nothing, Recalled::Served)
        } else {
            self.recall(entry, caller, request.min_lifetime, now)
        };
        let repeated = match recalled {
            Recalled::Served(issued) => return Ok(issued),
            Recalled::Repeated(issued) => Some(issued),
            Recalled::Nothing => None,
        };
        let first = async {
            match repeated {
                _ if request.is_login => FirstStep::Run,
                Some(issued) => self.suspect(entry, issued, request).await,
                None => FirstStep::Decide,
            }
        };
        let answer = self.get_or_run(entry, request, request.is_login, first).await;
        self.count(entry, answer.is_ok(), now);
        let (issued, now) = (answer?, self.now());
        if request.is_login {
            entry.update(|state| state.logged_in = Some(now.boot));
        }
        entry.callers.repeats(caller.name, issued.generation.number(), now.boot);
        Ok(issued)
    }

    /// Watches the credential of `spec`, and keeps it refreshed while the watch is open. Fails if there is no room for it.
    pub fn watch(&self, spec: PluginSpec, caller: Caller) -> Result<CredentialWatch<R>, Failed> {
        let interest = self.enter(spec, caller.peer)?;
        interest.entry.watchers.fetch_add(1, Ordering::Relaxed);
        let mut cell = interest.entry.cell.subscribe();
        cell.mark_changed();
        let evictions = cell.borrow().evictions;
        Ok(CredentialWatch {
            cache: self.clone(),
            interest,
            cell,
            caller,
            seen: None,
            evictions,
            is_unkept: false,
        })
    }

    /// Fetches the credential of `spec` before a caller asks for it, as background work.
    pub async fn fetch_ahead(&self, spec: PluginSpec) -> Result<(), Failed> {
        let Interest { entry, .. } = &self.enter(spec, Caller::BROKER)?;
        self.settle(entry).await;
        let (now, file) = (self.now(), entry.spec.file.version());
        let claim = (Urgency::Background, Some(RunReason::Prewarm), None);
        let decide = |state: &mut KeyState| decide(state, (Asker::Program, Duration::ZERO), file, now);
        match self.try_claim(entry, claim, decide) {
            (Decision::Fail(failed), ..) => Err(failed),
            (Decision::Wait, Some(run), _) => match run.outcome().await {
                Some(Err(failure)) => Err(failure.at(self.now(), false)),
                Some(Ok(_)) | None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// What memory has for `caller`. Starts a refresh that is due.
    fn recall(&self, entry: &Arc<KeyEntry>, caller: &Caller, min_lifetime: Duration, now: Now) -> Recalled {
        let need = (Asker::of(caller, false), min_lifetime);
        let file = entry.spec.file.version();
        let (issued, due, fresh) = {
            let state = entry.cell.borrow();
            if state.account != entry.account() {
                return Recalled::Nothing;
            }
            let fresh = state.valid(now).is_some_and(|current| current.is_fresh_at(now));
            let decision = decide(&state, need, file, now);
            let Decision::Serve { issued, refresh } = decision else { return Recalled::Nothing };
            (issued, refresh, fresh)
        };
        if entry.callers.repeats(caller.name, issued.generation.number(), now.boot) && fresh {
            return Recalled::Repeated(issued);
        }
        if due {
            let claim = (Urgency::Background, None, None);
            self.try_claim(entry, claim, |state| decide(state, need, file, now));
        }
        self.count_served(entry);
        Recalled::Served(issued)
    }

    /// Serves, waits or fails until the deadline of `request`. Fails while a valid credential is held only if it `may_fail`,
    /// and `first` asks for a run.
    pub(super) async fn get_or_run(
        &self,
        entry: &Arc<KeyEntry>,
        request: &Request,
        may_fail: bool,
        first: impl Future<Output = FirstStep>,
    ) -> Result<Arc<Issued>, Failed> {
        let caller = &request.caller;
        let limit = request.deadline.unwrap_or(WITHOUT_DEADLINE);
        let cause = if request.is_login { RunReason::Requested } else { RunReason::Rejected };
        let retirement = || entry.spec.provider.state.retirement();
        let (mut waiter, mut fails) = (None, false);
        let answer = async {
            let mut step = first.await;
            fails = may_fail && step != FirstStep::Decide;
            loop {
                let (now, file, asker) = (self.now(), entry.spec.file.version(), request.asker(&entry.spec));
                let need = (asker, request.min_lifetime);
                let is_cold = step == FirstStep::Decide;
                let reason = (step == FirstStep::Run).then_some(cause);
                let claim = (Urgency::Waited { peer: caller.peer }, reason, Some(request));
                let (decision, run, is_new) = self.try_claim(entry, claim, |state| match step {
                    FirstStep::Join | FirstStep::Run if state.run.is_some() => Decision::Wait,
                    FirstStep::Run => match state.prompts.refusal(asker) {
                        None => state.paused(now).map_or(Decision::Wait, Decision::Fail),
                        Some(refusal) if request.is_login => {
                            Decision::Fail(CacheError::Unattended(refusal).into())
                        }
                        Some(_) => decide(state, need, file, now),
                    },
                    FirstStep::Join | FirstStep::Decide => decide(state, need, file, now),
                });
                if !request.is_login {
                    // A login is answered by a run only.
                    step = FirstStep::Decide;
                }
                match decision {
                    Decision::Serve { issued, .. } => return Ok(issued),
                    Decision::Fail(failed) => return Err(failed),
                    Decision::Wait => {}
                }
                let Some(run) = run else { continue };
                let joined =
                    Waiter::new(run, request, is_new).map_err(|left| Failed::paused(&entry.spec, left))?;
                let outcome = tokio::select! {
                    biased;
                    outcome = waiter.insert(joined).run.outcome() => outcome,
                    // After an eviction, a later run may end first, and the provider may be retired without an end of this one.
                    () = entry.becomes(|state| {
                        let serves = || matches!(decide(state, need, file, self.now()), Decision::Serve { .. });
                        retirement().is_some() || is_cold && serves()
                    }) => continue,
                };
                match outcome {
                    Some(Ok(issued)) if issued.is_valid_at(self.now()) => return Ok(issued),
                    // The next run has the terminal of this caller.
                    Some(Err(failure))
                        if failure.error.needs_terminal()
                            && request.asker(&entry.spec).lends()
                            && entry.cell.borrow().prompts.reads_terminal() => {}
                    Some(Err(failure)) => {
                        let now = self.now();
                        // Otherwise, what is held answers it.
                        let is_answer = fails || entry.valid(now).is_none();
                        if caller.at_terminal && is_answer {
                            failure.notified.repeats(caller.id(), 0, now.boot);
                        }
                        return Err(failure.at(now, caller.at_terminal));
                    }
                    Some(Ok(_)) | None => {} // expired by now, or abandoned: decide again
                }
            }
        };
        let answer = timeout(limit, answer).await;
        let now = self.now();
        let outcome = answer.unwrap_or_else(|_| {
            let pending = waiter.map_or_else(|| STARTING.to_owned(), |waiter| waiter.pending(now));
            Err(CacheError::Pending(pending).into())
        });
        // Another run may have brought a credential, or a step of the clock made one valid again.
        outcome.or_else(|failed| entry.valid(now).filter(|_| !fails).ok_or(failed))
    }
}

/// An open watch. Its key is refreshed, and not forgotten, while it is open.
#[derive(Debug)]
pub struct CredentialWatch<R> {
    cache: CredentialCache<R>,
    interest: Interest,
    cell: watch::Receiver<KeyState>,
    caller: Caller,
    /// The generation and expiry that were returned last.
    seen: Option<(Generation, SystemTime)>,
    /// The evictions of the entry that came before what was returned last, or before this watch.
    evictions: u64,
    /// The last run was not kept, because its account changed. The maintenance starts the next one: a plugin may change the
    /// files that select its account in each run.
    is_unkept: bool,
}

impl<R> Drop for CredentialWatch<R> {
    fn drop(&mut self) {
        self.interest.entry.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R> CredentialWatch<R> {
    /// Why its provider is no longer active; `None`: it is.
    pub fn retirement(&self) -> Option<Retirement> {
        self.interest.entry.spec.provider.state.retirement()
    }

    /// The run whose credential it watches.
    pub fn spec(&self) -> &PluginSpec {
        &self.interest.entry.spec
    }

    /// Whether the credential that it returned last was evicted.
    pub fn is_evicted(&self) -> bool {
        self.seen.is_some() && self.interest.entry.cell.borrow().evictions != self.evictions
    }

    /// Continues where `other` ended: the credential that it returned last is not returned again.
    pub fn succeeds(&mut self, other: &Self) {
        self.seen.clone_from(&other.seen);
    }
}

impl<R: PluginRunner> CredentialWatch<R> {
    /// Waits for a credential whose generation or expiry differs from the one that was returned last. Fails if that has
    /// expired and could not be replaced, and with [`CacheError::Evicted`] if it was evicted before it expired: its reader must not
    /// take what follows for an ordinary rotation.
    ///
    /// Thousands wait at the same time: what is rare is boxed, a wait keeps no credential alive, and memory is looked at a
    /// single time for each change. A call that is dropped while it waits for something else leaves the change to the next one.
    pub async fn next(&mut self) -> Result<Arc<Issued>, Failed> {
        loop {
            // The maintenance wakes the watches of an expired credential. The entry keeps the sender alive.
            drop(self.cell.changed().await);
            let (cache, entry) = (&self.cache, &self.interest.entry);
            if entry.identity.is_some() {
                self.cell.mark_changed();
                Box::pin(cache.settle(entry)).await;
                self.cell.mark_unchanged();
            }
            let now = cache.now();
            let is_unexpired = self.seen.as_ref().is_some_and(|(_, expires_at)| now.wall < *expires_at);
            if is_unexpired && self.is_evicted() && self.retirement().is_none() {
                self.cell.mark_changed();
                return Err(CacheError::Evicted.into());
            }
            let before = entry.cell.borrow().evictions;
            let held = entry.valid(now);
            let is_held = held.is_some();
            let issued = match held {
                Some(issued) => Some(issued),
                None if take(&mut self.is_unkept) => None,
                None => {
                    self.cell.mark_changed();
                    Some(Box::pin(self.run()).await?)
                }
            };
            if let Some(issued) = issued.and_then(|issued| self.unseen(issued, before)) {
                if is_held {
                    self.cache.count_served(&self.interest.entry);
                }
                return Ok(issued);
            }
        }
    }

    async fn run(&mut self) -> Result<Arc<Issued>, Failed> {
        let (cache, entry) = (&self.cache, &self.interest.entry);
        // A watch has no deadline, and the server limits the number of watches.
        let request = Request { caller: self.caller, deadline: Some(Duration::MAX), ..Request::default() };
        let now = cache.now();
        let answer = cache.get_or_run(entry, &request, false, ready(FirstStep::Decide)).await;
        cache.count(entry, answer.is_ok(), now);
        self.is_unkept = entry.identity.is_some() && entry.valid(cache.now()).is_none();
        answer
    }

    /// `issued`, if it was not returned last. It was held or asked for when there had been `before` evictions.
    fn unseen(&mut self, issued: Arc<Issued>, before: u64) -> Option<Arc<Issued>> {
        // What is held now was not evicted. The outcome of a run from before an eviction was.
        self.evictions = {
            let state = self.interest.entry.cell.borrow();
            let is_held = |current: &Current| current.issued.generation == issued.generation;
            if state.current.as_ref().is_some_and(is_held) { state.evictions } else { before }
        };
        let found = (issued.generation.clone(), issued.expires_at);
        let is_new = self.seen.as_ref() != Some(&found);
        self.seen = Some(found);
        is_new.then_some(issued)
    }
}
