//! Requests by RPC and result.

use prometheus_client::metrics::counter::Counter;

use super::{
    counter::{Counts, add_one, all},
    exposition::{Exposition, FAILURE, SUCCESS, families},
};

/// The requests of all callers.
#[derive(Debug, Default)]
pub struct Requests {
    ok: [Counter; PATHS.len()],
    failed: Counts<(Rpc, &'static str)>,
    denied: Counts<&'static str>,
}

impl Requests {
    /// A request was answered without an error. For a stream: it began.
    pub fn answered(&self, rpc: Rpc) {
        if let Some(count) = self.ok.get(usize::from(rpc.0)) {
            count.inc();
        }
    }

    /// A request failed. `reason` is a stable reason or the name of a gRPC code.
    pub fn failed(&self, rpc: Rpc, reason: &'static str, is_denied: bool) {
        add_one(&self.failed, (rpc, reason));
        if is_denied {
            add_one(&self.denied, reason);
        }
    }

    /// Writes both families.
    pub fn write(&self, to: &mut Exposition) {
        let ok = PATHS.iter().zip(&self.ok).map(|((name, _), count)| ([*name, SUCCESS, ""], count.get()));
        let failed = all(&self.failed).map(|((rpc, reason), count)| ([rpc.name(), FAILURE, reason], count));
        to.numbers(&families::REQUESTS, ok.filter(|(_, count)| *count > 0).chain(failed));
        to.numbers(&families::DENIALS, all(&self.denied).map(|(reason, count)| ([reason], count)));
    }
}

/// An RPC, by its place in the table of paths.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Rpc(u8);

/// The label and the path of each RPC. The first is the most frequent one.
const PATHS: [(&str, &str); 16] = [
    ("GetCredential", "/credbroker.v1.CredentialBroker/GetCredential"),
    ("WatchCredential", "/credbroker.v1.CredentialBroker/WatchCredential"),
    ("AttendCredential", "/credbroker.v1alpha1.CredentialBrokerLogin/AttendCredential"),
    ("DepositOutput", "/credbroker.v1alpha1.CredentialBrokerLogin/DepositOutput"),
    ("WatchCredentials", "/credbroker.v1.CredentialBroker/WatchCredentials"),
    ("ReportRejected", "/credbroker.v1.CredentialBroker/ReportRejected"),
    ("ListClusters", "/credbroker.v1.CredentialBroker/ListClusters"),
    ("WatchClusters", "/credbroker.v1.CredentialBroker/WatchClusters"),
    ("ListCredentials", "/credbroker.v1alpha1.CredentialBrokerAdmin/ListCredentials"),
    ("RefreshCredentials", "/credbroker.v1alpha1.CredentialBrokerAdmin/RefreshCredentials"),
    ("EvictCredentials", "/credbroker.v1alpha1.CredentialBrokerAdmin/EvictCredentials"),
    ("ListProviders", "/credbroker.v1alpha1.CredentialBrokerAdmin/ListProviders"),
    ("GetBrokerInfo", "/credbroker.v1alpha1.CredentialBrokerAdmin/GetBrokerInfo"),
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
