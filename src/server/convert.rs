//! Wire messages to domain values and back.

use std::time::{Duration, SystemTime};

use credbroker_proto::v1 as pb;
use prost_types::Timestamp;
use tonic::Status;

use super::status;
use crate::{
    credential::Cluster,
    plugin::{Origin, ProfileName, ProviderRef},
    resolver::{CredentialRequest, Source},
};

/// What a caller asks for.
pub(super) fn ask(
    reference: Option<pb::CredentialRef>,
    origin: Origin,
) -> Result<CredentialRequest, Status> {
    let Some(pb::CredentialRef { source: Some(source), cluster, env }) = reference else {
        return Err(status::invalid("the request names no credential: set `credential.provider`"));
    };
    let source = match source {
        pb::credential_ref::Source::Provider(name) if name.is_empty() => {
            return Err(status::invalid("`credential.provider` is empty"));
        }
        pb::credential_ref::Source::Provider(name) => Source::Provider(ProviderRef::named(name)),
        pb::credential_ref::Source::ClusterProfile(profile) => {
            if profile.namespace.is_empty() || profile.name.is_empty() {
                return Err(status::invalid("`credential.cluster_profile` needs a namespace and a name"));
            }
            Source::ClusterProfile(ProfileName::new(profile.namespace, profile.name))
        }
    };
    Ok(CredentialRequest { source, cluster: cluster.map(self::cluster), env, origin })
}

/// The name of a profile.
pub(super) fn profile(name: &ProfileName) -> pb::ClusterProfileRef {
    pb::ClusterProfileRef { namespace: name.namespace.to_string(), name: name.name.to_string() }
}

fn cluster(cluster: pb::Cluster) -> Cluster {
    let pb::Cluster {
        server,
        tls_server_name,
        insecure_skip_tls_verify,
        certificate_authority_data,
        proxy_url,
        disable_compression,
        config,
    } = cluster;
    Cluster {
        server,
        tls_server_name,
        insecure_skip_tls_verify,
        certificate_authority_data,
        proxy_url,
        disable_compression,
        config,
    }
}

pub(super) fn cluster_message(cluster: &Cluster) -> pb::Cluster {
    let Cluster {
        server,
        tls_server_name,
        insecure_skip_tls_verify,
        certificate_authority_data,
        proxy_url,
        disable_compression,
        config,
    } = cluster.clone();
    pb::Cluster {
        server,
        tls_server_name,
        insecure_skip_tls_verify,
        certificate_authority_data,
        proxy_url,
        disable_compression,
        config,
    }
}

pub(super) fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let nanos = since.subsec_nanos().cast_signed();
    Some(Timestamp { seconds: i64::try_from(since.as_secs()).ok()?, nanos })
}

pub(super) fn duration(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_survives_the_way_in_and_out() {
        let message = pb::Cluster {
            server: "https://a".into(),
            tls_server_name: "b".into(),
            insecure_skip_tls_verify: true,
            certificate_authority_data: "c".into(),
            proxy_url: "d".into(),
            disable_compression: true,
            config: r#"{"e":1}"#.into(),
        };
        assert!(cluster_message(&cluster(message.clone())) == message);
    }

    #[test]
    fn a_request_that_names_nothing_is_refused() {
        for reference in [None, Some(pb::CredentialRef::default())] {
            assert_eq!(ask(reference, Origin::Elsewhere).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
        let profile = pb::ClusterProfileRef { namespace: "fleet".into(), name: String::new() };
        let source = Some(pb::credential_ref::Source::ClusterProfile(profile));
        let status = ask(Some(pb::CredentialRef { source, ..pb::CredentialRef::default() }), Origin::Elsewhere).unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    }
}
