//! The credentials in memory: one entry per key, at most one run at a time for each, refreshed ahead of expiry.
//!
//! Everything that the rest of the broker may call is in this file; the other files of the module implement it.

mod account;
mod attention;
mod bounds;
mod claim;
mod entries;
mod entry;
mod error;
mod get;
mod maintenance;
mod parts;
mod rejection;
mod report;
mod request;
mod run;
mod state;
mod status;
#[cfg(any(test, feature = "test-util"))]
mod testing;
#[cfg(test)]
mod tests;

use std::{
    future::ready,
    sync::{Arc, atomic::Ordering},
};

use credbroker_credential::Issued;
use credbroker_observe::clock::Beat;
use credbroker_plugin::{PluginKey, PluginSpec, ProfileName, Target};
use credbroker_runner::PluginRunner;
use parts::Inner;
use state::FirstStep;

pub use attention::Unattended;
pub use bounds::{EntryLimits, Full};
pub use entries::ListPosition;
pub use error::{CacheError, Failed, Pending};
pub use get::CredentialWatch;
pub use parts::{CacheParts, RunEndFn};
pub use rejection::{Caller, Verdict, VerifyFn};
pub use report::{ReportOutcome, Reported};
pub use request::{Attendant, AttendantReader, InvalidKey, KeyPrefix, Lookup, Request, Selector};
pub use status::{Holding, KeyStatus, ProviderSummary, RejectionStatus, RunCause};

/// Serves credentials from memory and runs plugins for those that are missing or due. Clones share the memory.
#[derive(Debug)]
pub struct CredentialCache<R> {
    inner: Arc<Inner<R>>,
}

impl<R> Clone for CredentialCache<R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<R: PluginRunner> CredentialCache<R> {
    /// An empty cache.
    pub fn new(parts: CacheParts<R>) -> Self {
        Self { inner: Arc::new(Inner::new(parts)) }
    }

    /// Returns the credential of `key` from memory if it is valid and `caller` does not have it yet. Never waits.
    pub fn lookup(&self, key: &PluginKey, caller: &Caller) -> Lookup {
        let now = self.now();
        let entry = self.lock().find(key).map(Arc::clone);
        entry.map_or(Lookup::Undecided, |entry| {
            entry.share.touch(now);
            self.serve_from_memory(&entry, caller, now).map_or(Lookup::Undecided, Lookup::Served)
        })
    }

    /// Returns the credential of `spec`: from memory while it is valid, otherwise from one plugin run that all callers
    /// share.
    ///
    /// A login ([`Request::is_login`]) runs the plugin even if there is a credential, unless a login succeeded in the last ten
    /// seconds.
    ///
    /// A caller that asks again for the generation that it has, before that is due, may have seen it rejected; see
    /// [`Request::verify_at`].
    ///
    /// Dropping the future does not stop a run that it started: the run belongs to the cache, and others may wait for it.
    ///
    /// # Errors
    ///
    /// [`Failed`] has the cause and how long the failure is held.
    pub async fn get(&self, spec: PluginSpec, request: &Request) -> Result<Arc<Issued>, Failed> {
        let interest = self.enter(spec, request.caller.peer)?;
        let (entry, caller) = (&interest.0, &request.caller);
        let now = self.now();
        let served = if request.is_login {
            entry.cell.borrow().after_login(now).inspect(|_| self.count_served(entry))
        } else {
            self.serve_from_memory(entry, caller, now)
        };
        if let Some(issued) = served {
            return Ok(issued);
        }
        let repeated = entry.cell.borrow().valid(now).map(|current| Arc::clone(&current.issued));
        let answer = match repeated {
            _ if request.is_login => {
                let answer = self.get_or_run(entry, request, ready(FirstStep::Run { may_fail: true })).await;
                if answer.is_ok() {
                    let now = self.now();
                    entry.cell.send_if_modified(|state| {
                        state.logged_in = Some(now.boot);
                        false
                    });
                }
                answer
            }
            Some(issued) => self.get_or_run(entry, request, self.suspect(entry, issued, request)).await,
            None => self.get_or_run(entry, request, ready(FirstStep::Decide)).await,
        };
        self.count(entry, answer.is_ok(), now);
        let issued = answer?;
        entry.callers.repeats(caller.name, issued.generation.number(), self.now().boot);
        Ok(issued)
    }

