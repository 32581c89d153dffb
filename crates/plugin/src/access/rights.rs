//! What one peer may do under one policy.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
    sync::Arc,
};

use super::{
    rule::{CallTarget, Rule},
    verb::Verb,
};

/// The rights of one peer under one policy. Computed once for each connection and policy.
#[derive(Clone, Debug)]
pub struct Rights {
    /// The rules that are for the peer; empty: it has no right. `None`: it has every right, because there is no rule, and
    /// it is the broker's own user or root.
    rules: Option<Box<[Arc<Rule>]>>,
    view: u64,
}

impl Rights {
    /// Every right.
    pub fn all() -> Self {
        Self { rules: None, view: 0 }
    }

    /// The rights of these rules, which are `numbers` in the policy `policy`.
    pub(super) fn of(policy: u64, rules: Vec<(usize, Arc<Rule>)>) -> Self {
        let mut view = DefaultHasher::new();
        policy.hash(&mut view);
        for (number, _) in &rules {
            number.hash(&mut view);
        }
        let rules = rules.into_iter().map(|(_, rule)| rule).collect();
        Self { rules: Some(rules), view: view.finish().max(1) }
    }

    /// Whether the peer may do `verb` with `target`.
    pub fn allows(&self, verb: Verb, target: CallTarget<'_>) -> bool {
        self.rules.is_none() || self.covering(verb, target).is_some()
    }

    /// Whether the peer has any right to `target`.
    pub fn reach(&self, target: CallTarget<'_>) -> bool {
        Verb::ALL.into_iter().any(|verb| self.allows(verb, target))
    }

    /// Whether the peer may do `verb` with anything.
    pub fn has(&self, verb: Verb) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.iter().any(|rule| rule.allow.verbs.allows(verb)))
    }

    /// Whether the peer has no right at all.
    pub fn is_empty(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.is_empty())
    }

    /// Whether rules limit the peer. Then what does not exist must look like what is forbidden.
    pub fn is_limited(&self) -> bool {
        self.rules.is_some()
    }

    /// Identifies what the peer can see: equal numbers, equal views. 0 is a view of everything.
    pub fn view(&self) -> u64 {
        self.view
    }

    /// The first rule that allows `verb` for `target`. `None`: no rule is needed, or none allows it.
    pub fn rule(&self, verb: Verb, target: CallTarget<'_>) -> Option<&Arc<str>> {
        self.covering(verb, target).map(|rule| &rule.name)
    }

    fn covering(&self, verb: Verb, target: CallTarget<'_>) -> Option<&Arc<Rule>> {
        self.rules.as_ref()?.iter().find(|rule| rule.allow.covers(verb, target))
    }
}
