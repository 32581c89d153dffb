//! How well the fleet is known.

use std::sync::Arc;

use crate::plugin::ResolveError;

/// How well the fleet is known.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HubState {
    /// All profiles were read at least once.
    pub synced: bool,
    /// Why the hub cannot be read now.
    pub problem: Option<Arc<str>>,
}

impl HubState {
    /// Whether there is nothing to wait for: the first look is over, or fails.
    pub(crate) fn is_settled(&self) -> bool {
        self.synced || self.problem.is_some()
    }

    /// The error for somebody who needs what was not read yet.
    pub(crate) fn unavailable(self, wanted: String) -> ResolveError {
        let problem = self.problem.unwrap_or_else(|| "the hub has not answered yet".into());
        ResolveError::HubUnavailable { wanted, problem }
    }
}
