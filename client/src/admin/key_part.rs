//! What the key of a credential is made of.

use credbroker_proto::v1::{self, key_part};

/// A part of a key.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct KeyPart {
    /// What it is.
    pub kind: KeyPartKind,
    /// The name of a variable or of a field of the cluster, or the position of an argument; otherwise empty.
    pub name: String,
    /// Where the value comes from.
    pub origin: KeyPartOrigin,
    /// A keyed hash of the value. Parts of one kind and name have equal values if their fingerprints are equal, until the
    /// broker restarts.
    pub fingerprint: String,
    /// The value, if it is a name and not a secret. Never that of an argument, a variable or a cluster.
    pub value: Option<String>,
}

impl KeyPart {
    pub(super) fn from_message(message: v1::KeyPart) -> Self {
        use key_part::{Kind, Origin};
        let kind = match message.kind() {
            Kind::Unspecified => KeyPartKind::Unknown,
            Kind::Provider => KeyPartKind::Provider,
            Kind::Definition => KeyPartKind::Definition,
            Kind::Command => KeyPartKind::Command,
            Kind::ApiVersion => KeyPartKind::ApiVersion,
            Kind::ProvideClusterInfo => KeyPartKind::ProvideClusterInfo,
            Kind::Argument => KeyPartKind::Argument,
            Kind::Variable => KeyPartKind::Variable,
            Kind::ClusterProfile => KeyPartKind::ClusterProfile,
            Kind::Cluster => KeyPartKind::Cluster,
        };
        let origin = match message.origin() {
            Origin::Unspecified => KeyPartOrigin::Unknown,
            Origin::Stanza => KeyPartOrigin::Stanza,
            Origin::Always => KeyPartOrigin::Always,
            Origin::PassEnv => KeyPartOrigin::PassEnv,
            Origin::CallerEnv => KeyPartOrigin::CallerEnv,
            Origin::Caller => KeyPartOrigin::Caller,
            Origin::ClusterProfile => KeyPartOrigin::ClusterProfile,
            Origin::Kubeconfig => KeyPartOrigin::Kubeconfig,
        };
        let v1::KeyPart { kind: _, name, origin: _, fingerprint, value } = message;
        Self { kind, name, origin, fingerprint, value }
    }
}

/// What a part of a key is.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum KeyPartKind {
    /// The name of the provider.
    Provider,
    /// The definition of the provider.
    Definition,
    /// The plugin's command as configured.
    Command,
    /// The `apiVersion` that the plugin speaks.
    ApiVersion,
    /// Whether the plugin receives its cluster.
    ProvideClusterInfo,
    /// An argument of the plugin.
    Argument,
    /// A variable of the plugin's environment.
    Variable,
    /// The `ClusterProfile` that the credential is for.
    ClusterProfile,
    /// A field of the cluster that the credential is for.
    Cluster,
    /// A kind that this release does not know.
    Unknown,
}

/// Where the value of a part comes from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum KeyPartOrigin {
    /// The provider's stanza.
    Stanza,
    /// The broker's environment, for every plugin.
    Always,
    /// The broker's environment, because of the provider's `passEnv`, or because a kubeconfig defines the provider.
    PassEnv,
    /// The caller's environment, because of the provider's `callerEnv`.
    CallerEnv,
    /// The caller's cluster.
    Caller,
    /// The `ClusterProfile`.
    ClusterProfile,
    /// The kubeconfig that defines the provider.
    Kubeconfig,
    /// An origin that this release does not know.
    Unknown,
}
