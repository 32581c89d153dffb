//! Whether the hub can be read.

use std::sync::Arc;

/// Whether the hub was read, and why it cannot be read now.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HubState {
    /// All profiles were read at least once.
    pub synced: bool,
    /// Why the hub cannot be read now.
    pub problem: Option<Arc<str>>,
}

impl HubState {
    /// Whether the first read succeeded or failed, so that there is nothing to wait for.
    pub(crate) fn is_settled(&self) -> bool {
        self.synced || self.problem.is_some()
    }

    /// Why the hub was not read, for a request that needs a profile.
    pub(crate) fn why_unread(self) -> Arc<str> {
        self.problem.unwrap_or_else(|| "the hub has not answered yet".into())
    }
}
