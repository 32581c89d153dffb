//! Why a request failed: the one table from a stable reason to its gRPC code.

use crate::{code::Code, v1::ErrorReason};

include!("generated/reason.rs");

/// The `domain` of every `google.rpc.ErrorInfo` that credbroker sends.
pub const DOMAIN: &str = "credbroker.io";

/// The metadata key of an `ErrorInfo` for the name of the provider.
pub const PROVIDER: &str = "provider";

/// The metadata key of an `ErrorInfo` for the `id` of the `CredentialState`.
pub const ID: &str = "id";

/// The metadata key of an `ErrorInfo` for the ClusterProfile, as NAMESPACE/NAME.
pub const CLUSTER: &str = "cluster";

/// The metadata key of an `ErrorInfo` for the name of the context of a kubeconfig.
pub const CONTEXT: &str = "context";

/// The metadata key of an `ErrorInfo` with [`Reason::Overloaded`]: its value is the name of the limit that is reached,
/// for example `watches of a connection`.
pub const LIMIT: &str = "limit";

impl Reason {
    /// Every reason, in the order of the `.proto`.
    #[doc(hidden)]
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }

    /// The reason with this name. `None`: this release does not know it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|reason| reason.name() == name)
    }

    /// Its name, for example `PLUGIN_TIMEOUT`.
    pub fn name(self) -> &'static str {
        ErrorReason::try_from(i32::from(self)).unwrap_or_default().as_str_name()
    }

    /// The reason of a message. `None`: it has none, or one that this release does not know.
    #[doc(hidden)]
    pub fn from_message(reason: ErrorReason) -> Option<Self> {
        Self::all().find(|known| i32::from(*known) == i32::from(reason))
    }

    /// The gRPC status code that goes with it.
    #[doc(hidden)]
    pub const fn code(self) -> Code {
        match self {
            Self::ExecInfoTooLarge | Self::InvalidRequest => Code::InvalidArgument,
            Self::NoMatchingProvider
            | Self::UnknownClusterProfile
            | Self::UnknownContext
            | Self::UnknownDefinition
            | Self::UnknownProvider => Code::NotFound,
            Self::AmbiguousProvider
            | Self::ClusterProfileInvalid
            | Self::HubNotConfigured
            | Self::IdentityConflict
            | Self::InteractionRequired
            | Self::PluginNotAllowed
            | Self::PluginNotFound
            | Self::Recursion => Code::FailedPrecondition,
            Self::ClusterMismatch | Self::PeerDenied | Self::VariableNotAllowed => Code::PermissionDenied,
            Self::Overloaded => Code::ResourceExhausted,
            Self::RequestIncomplete => Code::DeadlineExceeded,
            Self::BadTimestamp
            | Self::CertExpired
            | Self::Draining
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
            | Self::ProviderChanged
            | Self::RunPending
            | Self::SpawnFailed
            | Self::VersionMismatch => Code::Unavailable,
        }
    }
}

/// The number of a message's field.
impl From<Reason> for i32 {
    fn from(reason: Reason) -> Self {
        reason as Self
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
            let message = ErrorReason::from_str_name(reason.name()).unwrap();
            assert_eq!(Reason::from_message(message), Some(reason));
            assert_eq!(i32::from(reason), i32::from(message));
        }
        assert_eq!(Reason::from_message(ErrorReason::Unspecified), None);
    }

    #[test]
    fn a_name_that_is_not_a_reason_is_not_found() {
        for name in ["SOMETHING_ELSE", "ERROR_REASON_UNSPECIFIED", ""] {
            assert_eq!(Reason::from_name(name), None);
        }
    }
}
