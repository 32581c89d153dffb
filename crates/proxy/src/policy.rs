//! The access rules of the configuration, for targets.

use std::{fmt, sync::Arc};

use credbroker_plugin::{
    ProfileName,
    access::{CallTarget, Policy, Rule, Verb},
};
use tokio::sync::watch;

use crate::{caller::Caller, rights::Rights, target::KnownTarget};

/// The name of the user of a context, by the context's name and digest; `None`: the configuration does not have the context.
pub type UserOf = Box<dyn Fn(&str, &str) -> Option<Arc<str>> + Send + Sync>;

/// Rights by the active access rules, with the verb `proxy`.
pub struct PolicyRights {
    policies: watch::Receiver<Arc<Policy>>,
    user_of: UserOf,
    changes: watch::Sender<u64>,
}

/// No rule allows it.
struct Denied;

impl PolicyRights {
    /// Rights by the newest of `policies`. `user_of` knows the contexts of the same configuration: a context whose user has no
    /// plugin is under the rules for the name of that user.
    pub fn new(policies: watch::Receiver<Arc<Policy>>, user_of: UserOf) -> Arc<Self> {
        Arc::new(Self { policies, user_of, changes: watch::Sender::new(0) })
    }

    /// Reports each newer policy, until there is none any longer.
    pub async fn follow(&self) {
        let mut policies = self.policies.clone();
        while policies.changed().await.is_ok() {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Whether `caller` may do `verb` with `target`, and what `rule` says about the rule that allows it; `None`: there are no rules.
    fn decide<T>(
        &self,
        verb: Verb,
        caller: &Caller,
        target: &KnownTarget,
        rule: impl Fn(&Rule) -> T,
    ) -> Result<Option<T>, Denied> {
        let rights = self.policies.borrow().rights(&caller.principal);
        if !rights.is_limited() {
            return Ok(None);
        }
        let allowing = |target| rights.rule(verb, target).map(|allowing| Some(rule(allowing))).ok_or(Denied);
        match target {
            KnownTarget::Cluster { profile, provider } => {
                let name = ProfileName::new(&*profile.namespace, &*profile.name);
                allowing(CallTarget::Profile(&name, provider.as_deref()))
            }
            KnownTarget::Context { provider: Some(provider), .. } => allowing(CallTarget::Provider(provider)),
            KnownTarget::Context { name, digest, provider: None } => {
                allowing(CallTarget::Provider(&(self.user_of)(name, digest).ok_or(Denied)?))
            }
        }
    }
}

impl Rights for PolicyRights {
    fn may_use(&self, caller: &Caller, target: &KnownTarget) -> bool {
        self.decide(Verb::Proxy, caller, target, |_| ()).is_ok()
    }

    fn rule(&self, caller: &Caller, target: &KnownTarget) -> Option<Arc<str>> {
        self.decide(Verb::Proxy, caller, target, |rule| Arc::clone(&rule.name)).ok().flatten()
    }

    fn may_list(&self, caller: &Caller, target: Option<&KnownTarget>) -> bool {
        match target {
            Some(target) => self.decide(Verb::List, caller, target, |_| ()).is_ok(),
            None => self.policies.borrow().rights(&caller.principal).has(Verb::List),
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl fmt::Debug for PolicyRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyRights").field("policies", &self.policies).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use credbroker_client::ClusterProfileRef;
    use credbroker_plugin::{
        Globs,
        access::{Grant, Peers, Principal, ProfileGlobs},
    };

    use super::*;

    fn caller(uid: u32, listener: &str, is_owner: bool) -> Caller {
        let principal =
            Principal { uid: Some(uid), listener: listener.into(), is_owner, ..Principal::default() };
        Caller { principal, pid: None, rule: None }
    }

    fn rule(name: &str, uid: u32, providers: &[&str], profiles: &[&str], verb: Verb) -> Rule {
        let allow = Grant {
            providers: Globs::new(providers),
            cluster_profiles: ProfileGlobs::new(profiles.iter().copied()),
            verbs: vec![verb],
        };
        Rule { name: name.into(), peers: Peers { uids: vec![uid], ..Peers::default() }, allow }
    }

    fn cluster(name: &str, provider: Option<&str>) -> KnownTarget {
        let provider = provider.map(str::to_owned);
        KnownTarget::Cluster { profile: ClusterProfileRef::new("fleet", name), provider }
    }

    fn context(name: &str, provider: Option<&str>) -> KnownTarget {
        let digest = "0123456789abcdef".to_owned();
        KnownTarget::Context { name: name.to_owned(), digest, provider: provider.map(str::to_owned) }
    }

    fn rights(rules: Vec<Rule>) -> (watch::Sender<Arc<Policy>>, Arc<PolicyRights>) {
        let policies = watch::Sender::new(Arc::new(Policy::new(rules)));
        let user_of = |name: &str, _: &str| (name == "kind").then(|| "kind-admin".into());
        let rights = PolicyRights::new(policies.subscribe(), Box::new(user_of));
        (policies, rights)
    }

    #[test]
    fn a_target_needs_a_rule_with_the_verb_proxy() {
        let (_policies, rights) = rights(vec![
            rule("reader", 7, &["*"], &["*"], Verb::Get),
            rule("agents", 7, &["gke", "kind-admin"], &["fleet/p*"], Verb::Proxy),
        ]);
        let (known, other) = (caller(7, "tls", false), caller(8, "tls", true));
        for (target, expected) in [
            (cluster("paris", Some("gke")), true),
            (cluster("paris", Some("eks")), false),
            (cluster("london", Some("gke")), false),
            (context("prod", Some("gke")), true),
            (context("prod", Some("eks")), false),
            (context("kind", None), true),
            (context("other", None), false),
        ] {
            assert_eq!(rights.may_use(&known, &target), expected, "{target:?}");
            assert_eq!(rights.rule(&known, &target).as_deref(), expected.then_some("agents"), "{target:?}");
            assert!(!rights.may_use(&other, &target), "{target:?}");
        }
    }

    #[test]
    fn what_goes_to_a_target_is_for_those_who_may_list_it() {
        let (_policies, rights) = rights(vec![
            rule("agents", 7, &["*"], &["*"], Verb::Proxy),
            rule("operators", 8, &["gke"], &["fleet/*"], Verb::List),
        ]);
        let (agent, operator) = (caller(7, "tls", true), caller(8, "tls", false));
        for (target, expected) in [
            (None, true),
            (Some(cluster("paris", Some("gke"))), true),
            (Some(cluster("paris", Some("eks"))), false),
            (Some(context("prod", Some("gke"))), true),
            (Some(context("kind", None)), false),
        ] {
            assert_eq!(rights.may_list(&operator, target.as_ref()), expected, "{target:?}");
            assert!(!rights.may_list(&agent, target.as_ref()), "{target:?}");
        }
    }

    #[test]
    fn without_rules_the_owner_may_use_all_and_others_nothing() {
        let (_policies, rights) = rights(Vec::new());
        for target in [cluster("paris", None), context("other", None)] {
            assert!(rights.may_use(&caller(7, "proxy", true), &target));
            assert_eq!(rights.rule(&caller(7, "proxy", true), &target), None);
            assert!(!rights.may_use(&caller(7, "proxy", false), &target));
            assert!(rights.may_list(&caller(7, "proxy", true), Some(&target)));
            assert!(!rights.may_list(&caller(7, "proxy", false), Some(&target)));
        }
    }

    #[tokio::test]
    async fn newer_rules_count_at_once_and_are_reported() {
        let (policies, rights) = rights(vec![rule("a", 7, &["gke"], &[], Verb::Proxy)]);
        let (known, target, mut changes) =
            (caller(7, "tls", false), context("prod", Some("gke")), rights.changes());
        assert!(rights.may_use(&known, &target));
        let replaced = async {
            policies.send_replace(Arc::new(Policy::new([rule("b", 8, &["gke"], &[], Verb::Proxy)])));
            changes.changed().await.unwrap();
            assert!(!rights.may_use(&known, &target));
        };
        tokio::select! {
            () = rights.follow() => panic!("it has ended"),
            () = replaced => {}
        }
    }
}
