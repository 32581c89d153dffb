//! What one peer may do under one policy.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
    sync::Arc,
};

use super::{
    rule::{Rule, Target},
    verb::Verb,
};

/// The rights of one peer under one policy. Computed once for each connection and policy.
#[derive(Clone, Debug)]
pub struct Rights {
    scope: Scope,
    view: u64,
}

#[derive(Clone, Debug)]
enum Scope {
    /// There is no rule, and the peer is the broker's own user or root.
    Everything,
    /// The rules that are for the peer. Empty: it has no right.
    Rules(Box<[Arc<Rule>]>),
}

impl Rights {
    /// Every right.
    pub fn all() -> Self {
        Self { scope: Scope::Everything, view: 0 }
    }

    /// The rights of these rules, which are `numbers` in the policy `policy`.
    pub(super) fn of(policy: u64, rules: Vec<(usize, Arc<Rule>)>) -> Self {
        let mut view = DefaultHasher::new();
        policy.hash(&mut view);
        for (number, _) in &rules {
            number.hash(&mut view);
        }
        let rules = rules.into_iter().map(|(_, rule)| rule).collect();
        Self { scope: Scope::Rules(rules), view: view.finish().max(1) }
    }

    /// Whether the peer may do `verb` with `target`.
    pub fn allows(&self, verb: Verb, target: Target<'_>) -> bool {
        match &self.scope {
            Scope::Everything => true,
            Scope::Rules(rules) => rules.iter().any(|rule| rule.allow.covers(verb, target)),
        }
    }

    /// Whether the peer has any right to `target`.
    pub fn reach(&self, target: Target<'_>) -> bool {
        Verb::ALL.into_iter().any(|verb| self.allows(verb, target))
    }

    /// Whether the peer may do `verb` with anything.
    pub fn has(&self, verb: Verb) -> bool {
        match &self.scope {
            Scope::Everything => true,
            Scope::Rules(rules) => rules.iter().any(|rule| rule.allow.verbs.allows(verb)),
        }
    }

    /// Whether the peer has no right at all.
    pub fn is_empty(&self) -> bool {
        matches!(&self.scope, Scope::Rules(rules) if rules.is_empty())
    }

    /// Whether rules limit the peer. Then what does not exist must look like what is forbidden.
    pub fn is_limited(&self) -> bool {
        !matches!(self.scope, Scope::Everything)
    }

    /// Identifies what the peer can see: equal numbers, equal views. 0 is a view of everything.
    pub fn view(&self) -> u64 {
        self.view
    }

    /// The first rule that allows `verb` for `target`. `None`: no rule is needed, or none allows it.
    pub fn rule(&self, verb: Verb, target: Target<'_>) -> Option<&Arc<str>> {
        match &self.scope {
            Scope::Everything => None,
            Scope::Rules(rules) => {
                rules.iter().find(|rule| rule.allow.covers(verb, target)).map(|rule| &rule.name)
            }
        }
    }
}
