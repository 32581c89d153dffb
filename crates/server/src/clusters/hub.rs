//! The state of the hub, with the time of its last change.

use std::{
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use credbroker_proto::{Reason, v1 as pb};

use super::convert;
use credbroker_fleet::HubState;

/// The state of the hub, and the time since when it has been so.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct TimedHubState {
    state: HubState,
    since: Option<SystemTime>,
}

impl TimedHubState {
    pub(super) fn message(&self) -> pb::HubState {
        let failure = self.state.problem.as_deref().map(|problem| pb::Failure {
            reason: Reason::HubUnavailable.into(),
            message: problem.to_owned(),
            retry_after: None,
        });
        let since_time = self.since.and_then(convert::timestamp);
        pb::HubState { synced: self.state.synced, failure, since_time }
    }
}

/// Records when the hub was first read, failed or recovered.
#[derive(Debug, Default)]
pub(super) struct HubHistory(Mutex<TimedHubState>);

impl HubHistory {
    /// Records `state` at `now`. The time changes when `synced` changes or a failure begins or ends, not when only
    /// the message of a failure changes.
    pub(super) fn observe(&self, state: HubState, now: SystemTime) -> TimedHubState {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = |state: &HubState| (state.synced, state.problem.is_some());
        if kind(&last.state) != kind(&state) {
            last.since = Some(now);
        }
        last.state = state;
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_changes_when_the_hub_is_read_fails_or_recovers() {
        let history = HubHistory::default();
        let state = |synced, problem: &str| HubState {
            synced,
            problem: Some(problem).filter(|problem| !problem.is_empty()).map(Into::into),
        };
        let since = |state, second| {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            history.observe(state, now).message().since_time.map(|at| at.seconds)
        };
        assert_eq!(since(state(false, ""), 1), None, "the hub has not answered yet");
        assert_eq!(since(state(false, "refused"), 2), Some(2));
        assert_eq!(since(state(false, "reset"), 3), Some(2), "it still fails");
        assert_eq!(since(state(true, ""), 4), Some(4));
        assert_eq!(since(state(true, ""), 5), Some(4));
        assert_eq!(since(state(true, "reset"), 6), Some(6));
    }
}
