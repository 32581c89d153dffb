//! Why a request failed: the one table from a stable reason to its gRPC code and exit code.

use crate::Code;

pub use crate::v1::ErrorReason as Reason;

/// The `domain` of every `google.rpc.ErrorInfo` that credbroker sends.
pub const DOMAIN: &str = "credbroker.io";

/// The metadata key of an `ErrorInfo` for the name of the provider.
pub const PROVIDER: &str = "provider";

/// The metadata key of an `ErrorInfo` for the `key` of the `CredentialState`.
pub const KEY: &str = "key";

/// The metadata key of an `ErrorInfo` for the ClusterProfile, as NAMESPACE/NAME.
pub const CLUSTER: &str = "cluster";

/// The metadata key of an `ErrorInfo` with [`Reason::Overloaded`]: its value is the name of the limit that is reached,
/// for example `limits.watchesPerConnection`.
pub const LIMIT: &str = "limit";

impl Reason {
    /// Every reason, in the order of the `.proto`.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..).map_while(|number| Self::try_from(number).ok())
    }

    /// The reason with this name. `None`: this release does not know it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::from_str_name(name).filter(|reason| *reason != Self::Unspecified)
    }

    /// Its name, for example `PLUGIN_TIMEOUT`.
    pub fn name(self) -> &'static str {
        self.as_str_name()
    }

    /// The gRPC status code that goes with it.
    #[cfg(feature = "tonic")]
    pub fn code(self) -> tonic::Code {
        self.row().0.into()
    }

    /// The exit code of the shim and the CLI.
    pub const fn exit_code(self) -> u8 {
        self.row().1
    }

    /// The table. Exit codes: 1 the broker answered with a failure; 69 it is shutting down, which counts as not there;
    /// 75 the plugin has not finished in time, so asking again later can help; 77 the broker denied this peer.
    const fn row(self) -> (Code, u8) {
        match self {
            Self::Unspecified => (Code::Unknown, 1),
            Self::ExecInfoTooLarge | Self::InvalidRequest => (Code::InvalidArgument, 1),
            Self::NoMatchingProvider
            | Self::UnknownClusterProfile
            | Self::UnknownDefinition
            | Self::UnknownProvider => (Code::NotFound, 1),
            Self::AmbiguousProvider
            | Self::ClusterProfileInvalid
            | Self::HubNotConfigured
            | Self::IdentityConflict
            | Self::InteractionRequired
            | Self::PluginNotFound
            | Self::Recursion => (Code::FailedPrecondition, 1),
            Self::ClusterMismatch | Self::VariableNotAllowed => (Code::PermissionDenied, 1),
            Self::PeerDenied => (Code::PermissionDenied, 77),
            Self::Overloaded => (Code::ResourceExhausted, 1),
            Self::RequestIncomplete => (Code::DeadlineExceeded, 1),
            Self::Draining => (Code::Unavailable, 69),
            Self::RunPending => (Code::Unavailable, 75),
            Self::BadTimestamp
            | Self::CertExpired
            | Self::ExpiredOutput
            | Self::HubUnavailable
            | Self::IssuerThrottled
            | Self::KeyMismatch
            | Self::NoCredential
            | Self::OutputInvalid
            | Self::OutputTooLarge
            | Self::PluginExit
            | Self::PluginSignal
            | Self::PluginTimeout
            | Self::SpawnFailed
            | Self::VersionMismatch => (Code::Unavailable, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;
    use crate::FILE_DESCRIPTOR_SET;

    #[test]
    fn all_reasons_of_the_proto_are_listed_by_name_and_in_order() {
        let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap().file;
        let mut enums = files.into_iter().flat_map(|file| file.enum_type);
        let reasons = enums.find(|found| found.name() == "ErrorReason").unwrap();
        let declared: Vec<_> = reasons.value.iter().skip(1).map(|value| value.name().to_owned()).collect();
        assert_eq!(Reason::all().map(Reason::name).collect::<Vec<_>>(), declared);
        for reason in Reason::all() {
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
            assert!([1, 69, 75, 77].contains(&reason.exit_code()));
        }
    }

    #[test]
    fn a_name_that_is_not_a_reason_is_not_found() {
        for name in ["SOMETHING_ELSE", "ERROR_REASON_UNSPECIFIED", ""] {
            assert_eq!(Reason::from_name(name), None);
        }
    }
}
