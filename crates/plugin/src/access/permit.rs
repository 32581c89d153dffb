//! The rights that a request is resolved with.

use std::sync::Arc;

use super::{rights::Rights, rule::CallTarget, verb::Verb};

/// The rights of a caller, and the verb of its call. The default allows everything: it is for requests of the broker
/// itself.
#[derive(Clone, Debug, Default)]
pub struct Permit(Option<(Arc<Rights>, Verb)>);

impl Permit {
    /// A permit for one call.
    pub fn new(rights: Arc<Rights>, verb: Verb) -> Self {
        Self(Some((rights, verb)))
    }

    /// Whether the call may be about `target`.
    pub fn allows(&self, target: CallTarget<'_>) -> bool {
        self.0.as_ref().is_none_or(|(rights, verb)| rights.allows(*verb, target))
    }

    /// Whether what does not exist must look like what is forbidden.
    pub fn hides_unknown(&self) -> bool {
        self.0.as_ref().is_some_and(|(rights, _)| rights.is_limited())
    }

    /// Whether these are its rights.
    pub fn is_of(&self, rights: &Arc<Rights>) -> bool {
        self.0.as_ref().is_none_or(|(own, _)| Arc::ptr_eq(own, rights))
    }

    /// The same verb with other rights.
    #[must_use]
    pub fn with(&self, rights: Arc<Rights>) -> Self {
        Self(self.0.as_ref().map(|(_, verb)| (rights, *verb)))
    }
}
