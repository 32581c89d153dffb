//! What the broker did about a rejected credential.

use std::time::Duration;

use credbroker_proto::v1::report_rejected_response::Outcome;

use crate::credential::Credential;

/// The broker's answer to a report that an API server rejected a credential.
#[derive(Debug)]
#[non_exhaustive]
pub struct RejectionReport {
    /// The credential to use from now on. It may be the one that was reported.
    pub credential: Credential,
    /// What the broker did.
    pub outcome: ReportOutcome,
    /// With [`ReportOutcome::TooEarly`]: the time after which a report can start a run.
    pub retry_after: Option<Duration>,
}

/// What the broker did about a report.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ReportOutcome {
    /// The plugin ran and issued another credential.
    Replaced,
    /// The broker already had a newer credential.
    AlreadyReplaced,
    /// The plugin did not run: the credential, or the last run because of a rejection, is too recent.
    TooEarly,
    /// The plugin ran and printed the same credential again.
    NothingNewer,
    /// This broker never issued that generation, for example because it restarted since.
    UnknownGeneration,
    /// An outcome that this release does not know.
    Unknown,
}

impl ReportOutcome {
    pub(crate) fn from_message(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Unspecified => Self::Unknown,
            Outcome::Replaced => Self::Replaced,
            Outcome::AlreadyReplaced => Self::AlreadyReplaced,
            Outcome::TooEarly => Self::TooEarly,
            Outcome::NothingNewer => Self::NothingNewer,
            Outcome::UnknownGeneration => Self::UnknownGeneration,
        }
    }
}
