//! A caller that comes back for what it has, long before it is due: an API server may have refused it.

use std::{
    fmt,
    future::ready,
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use tracing::info;

use super::{
    CredentialCache, Failed, First, Request,
    entry::Entry,
    rejection::{Evidence, VERIFY_EVERY},
};
use crate::{
    credential::{Cluster, Issued},
    exec::PluginRunner,
    plugin::PluginSpec,
    verify::Verdict,
};

/// Asks an API server whether it accepts a credential.
pub type Verify = Arc<dyn Fn(Arc<Issued>, Arc<Cluster>) -> BoxFuture<'static, Verdict> + Send + Sync>;

/// A question to an API server; all who suspect the credential share the answer.
pub(crate) struct Verification {
    /// Time since boot.
    asked: Duration,
    generation: u64,
    server: String,
    verdict: Shared<BoxFuture<'static, Verdict>>,
}

impl fmt::Debug for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verification").field("asked", &self.asked).finish_non_exhaustive()
    }
}

/// The answer to a report.
#[derive(Debug)]
pub struct Reported {
    /// The credential to use from now on.
    pub issued: Arc<Issued>,
    /// What was done about the report.
    pub outcome: ReportOutcome,
}

/// What was done about a report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReportOutcome {
    /// The plugin ran and issued another credential.
    Replaced,
    /// A newer one was held already.
    AlreadyReplaced,
    /// The plugin did not run.
    TooEarly {
        /// Until a report can start a run.
        retry_after: Duration,
    },
    /// The plugin ran and printed the same credential.
    NothingNewer,
    /// The generation is not one that was held under this key.
    UnknownGeneration,
}

impl<R: PluginRunner> CredentialCache<R> {
    /// Whether a run is worth it for a caller that came back for `issued`. A guess never turns a valid credential into
    /// an error.
    pub(super) async fn suspected(
        &self,
        entry: &Arc<Entry>,
        issued: Arc<Issued>,
        request: &Request,
    ) -> First {
        let since = self.now();
        let verdict = match &request.verify_at {
            Some(cluster) => self.verdict(entry, &issued, cluster).await,
            None => Verdict::Unverifiable,
        };
        let now = self.now();
        let accepted = entry.callers.accepted(issued.generation.number(), now.boot);
        let at_terminal = request.caller.at_terminal;
        let (mut first, mut next_run) = (First::Decide, None::<Duration>);
        entry.cell.send_if_modified(|state| {
            let same =
                state.current.as_ref().filter(|current| current.issued.generation == issued.generation);
            let Some(current) = same.map(|current| Arc::clone(&current.issued)) else { return false };
            let rejections = state.rejections.get_or_insert_default();
            rejections.note();
            let evidence = rejections.weigh(&current, &request.caller, verdict, accepted, (since, now));
            let failed = state.failure.as_ref();
            // Held for the sake of an account that a wrong password would lock.
            let is_held = failed.is_some_and(|failure| failure.is_held(now, at_terminal));
            let mut admit =
                |evidence| rejections.admit(&current, &request.caller, evidence, failed.is_some(), now);
            first = match evidence {
                Some(_) if state.flight.is_some() => First::Join { may_fail: false },
                Some(evidence) if !is_held && admit(evidence) => First::Run { may_fail: false },
                _ => First::Decide,
            };
            next_run = rejections.not_before(now).map(|until| until.saturating_sub(now.boot));
            false
        });
        let (provider, key) = (&entry.spec.provider.name, &entry.spec.key);
        match first {
            First::Run { .. } => {
                info!(%provider, %key, ?verdict, ?next_run, "running the plugin: its credential seems to be rejected");
            }
            First::Decide if verdict == Verdict::Rejected => {
                info!(%provider, %key, ?next_run, "the credential is rejected, and it is too early for a run");
            }
            _ => {}
        }
        first
    }

