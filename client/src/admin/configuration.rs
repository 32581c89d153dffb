//! Which configuration of a broker is active.

use std::time::SystemTime;

use credbroker_proto::v1alpha1;

use super::state::time;

/// Which configuration of a broker is active. The broker follows its files.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "_serialize", derive(serde::Serialize), serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct ConfigurationState {
    /// When the files were read last and had no problem.
    #[cfg_attr(
        feature = "_serialize",
        serde(rename = "readTime", serialize_with = "crate::serialize::time")
    )]
    pub read_at: Option<SystemTime>,
    /// Changed configurations that became active since the broker started.
    pub reloads: u64,
    /// Problems of the files as they are now, each with its place. Not empty: an earlier configuration is active.
    pub problems: Vec<String>,
    /// Since when the files have problems.
    #[cfg_attr(
        feature = "_serialize",
        serde(rename = "problemsSinceTime", serialize_with = "crate::serialize::time")
    )]
    pub problems_since: Option<SystemTime>,
    /// Keys that have changed, and whose new value is used after a restart.
    pub restart_needed: Vec<String>,
}

impl ConfigurationState {
    pub(crate) fn from_message(message: v1alpha1::ConfigurationState) -> Self {
        let v1alpha1::ConfigurationState {
            read_time,
            reloads,
            problems,
            problems_since_time,
            restart_needed,
        } = message;
        Self {
            read_at: time(read_time),
            reloads,
            problems,
            problems_since: time(problems_since_time),
            restart_needed,
        }
    }
}
