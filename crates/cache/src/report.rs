//! Reports of rejected credentials, and suspicions: a caller that asks again for the credential that it has, long before it
//! is due, may have seen it rejected.

use std::{
    future::ready,
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use super::{
    cache::CredentialCache,
    entry::KeyEntry,
    error::Failed,
    rejection::{Evidence, SharedVerdict, VERIFY_EVERY, Verdict, Verification},
    request::Request,
    state::{FirstStep, KeyState},
};
use credbroker_credential::{Cluster, Issued};
use credbroker_observe::clock::Now;
use credbroker_plugin::PluginSpec;
use credbroker_runner::PluginRunner;

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
    /// The generation is not a recent one of this key: it is of another key or from before a restart, an eviction or
    /// several rotations. The current credential is returned.
    UnknownGeneration,
}

/// How to answer a report.
#[derive(Debug)]
enum ReportPlan {
    /// At once.
    Answer(Result<Reported, Failed>),
    /// With what the first step leads to. The outcome is known if the report is about another credential.
    Wait(FirstStep, Option<ReportOutcome>),
}

impl<R: PluginRunner> CredentialCache<R> {
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
        let (entry, mut plan) = (&interest.0, ReportPlan::Wait(FirstStep::Decide, None));
        entry.update(|state| plan = self.plan(state, generation, request, asked));
        if !matches!(plan, ReportPlan::Wait(_, Some(_))) {
            let (provider, key) = (&entry.spec.provider.name, &entry.spec.key);
            let run = matches!(plan, ReportPlan::Wait(..));
            info!(%provider, %key, generation, run, "a client reports that the credential was rejected");
        }
        let answer = match plan {
            ReportPlan::Answer(answer) => answer,
            ReportPlan::Wait(first, outcome) => {
                let answer = self.get_or_run(entry, request, ready(first)).await;
                answer.map(|issued| {
                    let is_same = issued.generation.to_string() == generation;
                    let of_run = if is_same { ReportOutcome::NothingNewer } else { ReportOutcome::Replaced };
                    Reported { issued, outcome: outcome.unwrap_or(of_run) }
                })
            }
        };
        self.count(entry, answer.is_ok(), asked);
        answer
    }

    fn plan(&self, state: &mut KeyState, generation: &str, request: &Request, now: Now) -> ReportPlan {
        let caller = &request.caller;
        let current = state.current.as_ref().map(|current| Arc::clone(&current.issued));
        let reported = current.filter(|issued| issued.generation.to_string() == generation);
        let Some(issued) = reported else {
            let outcome = if state.was_replaced(&self.inner.parts.epoch, generation) {
                state.valid(now).map(|_| ReportOutcome::AlreadyReplaced)
            } else {
                Some(ReportOutcome::UnknownGeneration)
            };
            return ReportPlan::Wait(FirstStep::Decide, outcome);
        };
        if !issued.is_valid_at(now) {
            return ReportPlan::Wait(FirstStep::Decide, None);
        }
        let rejections = state.rejections.get_or_insert_default();
        rejections.note();
        if state.run.is_some() {
            return ReportPlan::Wait(FirstStep::Join { may_fail: true }, None);
        }
        let failure = state.failure.as_ref();
        if let Some(held) = failure.filter(|failure| failure.is_held(now, caller.at_terminal)) {
            return ReportPlan::Answer(Err(held.at(now, caller.at_terminal)));
        }
        match rejections.admit(&issued, caller, Evidence::Reported, failure.is_some(), now) {
            Ok(()) => ReportPlan::Wait(FirstStep::Run { may_fail: true }, None),
            Err(not_before) => {
                let retry_after = not_before.saturating_sub(now.boot);
                ReportPlan::Answer(Ok(Reported { issued, outcome: ReportOutcome::TooEarly { retry_after } }))
            }
        }
    }
}

