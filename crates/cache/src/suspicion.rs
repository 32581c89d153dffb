//! Suspicions: a caller that asks again for the credential that it has, long before it is due, may have seen it rejected.

use std::{
    fmt,
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use super::{CredentialCache, Request, entry::KeyEntry, get::FirstStep, rejection::VERIFY_EVERY};
use crate::Verdict;
use credbroker_credential::{Cluster, Issued};
use credbroker_runner::PluginRunner;

/// Asks an API server whether it accepts a credential.
pub type VerifyFn = Arc<dyn Fn(Arc<Issued>, Arc<Cluster>) -> BoxFuture<'static, Verdict> + Send + Sync>;

/// A verification with an API server. All callers that suspect the credential share its result.
pub(crate) struct Verification {
    /// When it started, since boot.
    started: Duration,
    generation: u64,
    server: String,
    /// The verification ends when neither this nor a caller needs the verdict.
    verdict: SharedVerdict,
}

type SharedVerdict = Shared<BoxFuture<'static, Verdict>>;

impl fmt::Debug for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verification").field("started", &self.started).finish_non_exhaustive()
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
        let (mut first, mut next_run) = (FirstStep::Decide, None::<Duration>);
        entry.cell.send_if_modified(|state| {
            let same =
                state.current.as_ref().filter(|current| current.issued.generation == issued.generation);
            let Some(current) = same.map(|current| Arc::clone(&current.issued)) else { return false };
            let rejections = state.rejections.get_or_insert_default();
            rejections.note();
            let evidence = rejections.weigh(&current, &request.caller, verdict, accepted, (since, now));
            let failed = state.failure.as_ref();
            // A held failure protects an account that a wrong password would lock.
            let is_held = failed.is_some_and(|failure| failure.is_held(now, at_terminal));
            let mut admit = |evidence| {
                rejections.admit(&current, &request.caller, evidence, failed.is_some(), now).is_ok()
            };
            first = match evidence {
                Some(_) if state.flight.is_some() => FirstStep::Join { may_fail: false },
                Some(evidence) if !is_held && admit(evidence) => FirstStep::Run { may_fail: false },
                _ => FirstStep::Decide,
            };
            next_run = rejections.not_before(Some(&current), now).map(|until| until.saturating_sub(now.boot));
            false
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
            entry.cell.send_if_modified(|state| {
                let rejections = state.rejections.get_or_insert_default();
                rejections.verifications += 1;
                rejections.verdict = Some(verdict);
                false
            });
            verdict
        });
        let task = AbortOnDropHandle::new(task);
        // An error is a panic.
        async move { task.await.unwrap_or(Verdict::Unverifiable) }.boxed().shared()
    }
}
