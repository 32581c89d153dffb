//! Why a request failed: the one table from a stable reason to its gRPC code and exit code.

use crate::Code;

/// The `domain` of every `google.rpc.ErrorInfo` that credbroker sends.
pub const DOMAIN: &str = "credbroker.io";

/// The metadata key of an `ErrorInfo` with [`Reason::Overloaded`]: its value is the name of the limit that is reached,
/// for example `limits.watchesPerConnection`.
pub const LIMIT: &str = "limit";

/// The stable reasons in `google.rpc.ErrorInfo.reason`. Messages may change, these do not.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The status or the certificate carries a time that is not RFC 3339.
    BadTimestamp,
    /// The certificate was past its NotAfter when the plugin printed it.
    CertExpired,
    /// The caller names a cluster other than the broker knows for what it asks for.
    ClusterMismatch,
    /// The ClusterProfile names no place that a credential may be used at, or its extensions cannot be used.
    ClusterProfileInvalid,
    /// The broker is shutting down; its successor will answer.
    Draining,
    /// What the plugin is told (`KUBERNETES_EXEC_INFO`) exceeds the kernel's limit for one variable.
    ExecInfoTooLarge,
    /// The credential was expired when the plugin printed it.
    ExpiredOutput,
    /// The hub has not been read yet, so it is not known whether there is such a ClusterProfile.
    HubUnavailable,
    /// The plugin needs a person.
    InteractionRequired,
    /// The request itself is wrong; the same one never succeeds.
    InvalidRequest,
    /// The issuer asked for fewer runs, so the broker pauses them.
    IssuerThrottled,
    /// The private key does not belong to the certificate.
    KeyMismatch,
    /// The plugin printed no usable credential.
    NoCredential,
    /// No provider serves this ClusterProfile.
    NoMatchingProvider,
    /// The plugin printed something that is not one valid ExecCredential.
    OutputInvalid,
    /// The plugin printed more than the limit.
    OutputTooLarge,
    /// A limit of the broker is reached. The message and the metadata key [`LIMIT`] name it.
    Overloaded,
    /// This peer may not do this.
    PeerDenied,
    /// The plugin exited with a code other than 0.
    PluginExit,
    /// The allowlist does not name the plugin.
    PluginNotAllowed,
    /// The plugin's executable is not there.
    PluginNotFound,
    /// The plugin was ended by a signal.
    PluginSignal,
    /// The plugin ran longer than its limit.
    PluginTimeout,
    /// The plugin asked the broker for the credential it was to provide.
    Recursion,
    /// The caller's deadline, or the longest wait of a caller without one, ended before the plugin run did.
    RunPending,
    /// The plugin could not be started.
    SpawnFailed,
    /// The hub has no such ClusterProfile, or not among those that the broker reads.
    UnknownClusterProfile,
    /// No provider of that name.
    UnknownProvider,
    /// The plugin answered in another apiVersion than it is configured for.
    VersionMismatch,
}

/// Where a reason stands in the table: name on the wire, gRPC code, exit code of the shim and the CLI.
type Row = (Reason, &'static str, Code, u8);

/// 1: the broker answered with a failure. 69: it is going away, which counts as not there. 75: the plugin has not
/// finished in time; asking again later can help. 77: the broker denied this peer.
const TABLE: [Row; 29] = [
    (Reason::BadTimestamp, "BAD_TIMESTAMP", Code::Unavailable, 1),
    (Reason::CertExpired, "CERT_EXPIRED", Code::Unavailable, 1),
    (Reason::ClusterMismatch, "CLUSTER_MISMATCH", Code::PermissionDenied, 1),
    (Reason::ClusterProfileInvalid, "CLUSTER_PROFILE_INVALID", Code::FailedPrecondition, 1),
    (Reason::Draining, "DRAINING", Code::Unavailable, 69),
    (Reason::ExecInfoTooLarge, "EXEC_INFO_TOO_LARGE", Code::InvalidArgument, 1),
    (Reason::ExpiredOutput, "EXPIRED_OUTPUT", Code::Unavailable, 1),
    (Reason::HubUnavailable, "HUB_UNAVAILABLE", Code::Unavailable, 1),
    (Reason::InteractionRequired, "INTERACTION_REQUIRED", Code::FailedPrecondition, 1),
    (Reason::InvalidRequest, "INVALID_REQUEST", Code::InvalidArgument, 1),
    (Reason::IssuerThrottled, "ISSUER_THROTTLED", Code::Unavailable, 1),
    (Reason::KeyMismatch, "KEY_MISMATCH", Code::Unavailable, 1),
    (Reason::NoCredential, "NO_CREDENTIAL", Code::Unavailable, 1),
    (Reason::NoMatchingProvider, "NO_MATCHING_PROVIDER", Code::NotFound, 1),
    (Reason::OutputInvalid, "OUTPUT_INVALID", Code::Unavailable, 1),
    (Reason::OutputTooLarge, "OUTPUT_TOO_LARGE", Code::Unavailable, 1),
    (Reason::Overloaded, "OVERLOADED", Code::ResourceExhausted, 1),
    (Reason::PeerDenied, "PEER_DENIED", Code::PermissionDenied, 77),
    (Reason::PluginExit, "PLUGIN_EXIT", Code::Unavailable, 1),
    (Reason::PluginNotAllowed, "PLUGIN_NOT_ALLOWED", Code::FailedPrecondition, 1),
    (Reason::PluginNotFound, "PLUGIN_NOT_FOUND", Code::FailedPrecondition, 1),
    (Reason::PluginSignal, "PLUGIN_SIGNAL", Code::Unavailable, 1),
    (Reason::PluginTimeout, "PLUGIN_TIMEOUT", Code::Unavailable, 1),
    (Reason::Recursion, "RECURSION", Code::FailedPrecondition, 1),
    (Reason::RunPending, "RUN_PENDING", Code::Unavailable, 75),
    (Reason::SpawnFailed, "SPAWN_FAILED", Code::Unavailable, 1),
    (Reason::UnknownClusterProfile, "UNKNOWN_CLUSTER_PROFILE", Code::NotFound, 1),
    (Reason::UnknownProvider, "UNKNOWN_PROVIDER", Code::NotFound, 1),
    (Reason::VersionMismatch, "VERSION_MISMATCH", Code::Unavailable, 1),
];

impl Reason {
    /// Every reason, in alphabetical order.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The reason of that name, if it is one of ours.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Its name on the wire, for example `PLUGIN_TIMEOUT`.
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// The gRPC status code that goes with it.
    #[cfg(feature = "tonic")]
    pub fn code(self) -> tonic::Code {
        self.row().2.into()
    }

    /// The exit code of the shim and the CLI.
    pub const fn exit_code(self) -> u8 {
        self.row().3
    }

    /// The enum and the table are in the same order, which a test holds them to.
    #[allow(
        clippy::indexing_slicing,
        reason = "every variant has a row; `every_reason_has_its_own_row` walks them"
    )]
    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_reason_has_its_own_row() {
        for (index, reason) in Reason::all().enumerate() {
            assert_eq!(reason as usize, index, "{reason:?} stands elsewhere in the table");
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
            assert!([1, 69, 75, 77].contains(&reason.exit_code()));
        }
        assert_eq!(Reason::all().map(Reason::name).collect::<HashSet<_>>().len(), TABLE.len());
        assert_eq!(Reason::VersionMismatch as usize + 1, TABLE.len(), "the last variant has a row");
    }

    #[test]
    fn an_unknown_name_is_no_reason() {
        assert_eq!(Reason::from_name("SOMETHING_ELSE"), None);
    }
}