impl<R: PluginRunner> CredentialCache<R> {
    /// How to answer a caller that asks again for `issued`. A suspicion never turns a valid credential into an error.
    pub(super) async fn suspect(
        &self,
        entry: &Arc<KeyEntry>,
        issued: Arc<Issued>,
        request: &Request,
    ) -> FirstStep {
        let since = self.now();
        let verdict = match &request.verify_at {
            Some(cluster) => self.verdict(entry, &issued, cluster).await,
            None => Verdict::Unverifiable,
        };
        let now = self.now();
        let accepted = entry.callers.accepted(issued.generation.number(), now.boot);
        let at_terminal = request.caller.at_terminal;
        let (first, next_run) = entry.update(|state| {
            let same =
                state.current.as_ref().filter(|current| current.issued.generation == issued.generation);
            let Some(current) = same.map(|current| Arc::clone(&current.issued)) else {
                return Default::default();
            };
            let rejections = state.rejections.get_or_insert_default();
            rejections.note();
            let evidence = rejections.weigh(&current, &request.caller, verdict, accepted, (since, now));
            let failed = state.failure.as_ref();
            // A held failure protects an account that a wrong password would lock.
            let is_held = failed.is_some_and(|failure| failure.is_held(now, at_terminal));
            let mut admit = |evidence| {
                rejections.admit(&current, &request.caller, evidence, failed.is_some(), now).is_ok()
            };
            let first = match evidence {
                Some(_) if state.run.is_some() => FirstStep::Join { may_fail: false },
                Some(evidence) if !is_held && admit(evidence) => FirstStep::Run { may_fail: false },
                _ => FirstStep::Decide,
            };
            let next_run = rejections.not_before(Some(&current), now);
            (first, next_run.map(|until| until.saturating_sub(now.boot)))
        });
        let (provider, key) = (&entry.spec.provider.name, &entry.spec.key);
        match first {
            FirstStep::Run { .. } => {
                info!(%provider, %key, ?verdict, ?next_run, "the credential seems to be rejected: running the plugin");
            }
            FirstStep::Decide if verdict == Verdict::Rejected => {
                info!(%provider, %key, ?next_run, "the credential is rejected, but it is too early for another run");
            }
            _ => {}
        }
        first
    }

    /// The verdict of the API server of `cluster` about `issued`. Callers share a verification for a few seconds.
    async fn verdict(&self, entry: &Arc<KeyEntry>, issued: &Arc<Issued>, cluster: &Arc<Cluster>) -> Verdict {
        let now = self.now();
        let verdict = {
            let mut last = entry.verification.lock().unwrap_or_else(PoisonError::into_inner);
            let recent = last.as_ref().filter(|last| {
                last.generation == issued.generation.number()
                    && now.boot.saturating_sub(last.started) < VERIFY_EVERY
            });
            match recent {
                Some(recent) if recent.server == cluster.server => recent.verdict.clone(),
                // The verdict of one API server says nothing about another one.
                Some(_) => return Verdict::Unverifiable,
                None => {
                    let verdict = self.verify(entry, issued, cluster);
                    let (generation, started) = (issued.generation.number(), now.boot);
                    let server = cluster.server.clone();
                    *last = Some(Verification { started, generation, server, verdict: verdict.clone() });
                    verdict
                }
            }
        };
        verdict.await
    }

    /// Starts a verification. It belongs to the cache, which goes on with it when its callers have left: otherwise it would
    /// never end, and keep its place among the verifications at a time.
    fn verify(&self, entry: &Arc<KeyEntry>, issued: &Arc<Issued>, cluster: &Arc<Cluster>) -> SharedVerdict {
        let parts = &self.inner.parts;
        let verification = (parts.verify)(Arc::clone(issued), Arc::clone(cluster));
        let (entry, draining) = (Arc::clone(entry), parts.draining.clone());
        let task = parts.tasks.spawn(async move {
            let Some(verdict) = draining.run_until_cancelled(verification).await else {
                return Verdict::Unverifiable;
            };
            let (provider, key) = (&entry.spec.provider.name, &entry.spec.key);
            info!(%provider, %key, ?verdict, "verified a credential that seems to be rejected");
            entry.update(|state| {
                let rejections = state.rejections.get_or_insert_default();
                rejections.verifications += 1;
                rejections.verdict = Some(verdict);
            });
            verdict
        });
        let task = AbortOnDropHandle::new(task);
        // An error is a panic.
        async move { task.await.unwrap_or(Verdict::Unverifiable) }.boxed().shared()
    }
}
