//! The audit record of one request.

use std::{path::Path, sync::Arc, time::Duration};

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{access::Access, status};
use credbroker_cache::{CacheError, RunEndFn};
use credbroker_credential::text::shown;
use credbroker_fleet::resolver::{Resolver, Source};
use credbroker_observe::audit::{Audit, Fields, RequestOutcome, milliseconds};
use credbroker_plugin::access::{CallTarget, Verb};

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
    pub(super) fn credential(
        (audit, resolver): (&'a Audit, &Resolver),
        access: &Arc<Access>,
        verb: Verb,
        source: &Source,
    ) -> Self {
        let mut asked = Self::call(audit, access, verb.name());
        if asked.begun.is_some() {
            (asked.target, asked.rule) = (Some(target(source)), rule(resolver, access, verb, source));
        }
        asked
    }

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
        if self.begun.is_some() {
            let (outcome, reason, generation) = match &answer {
                Ok(answer) => (RequestOutcome::Allowed, self.rule, generation(answer)),
                Err(status) if status.code() == Code::PermissionDenied => {
                    (RequestOutcome::Denied, reason(status), None)
                }
                Err(status) => (RequestOutcome::Failed, reason(status), None),
            };
            let fields = fields(&self.access, [self.target, reason, generation]);
            self.audit.decision(self.begun, self.access.peer.uid, (self.call, outcome), fields);
        }
        answer
    }
}

pub(super) fn hit(
    (audit, resolver): (&Audit, &Resolver),
    access: &Access,
    source: &Source,
    generation: impl FnOnce() -> String,
) {
    audit.hit(Verb::Get.name(), || {
        fields(access, [Some(target(source)), rule(resolver, access, Verb::Get, source), Some(generation())])
    });
}

/// A request that was refused before it was read. `call` is the path of its method, which the caller chose.
pub(super) fn refused(audit: &Audit, access: &Access, call: &str, status: &Status) {
    let begun = audit.begin();
    if begun.is_some() {
        let (call, fields) = (shown(call), fields(access, [None, reason(status), None]));
        audit.decision(begun, access.peer.uid, (&call, RequestOutcome::Denied), fields);
    }
}

/// Records each plugin run.
pub fn record_runs(audit: Audit) -> RunEndFn {
    Arc::new(move |spec, end, took| {
        let profile = spec.target.as_ref().map(|target| target.profile.to_string());
        let failed = |error: Option<&CacheError>| {
            error.map_or("NOT_NEEDED", |error| status::cache_reason(error).name())
        };
        audit.run(vec![
            ("provider", Some(shown(&spec.provider.name).into())),
            ("id", Some(spec.key.to_string().into())),
            ("cluster_profile", profile.map(|profile| shown(&profile).into())),
            ("outcome", Some(if end.is_ok() { "issued" } else { "failed" }.into())),
            ("generation", end.ok().map(|issued| issued.generation.to_string().into())),
            ("reason", end.err().map(|error| failed(error).into())),
            ("duration_ms", Some(milliseconds(took))),
        ]);
    })
}

/// What is known about a call of this peer, with its target, its reason and the generation that was sent.
fn fields(access: &Access, [target, reason, generation]: [Option<String>; 3]) -> Fields {
    let (peer, principal) = (&access.peer, &access.principal);
    let executable = principal.process.facts().executable.as_deref().map(Path::display);
    vec![
        ("target", target.map(|target| shown(&target).into())),
        ("reason", reason.map(Into::into)),
        ("listener", Some((*principal.listener).into())),
        ("uid", Some(peer.uid.into())),
        ("gid", Some(peer.gid.into())),
        ("pid", peer.pid.map(Into::into)),
        ("executable", executable.map(|path| shown(&path.to_string()).into())),
        ("generation", generation.map(Into::into)),
    ]
}

fn rule(resolver: &Resolver, access: &Access, verb: Verb, source: &Source) -> Option<String> {
    let rule = |target| access.rights().rule(verb, target).map(|rule| rule.name.to_string());
    match source {
        // As `Resolver::key` asks the rules: about its user.
        Source::Context(id) => rule(CallTarget::Provider(&resolver.providers().context(id).ok()?.user)),
        source => rule(source.target()?),
    }
}

fn target(source: &Source) -> String {
    match source {
        Source::Provider(provider) => format!("provider/{}", provider.name),
        Source::ClusterProfile(profile) => format!("clusterprofile/{profile}"),
        Source::Context(context) => format!("context/{}", context.name),
    }
}

fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::Value;
    use tokio::sync::watch;

    use super::*;
    use credbroker_observe::{audit::AuditSink, clock::SystemClock};
    use credbroker_plugin::{
        ProviderRef,
        access::{Facts, Policy, Principal, Process},
    };
    use credbroker_uds_server::Peer;

    /// Keeps the lines.
    #[derive(Clone, Debug, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl AuditSink for Lines {
        fn push(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_owned());
        }

        fn flush(&self, _: Duration) {}
    }

    #[test]
    fn a_record_says_who_asked_for_what_and_how_it_was_decided() {
        let facts = Facts { executable: Some(Path::new("/usr/bin/kubectl").into()), ..Facts::default() };
        let principal = Principal {
            uid: Some(1001),
            process: Process::new(move || facts),
            listener: "default".into(),
            ..Principal::default()
        };
        let peer = Peer { listener: 0, uid: 1001, gid: 1002, pid: Some(7) };
        let policies = watch::Sender::new(Arc::new(Policy::new([]))).subscribe();
        let (access, lines) = (Arc::new(Access::new(peer, principal, policies)), Lines::default());
        let audit = Audit::new(Some(Box::new(lines.clone())), Arc::new(SystemClock));
        let source = |name: &str| Source::Provider(ProviderRef::from(name));
        let resolver = Resolver::new(Arc::default(), None);
        let asked = Asked::credential((&audit, &resolver), &access, Verb::Get, &source("gke\n\u{202e}"));
        asked.decided(Err::<(), _>(status::verb_denied(Verb::Get))).unwrap_err();
        hit((&audit, &resolver), &access, &source("gke"), || "e-1".into());
        let records = lines
            .0
            .lock()
            .unwrap()
            .iter()
            .map(|line| {
                let mut record: Value = serde_json::from_str(line).unwrap();
                for name in ["time", "duration_ms"] {
                    record.as_object_mut().unwrap().remove(name);
                }
                record.to_string()
            })
            .collect::<Vec<_>>();
        insta::assert_snapshot!(records.join("\n"), @r#"
        {"call":"get","executable":"/usr/bin/kubectl","gid":1002,"kind":"decision","listener":"default","outcome":"denied","pid":7,"reason":"PEER_DENIED","target":"provider/gke\\n\\u{202e}","uid":1001}
        {"call":"get","executable":"/usr/bin/kubectl","generation":"e-1","gid":1002,"kind":"decision","listener":"default","outcome":"allowed","pid":7,"target":"provider/gke","uid":1001}
        "#);
    }
}