    /// Watches the credential of `spec`, and keeps it refreshed while the watch is open.
    ///
    /// # Errors
    ///
    /// There is no room for another key.
    pub fn watch(&self, spec: PluginSpec, caller: Caller) -> Result<CredentialWatch<R>, Failed> {
        Ok(CredentialWatch::new(self.clone(), self.enter(spec, caller.peer)?, caller))
    }

    /// Fetches the credential of `spec` before a caller asks for it, as background work.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn fetch_ahead(&self, spec: PluginSpec) -> Result<(), Failed> {
        self.run_ahead(&self.enter(spec, Caller::BROKER)?.0).await
    }

    /// Returns what to use instead of `generation`, which an API server rejected: the current generation if it is
    /// another one, otherwise the outcome of one run that all reports share. [`Reported::outcome`] says which.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get). The rejected credential stays in memory for callers that did not report it.
    pub async fn report(
        &self,
        spec: PluginSpec,
        generation: &str,
        request: &Request,
    ) -> Result<Reported, Failed> {
        let (interest, asked) = (self.enter(spec, request.caller.peer)?, self.now());
        let answer = self.answer_report(&interest.0, generation, request).await;
        self.count(&interest.0, answer.is_ok(), asked);
        answer
    }

    /// Runs the plugin of every selected key now, waits for the outcomes, and returns the number of keys. The old
    /// credentials are served meanwhile, and stay if a run fails.
    ///
    /// The first run of each issuer starts even while the issuer is paused; the others are background work.
    pub async fn refresh(&self, selector: &Selector) -> usize {
        self.run_now(selector).await
    }

    /// Forgets the selected keys and returns their number. Secrets are wiped when the last response that holds them has
    /// been sent. Open watches receive the next credential.
    ///
    /// The outcome of a run that started before goes only to the callers that wait for it: the run may have started as
    /// another account.
    pub fn evict(&self, selector: &Selector) -> usize {
        self.take_out(selector)
    }

    /// Forgets the credentials of `profile`, except those for its current target `now`: the profile changed or was
    /// deleted. Callers that wait for a run still get its outcome, for the target that they asked for; a run without
    /// callers is ended.
    pub fn forget(&self, profile: &ProfileName, now: Option<&Arc<Target>>) {
        self.forget_profile(profile, now);
    }

    /// Forgets the credentials of providers that are no longer in force, and returns their number. Their runs end, and
    /// callers that wait or watch get [`CacheError::Retired`].
    pub fn forget_retired(&self) -> usize {
        self.take_retired()
    }

    /// Forgets the credentials that came out of the terminal of a caller, which could have forged them, and ends the runs in
    /// terminals, if their provider is shared with other users by now.
    pub fn forget_leased(&self) {
        self.take_leased();
    }

    /// Sets how much there may be. What is held beyond that stays until it is idle.
    pub fn set_limits(&self, limits: EntryLimits) {
        let mut entries = self.lock();
        entries.set_limits(limits, self.now());
        self.forget_displaced(entries);
    }

    /// Returns at most `count` of the selected keys, without their credentials, in the order of provider and key,
    /// starting after `after`.
    pub fn list(&self, selector: &Selector, after: Option<&ListPosition>, count: usize) -> Vec<KeyStatus> {
        let entries = self.lock().select(selector, after, count);
        let now = self.now();
        entries.iter().map(|entry| self.status_of(entry, now)).collect()
    }

    /// A number that increases with each change of [`profile_states`](Self::profile_states), except those that time alone
    /// causes.
    pub fn changes(&self) -> u64 {
        self.inner.changes.load(Ordering::Acquire)
    }

    /// Returns the state of each key of a ClusterProfile, and why it has no credential.
    pub fn profile_states(&self) -> Vec<(ProfileName, Holding, Option<Failed>)> {
        let entries: Vec<_> = self.lock().profiles().flatten().cloned().collect();
        let now = self.now();
        entries.iter().filter_map(|entry| self.profile_state(entry, now)).collect()
    }

    /// Refreshes credentials ahead of their expiry, forgets idle keys, and starts the queued runs whose time has come,
    /// until the broker drains.
    pub async fn keep_fresh(&self, beat: Beat) {
        let parts = &self.inner.parts;
        tokio::join!(self.maintain(beat), parts.draining.run_until_cancelled(parts.scheduler.keep_time()));
    }

    /// The number of keys in memory.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no key is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
