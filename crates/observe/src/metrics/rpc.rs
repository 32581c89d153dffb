//! The RPCs of the broker.

/// An RPC, by its place in the table of paths.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rpc(pub(super) u8);

/// The label and the path of each RPC. The first is the most frequent one.
pub(super) const PATHS: [(&str, &str); 15] = [
    ("GetCredential", "/credbroker.v1.CredentialBroker/GetCredential"),
    ("WatchCredential", "/credbroker.v1.CredentialBroker/WatchCredential"),
    ("AttendCredential", "/credbroker.v1.CredentialBroker/AttendCredential"),
    ("DepositOutput", "/credbroker.v1.CredentialBroker/DepositOutput"),
    ("ReportRejected", "/credbroker.v1.CredentialBroker/ReportRejected"),
    ("ListClusters", "/credbroker.v1.CredentialBroker/ListClusters"),
    ("WatchClusters", "/credbroker.v1.CredentialBroker/WatchClusters"),
    ("ListCredentials", "/credbroker.v1.CredentialBrokerAdmin/ListCredentials"),
    ("RefreshCredentials", "/credbroker.v1.CredentialBrokerAdmin/RefreshCredentials"),
    ("EvictCredentials", "/credbroker.v1.CredentialBrokerAdmin/EvictCredentials"),
    ("ListProviders", "/credbroker.v1.CredentialBrokerAdmin/ListProviders"),
    ("GetBrokerInfo", "/credbroker.v1.CredentialBrokerAdmin/GetBrokerInfo"),
    ("Health.Check", "/grpc.health.v1.Health/Check"),
    ("Health.Watch", "/grpc.health.v1.Health/Watch"),
    // Reflection, and paths that do not exist.
    ("other", ""),
];

impl Rpc {
    /// `GetCredential`.
    pub const GET: Self = Self(0);

    /// The RPC of a request with this path.
    pub fn of(path: &str) -> Self {
        let at = PATHS.iter().position(|(_, known)| *known == path).unwrap_or(PATHS.len() - 1);
        Self(u8::try_from(at).unwrap_or_default())
    }

    /// Its name in logs and labels.
    pub fn name(self) -> &'static str {
        PATHS.get(usize::from(self.0)).map_or("other", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_our_services_is_counted_under_its_name() {
        use prost::Message as _;
        let files =
            prost_types::FileDescriptorSet::decode(credbroker_proto::FILE_DESCRIPTOR_SET).unwrap().file;
        for file in files {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    assert_eq!(Rpc::of(&path).name(), method.name(), "{path}");
                }
            }
        }
        assert_eq!(Rpc::of(PATHS[0].1), Rpc::GET);
        assert_eq!(Rpc::of("/made.up/Path").name(), "other");
    }
}