    /// What the API server of `cluster` says of `issued`. A credential is asked about once in a while, for all who
    /// suspect it.
    async fn verdict(&self, entry: &Entry, issued: &Arc<Issued>, cluster: &Arc<Cluster>) -> Verdict {
        let now = self.now();
        let (verdict, is_new) = {
            let mut last = entry.verification.lock().unwrap_or_else(PoisonError::into_inner);
            let recent = last.as_ref().filter(|last| {
                last.generation == issued.generation.number()
                    && now.boot.saturating_sub(last.asked) < VERIFY_EVERY
            });
            match recent {
                Some(recent) if recent.server == cluster.server => (recent.verdict.clone(), false),
                // What one server says is not what another one would.
                Some(_) => return Verdict::Unverifiable,
                None => {
                    let question = (self.inner.parts.verify)(Arc::clone(issued), Arc::clone(cluster));
                    let (verdict, generation) = (question.shared(), issued.generation.number());
                    let (asked, server) = (now.boot, cluster.server.clone());
                    *last = Some(Verification { asked, generation, server, verdict: verdict.clone() });
                    (verdict, true)
                }
            }
        };
        let verdict = verdict.await;
        if is_new {
            let (provider, key) = (&entry.spec.provider.name, &entry.spec.key);
            info!(%provider, %key, ?verdict, "asked the API server about a credential that seems to be rejected");
            entry.cell.send_if_modified(|state| {
                let rejections = state.rejections.get_or_insert_default();
                rejections.verifications += 1;
                rejections.verdict = Some(verdict);
                false
            });
        }
        verdict
    }

    /// What to use instead of `generation`, which an API server refused: a newer one if there is one, else the outcome
    /// of one run, shared by all who report. Where a run is not worth it (the generation is seconds old, or the last
    /// such run was a short time ago) the same one is returned.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get). The old credential stays for those who did not report it.
    pub async fn report(
        &self,
        spec: PluginSpec,
        generation: &str,
        request: &Request,
    ) -> Result<Reported, Failed> {
        let interest = self.enter(spec)?;
        let entry = &interest.0;
        let now = self.now();
        let (mut answer, mut first) = (None, First::Decide);
        let mut current = None;
        entry.cell.send_if_modified(|state| {
            current = state.valid(now).map(|current| Arc::clone(&current.issued));
            let Some(issued) = current.as_ref().filter(|issued| issued.generation.to_string() == generation)
            else {
                return false;
            };
            let rejections = state.rejections.get_or_insert_default();
            rejections.note();
            let failed = state.failure.as_ref();
            let held = failed.filter(|failure| failure.is_held(now, request.caller.at_terminal));
            let caller = &request.caller;
            if state.flight.is_some() {
                first = First::Join { may_fail: true };
            } else if let Some(failure) = held {
                answer = Some(Err(failure.at(now, caller.at_terminal)));
            } else if rejections.admit(issued, caller, Evidence::Reported, failed.is_some(), now) {
                first = First::Run { may_fail: true };
            } else {
                let retry_after = rejections.retry_after(issued, now);
                let outcome = ReportOutcome::TooEarly { retry_after };
                answer = Some(Ok(Reported { issued: Arc::clone(issued), outcome }));
            }
            false
        });
        if answer.is_some() || first != First::Decide {
            let (provider, key, run) = (&entry.spec.provider.name, &entry.spec.key, answer.is_none());
            info!(%provider, %key, generation, run, "a client reports the credential as rejected");
        }
        if let Some(answer) = answer {
            return answer;
        }
        let issued = self.settle(entry, request, ready(first)).await?;
        let outcome = if issued.generation.to_string() == generation {
            ReportOutcome::NothingNewer
        } else if first == First::Decide && !issued.generation.is_newer_than(generation) {
            ReportOutcome::UnknownGeneration
        } else if current.is_some_and(|current| current.generation == issued.generation) {
            ReportOutcome::AlreadyReplaced
        } else {
            ReportOutcome::Replaced
        };
        Ok(Reported { issued, outcome })
    }
}
