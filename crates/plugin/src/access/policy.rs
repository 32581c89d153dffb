//! All rules of a configuration.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{
    principal::Principal,
    rights::Rights,
    rule::{CallTarget, Rule},
    verb::Verb,
};

const ROOT: u32 = 0;

/// The access rules of one configuration. Immutable: a reload makes a new policy.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<Arc<Rule>>,
    /// Distinguishes this policy from all others of the process.
    number: u64,
}

impl Policy {
    /// A policy of these rules. Without a rule, the broker's own user and root have every right. With rules, everyone has
    /// the rights of the rules for them and no others.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let rules = rules.into_iter().map(Arc::new).collect();
        Self { rules, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The rights of `principal`.
    pub fn rights(&self, principal: &Principal) -> Rights {
        if self.rules.is_empty() && principal.is_owner && principal.uid.is_some() {
            return Rights::all();
        }
        let rules = self.rules.iter().enumerate().filter(|(_, rule)| rule.peers.include(principal));
        Rights::of(self.number, rules.map(|(number, rule)| (number, Arc::clone(rule))).collect())
    }

    /// Whether these are the rules of the policy.
    pub fn is_of(&self, rules: &[Rule]) -> bool {
        self.rules.len() == rules.len() && self.rules.iter().zip(rules).all(|(own, rule)| **own == *rule)
    }

    /// Whether no other user than `own` and root can get a credential of the provider.
    pub fn is_alone(&self, own: u32, provider: &str) -> bool {
        let includes_others = |rule: &Rule| {
            let uids = &rule.peers.uids;
            uids.is_empty() || uids.iter().any(|uid| ![own, ROOT].contains(uid))
        };
        let gives = |rule: &Rule| {
            let verbs = [Verb::Get, Verb::Watch, Verb::Report];
            verbs.into_iter().any(|verb| rule.allow.covers(verb, CallTarget::Provider(provider)))
        };
        !self.rules.iter().any(|rule| includes_others(rule) && gives(rule))
    }

    /// Whether there is a rule.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }
}
