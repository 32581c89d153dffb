//! Reports of rejected credentials.

use std::{future::ready, sync::Arc, time::Duration};

use tracing::info;

use super::{
    CredentialCache, Failed, Request, entry::KeyEntry, get::FirstStep, rejection::Evidence, state::KeyState,
};
use credbroker_credential::Issued;
use credbroker_observe::clock::Now;
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
    /// With the current credential: the report is about another one.
    Current(ReportOutcome),
    /// With the outcome of a run.
    Run(FirstStep),
}

impl<R: PluginRunner> CredentialCache<R> {
    pub(super) async fn answer_report(
        &self,
        entry: &Arc<KeyEntry>,
        generation: &str,
        request: &Request,
    ) -> Result<Reported, Failed> {
        let now = self.now();
        let mut plan = ReportPlan::Current(ReportOutcome::UnknownGeneration);
        entry.cell.send_if_modified(|state| {
            plan = self.plan(state, generation, request, now);
            false
        });
        if !matches!(plan, ReportPlan::Current(_)) {
            let (provider, key, run) =
                (&entry.spec.provider.name, &entry.spec.key, matches!(plan, ReportPlan::Run(_)));
            info!(%provider, %key, generation, run, "a client reports that the credential was rejected");
        }
        match plan {
            ReportPlan::Answer(answer) => answer,
            ReportPlan::Current(outcome) => {
                let issued = self.get_or_run(entry, request, ready(FirstStep::Decide)).await?;
                Ok(Reported { issued, outcome })
            }
            ReportPlan::Run(first) => {
                let issued = self.get_or_run(entry, request, ready(first)).await?;
                let outcome = if issued.generation.to_string() == generation {
                    ReportOutcome::NothingNewer
                } else {
                    ReportOutcome::Replaced
                };
                Ok(Reported { issued, outcome })
            }
        }
    }

    fn plan(&self, state: &mut KeyState, generation: &str, request: &Request, now: Now) -> ReportPlan {
        let caller = &request.caller;
        let current = state.current.as_ref().map(|current| Arc::clone(&current.issued));
        let reported = current.filter(|issued| issued.generation.to_string() == generation);
        let Some(issued) = reported else {
            return match state.was_replaced(&self.inner.parts.epoch, generation) {
                false => ReportPlan::Current(ReportOutcome::UnknownGeneration),
                true if state.valid(now).is_some() => ReportPlan::Current(ReportOutcome::AlreadyReplaced),
                true => ReportPlan::Run(FirstStep::Decide),
            };
        };
        if !issued.is_valid_at(now) {
            return ReportPlan::Run(FirstStep::Decide);
        }
        let rejections = state.rejections.get_or_insert_default();
        rejections.note();
        if state.flight.is_some() {
            return ReportPlan::Run(FirstStep::Join { may_fail: true });
        }
        let failure = state.failure.as_ref();
        if let Some(held) = failure.filter(|failure| failure.is_held(now, caller.at_terminal)) {
            return ReportPlan::Answer(Err(held.at(now, caller.at_terminal)));
        }
        match rejections.admit(&issued, caller, Evidence::Reported, failure.is_some(), now) {
            Ok(()) => ReportPlan::Run(FirstStep::Run { may_fail: true }),
            Err(not_before) => {
                let retry_after = not_before.saturating_sub(now.boot);
                ReportPlan::Answer(Ok(Reported { issued, outcome: ReportOutcome::TooEarly { retry_after } }))
            }
        }
    }
}
