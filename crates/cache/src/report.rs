//! Reports of rejected credentials, and suspicions: a caller that asks again too early may have seen its credential rejected.

use std::{future::ready, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use super::{
    cache::CredentialCache,
    entry::KeyEntry,
    error::Failed,
    prompts::Asker,
    rejection::{Caller, Evidence, VERIFY_EVERY, Verdict, Verification},
    request::Request,
    state::{FirstStep, KeyState},
};
use credbroker_credential::{Cluster, Issued};
use credbroker_observe::clock::Now;
use credbroker_plugin::PluginSpec;
use credbroker_runner::PluginRunner;

/// Who says that a credential was rejected, and what may be asked of them.
type Asking<'a> = (&'a Caller, Asker);

/// The answer to a report of a rejected credential.
#[derive(Clone, Debug)]
pub struct Reported {
    /// The credential to use from now on.
    pub issued: Arc<Issued>,
    /// What the report led to.
    pub outcome: ReportOutcome,
}

/// What a report of a rejected credential led to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReportOutcome {
    /// A run brought another credential.
    Replaced,
    /// The broker had another credential already.
    AlreadyReplaced,
    /// It is too early for another run: the reported credential is returned.
    TooEarly {
        /// A report starts a run after this time, if the credential is still rejected.
        retry_after: Duration,
    },
    /// The plugin ran and returned the reported credential again.
    NothingNewer,
    /// The generation is not a recent one of this key. The current credential is returned.
    UnknownGeneration,
}

/// How to answer a report or a suspicion.
#[derive(Debug, Default)]
struct Reply {
    first: FirstStep,
    /// What the report led to, if it is known before the answer.
    outcome: Option<ReportOutcome>,
    answer: Option<Result<Arc<Issued>, Failed>>,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// Returns what to use instead of `generation`, which an API server rejected: the current generation if it is
    /// another one, otherwise the outcome of one run that all reports share. [`Reported::outcome`] says which. The rejected
    /// credential stays in memory for callers that did not report it.
    pub async fn report(
        &self,
        spec: PluginSpec,
        generation: &str,
        request: &Request,
    ) -> Result<Reported, Failed> {
        let (interest, asked) = (self.enter(spec, request.caller.peer)?, self.now());
        let entry = &interest.entry;
        self.settle(entry).await;
        let asking = (&request.caller, request.asker(&entry.spec));
        let plan = entry.update(|state| self.plan(state, generation, asking, asked));
        if plan.answer.is_some() || plan.outcome.is_none() {
            let (provider, id, run) = (&entry.spec.provider.name, &entry.spec.key, plan.answer.is_none());
            info!(%provider, %id, generation, run, "a client reports that the credential was rejected");
        }
        let answer = match plan.answer {
            Some(answer) => answer,
            None => self.get_or_run(entry, request, true, ready(plan.first)).await,
        };
        self.count(entry, answer.is_ok(), asked);
        let issued = answer?;
        let is_same = issued.generation.to_string() == generation;
        let of_run = if is_same { ReportOutcome::NothingNewer } else { ReportOutcome::Replaced };
        Ok(Reported { issued, outcome: plan.outcome.unwrap_or(of_run) })
    }

    fn plan(&self, state: &mut KeyState, generation: &str, (caller, asker): Asking<'_>, now: Now) -> Reply {
        let current = state.current.as_ref().map(|current| Arc::clone(&current.issued));
        let reported = current.filter(|issued| issued.generation.to_string() == generation);
        let Some(issued) = reported else {
            let outcome = if state.was_replaced(&self.inner.parts.epoch, generation) {
                state.valid(now).map(|_| ReportOutcome::AlreadyReplaced)
            } else {
                Some(ReportOutcome::UnknownGeneration)
            };
            return Reply { outcome, ..Reply::default() };
        };
        if !issued.is_valid_at(now) {
            return Reply::default();
        }
        state.rejections.get_or_insert_default().known.count += 1;
        respond(state, issued, (caller, asker), Evidence::Reported, now)
    }

