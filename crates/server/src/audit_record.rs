//! The audit record of one request.

use std::{sync::Arc, time::Duration};

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{access::Access, status};
use credbroker_cache::{CacheError, RunEndFn};
use credbroker_fleet::resolver::Source;
use credbroker_observe::audit::{Audit, DecisionRecord, PluginRun, RequestOutcome};
use credbroker_plugin::access::Verb;

/// A request that is not decided yet.
pub(super) struct Asked<'a> {
    audit: &'a Audit,
    access: Arc<Access>,
    begun: Option<Duration>,
    call: &'static str,
    target: Option<String>,
    rule: Option<String>,
}

impl<'a> Asked<'a> {
    /// A request for a credential.
    pub(super) fn credential(audit: &'a Audit, access: &Arc<Access>, verb: Verb, source: &Source) -> Self {
        let mut asked = Self::call(audit, access, verb.name());
        if asked.begun.is_some() {
            asked.target = Some(shown(source));
            asked.rule = access.rights().rule(verb, source.target()).map(ToString::to_string);
        }
        asked
    }

    /// Any other request.
    pub(super) fn call(audit: &'a Audit, access: &Arc<Access>, call: &'static str) -> Self {
        Self { audit, access: Arc::clone(access), begun: audit.begin(), call, target: None, rule: None }
    }

    /// Records the decision, and returns it.
    pub(super) fn decided<T>(self, answer: Result<T, Status>) -> Result<T, Status> {
        self.issued(answer, |_| None)
    }

    /// As [`decided`](Self::decided), for an answer with a credential of this generation.
    pub(super) fn issued<T>(
        self,
        answer: Result<T, Status>,
        generation: impl FnOnce(&T) -> Option<String>,
    ) -> Result<T, Status> {
        if self.begun.is_none() {
            return answer;
        }
        let (outcome, reason, generation) = match &answer {
            Ok(answer) => (RequestOutcome::Allowed, self.rule, generation(answer)),
            Err(status) => (outcome(status), reason(status), None),
        };
        let mut decision = decision(&self.access, self.call);
        (decision.target, decision.outcome) = (self.target, outcome);
        (decision.reason, decision.generation) = (reason, generation);
        self.audit.decision(self.begun, decision);
        answer
    }
}

/// A credential that was answered from memory.
pub(super) fn hit<'a>(access: &'a Access, source: &Source, generation: String) -> DecisionRecord<'a> {
    let rule = access.rights().rule(Verb::Get, source.target()).map(ToString::to_string);
    DecisionRecord {
        target: Some(shown(source)),
        reason: rule,
        generation: Some(generation),
        ..decision(access, Verb::Get.name())
    }
}

/// A request that was refused before it was read. `call` is the path of its method, which the caller chose.
pub(super) fn refused(audit: &Audit, access: &Access, call: &str, status: &Status) {
    if let Some(begun) = audit.begin() {
        let call = credbroker_credential::text::shown(call);
        let mut decision = decision(access, &call);
        (decision.outcome, decision.reason) = (RequestOutcome::Denied, reason(status));
        audit.decision(Some(begun), decision);
    }
}

/// Records each plugin run.
pub fn record_runs(audit: Audit) -> RunEndFn {
    Arc::new(move |spec, end, took| {
        let failed = |error: Option<&CacheError>| match error {
            Some(error) => status::cache_reason(error).name().to_owned(),
            None => "NOT_NEEDED".to_owned(),
        };
        audit.run(&PluginRun {
            provider: &spec.provider.name,
            key: spec.key.to_string(),
            cluster_profile: spec.target.as_ref().map(|target| target.profile.to_string()),
            result: end.map(|issued| issued.generation.to_string()).map_err(failed),
            took: Some(took),
        });
    })
}

/// An allowed call.
fn decision<'a>(access: &'a Access, call: &'a str) -> DecisionRecord<'a> {
    let principal = access.principal();
    DecisionRecord {
        listener: &principal.listener,
        user: (access.peer.uid, access.peer.gid),
        pid: access.peer.pid,
        executable: principal.process.facts().executable.as_deref(),
        call,
        target: None,
        outcome: RequestOutcome::Allowed,
        reason: None,
        generation: None,
        took: None,
    }
}

fn shown(source: &Source) -> String {
    match source {
        Source::Provider(provider) => format!("provider/{}", provider.name),
        Source::ClusterProfile(profile) => format!("clusterprofile/{profile}"),
    }
}

fn outcome(status: &Status) -> RequestOutcome {
    if status.code() == Code::PermissionDenied { RequestOutcome::Denied } else { RequestOutcome::Failed }
}

fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}