    /// How to answer a caller that asks again for `issued`. A suspicion never turns a valid credential into an error.
    pub(super) async fn suspect(
        &self,
        entry: &Arc<KeyEntry>,
        issued: Arc<Issued>,
        request: &Request,
    ) -> FirstStep {
        let (since, caller, asker) = (self.now(), &request.caller, request.asker(&entry.spec));
        let verdict = match &request.verify_at {
            Some(cluster) => self.verdict(entry, &issued, cluster).await,
            None => Verdict::Unverifiable,
        };
        let now = self.now();
        let accepted = entry.callers.accepted(issued.generation.number(), now.boot);
        let (first, next_run) = entry.update(|state| {
            let held = state.current.as_ref().map(|current| Arc::clone(&current.issued));
            let Some(held) = held.filter(|held| held.generation == issued.generation) else {
                return Default::default();
            };
            let rejections = state.rejections.get_or_insert_default();
            let evidence = rejections.weigh(&held, caller, verdict, accepted, (since, now));
            let plan =
                evidence.map(|evidence| respond(state, Arc::clone(&held), (caller, asker), evidence, now));
            let next_run = state.rejections.as_ref().and_then(|known| known.not_before(Some(&held), now));
            (plan.unwrap_or_default().first, next_run.map(|until| until.saturating_sub(now.boot)))
        });
        let (provider, id) = (&entry.spec.provider.name, &entry.spec.key);
        match first {
            FirstStep::Run => {
                info!(%provider, %id, ?verdict, ?next_run, "the credential seems to be rejected: running the plugin");
            }
            FirstStep::Decide if verdict == Verdict::Rejected => {
                info!(%provider, %id, ?next_run, "the credential is rejected, but it is too early for another run");
            }
            _ => {}
        }
        first
    }

    /// The verdict of the API server of `cluster` about `issued`. Callers share a verification for a few seconds.
    async fn verdict(&self, entry: &Arc<KeyEntry>, issued: &Arc<Issued>, cluster: &Arc<Cluster>) -> Verdict {
        let (generation, now) = (issued.generation.number(), self.now());
        let verdict = entry.update(|state| {
            let rejections = state.rejections.get_or_insert_default();
            if let Some(last) = &rejections.verification
                && last.generation == generation
                && now.boot.saturating_sub(last.started) < VERIFY_EVERY
            {
                // The verdict of one API server says nothing about another one.
                return (last.server == cluster.server).then(|| last.verdict.clone());
            }
            let verification = rejections.verification.insert(self.verify(entry, issued, cluster));
            Some(verification.verdict.clone())
        });
        match verdict {
            Some(verdict) => verdict.await,
            None => Verdict::Unverifiable,
        }
    }

    /// Starts a verification. It belongs to the cache, which goes on with it when its callers have left: otherwise it would
    /// never end, and keep its place among the verifications at a time.
    fn verify(&self, entry: &Arc<KeyEntry>, issued: &Arc<Issued>, cluster: &Arc<Cluster>) -> Verification {
        let parts = &self.inner.parts;
        let verification = (parts.verify)(Arc::clone(issued), Arc::clone(cluster));
        let (entry, draining) = (Arc::clone(entry), parts.draining.clone());
        let task = parts.tasks.spawn(async move {
            let Some(verdict) = draining.run_until_cancelled(verification).await else {
                return Verdict::Unverifiable;
            };
            let (provider, id) = (&entry.spec.provider.name, &entry.spec.key);
            info!(%provider, %id, ?verdict, "verified a credential that seems to be rejected");
            entry.update(|state| {
                let known = &mut state.rejections.get_or_insert_default().known;
                (known.verifications, known.verdict) = (known.verifications + 1, Some(verdict));
                known.count += u64::from(verdict == Verdict::Rejected);
            });
            verdict
        });
        let task = AbortOnDropHandle::new(task);
        // An error is a panic.
        let verdict = async move { task.await.unwrap_or(Verdict::Unverifiable) }.boxed().shared();
        let (generation, server) = (issued.generation.number(), cluster.server.clone());
        Verification { started: self.now().boot, generation, server, verdict }
    }
}

/// How to answer `caller`, who has this evidence against the credential `held`.
fn respond(
    state: &mut KeyState,
    held: Arc<Issued>,
    (caller, asker): Asking<'_>,
    evidence: Evidence,
    now: Now,
) -> Reply {
    if state.run.is_some() {
        // That run must not keep what is held.
        state.rejections.get_or_insert_default().note(&held, now);
        return Reply { first: FirstStep::Join, ..Reply::default() };
    }
    let failure = state.failure.as_ref();
    // A held failure protects an account that a wrong password would lock.
    if let Some(failure) = failure.filter(|failure| failure.answers(asker, now)) {
        let failed = failure.at(now, caller.at_terminal);
        return Reply { answer: Some(Err(failed)), ..Reply::default() };
    }
    let rejections = state.rejections.get_or_insert_default();
    match rejections.admit(&held, caller, evidence, failure.is_some(), now) {
        Ok(()) => Reply { first: FirstStep::Run, ..Reply::default() },
        Err(not_before) => {
            let outcome = ReportOutcome::TooEarly { retry_after: not_before.saturating_sub(now.boot) };
            Reply { outcome: Some(outcome), answer: Some(Ok(held)), ..Reply::default() }
        }
    }
}
