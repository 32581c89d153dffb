//! Wire messages to domain values and back.

use std::time::{Duration, SystemTime};

use credbroker_proto::v1 as pb;
use prost_types::Timestamp;
use secrecy::ExposeSecret as _;
use tonic::Status;

use super::status;
use crate::{
    credential::{Cluster, Issued},
    plugin::{Ask, PluginSpec, ProfileName, Source},
};

/// What a caller asks for.
pub(super) fn ask(reference: Option<pb::CredentialRef>) -> Result<Ask, Status> {
    let Some(pb::CredentialRef { source: Some(source), cluster, env }) = reference else {
        return Err(status::invalid("the request names no credential: set `credential.provider`"));
    };
    let source = match source {
        pb::credential_ref::Source::Provider(name) if name.is_empty() => {
            return Err(status::invalid("`credential.provider` is empty"));
        }
        pb::credential_ref::Source::Provider(name) => Source::Provider(name),
        pb::credential_ref::Source::ClusterProfile(profile) => {
            if profile.namespace.is_empty() || profile.name.is_empty() {
                return Err(status::invalid("`credential.cluster_profile` needs a namespace and a name"));
            }
            Source::ClusterProfile(ProfileName::new(profile.namespace, profile.name))
        }
    };
    Ok(Ask { source, cluster: cluster.map(self::cluster), env })
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

/// Where the credential of `spec` is for, as far as that is known.
pub(super) fn cluster_of(spec: &PluginSpec) -> Option<pb::Cluster> {
    let endpoint = spec.target.as_ref().map(|target| &*target.endpoint);
    endpoint.or(spec.cluster.as_deref()).map(cluster_message)
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

/// The credential as it goes out.
pub(super) fn credential(issued: &Issued) -> pb::Credential {
    let material = &issued.material;
    let token = material.token.as_ref().map(|token| token.secret.expose_secret().to_owned());
    let pair = material.pair.as_ref();
    pb::Credential {
        generation: issued.generation.to_string(),
        token: token.unwrap_or_default(),
        client_certificate_data: pair.map(|pair| pair.chain_pem.expose_secret().to_vec()).unwrap_or_default(),
        client_key_data: pair.map(|pair| pair.key_pem.expose_secret().to_vec()).unwrap_or_default(),
        expiration_timestamp: timestamp(issued.expires_at),
        certificate_fingerprint: pair.map(|pair| pair.fingerprint.to_string()).unwrap_or_default(),
        lifetime: duration(issued.lifetime),
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
    use std::sync::Arc;

    use super::*;
    use crate::credential::{ClientPair, Fingerprint, Generation, Material, Now, Token};

    #[test]
    fn every_field_of_a_credential_goes_out() {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let pair = ClientPair {
            chain_pem: b"chain".to_vec().into(),
            key_pem: b"key".to_vec().into(),
            fingerprint: Fingerprint([0xab; 32]),
            not_before: wall,
            not_after: wall,
        };
        let token = Token { secret: "token".into(), expires_at: None };
        let issued = Issued {
            generation: Generation::new("e".into(), 3),
            material: Arc::new(Material { token: Some(token), pair: Some(pair) }),
            fetched: Now { wall, boot: Duration::ZERO },
            expires_at: wall + Duration::from_millis(60_500),
            lifetime: Duration::from_millis(60_500),
            within_skew: false,
        };
        let expected = pb::Credential {
            generation: "e-3".into(),
            token: "token".into(),
            client_certificate_data: b"chain".to_vec(),
            client_key_data: b"key".to_vec(),
            expiration_timestamp: Some(Timestamp { seconds: 1_060, nanos: 500_000_000 }),
            certificate_fingerprint: "ab".repeat(32),
            lifetime: Some(prost_types::Duration { seconds: 60, nanos: 500_000_000 }),
        };
        assert!(credential(&issued) == expected);
    }

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
            assert_eq!(ask(reference).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
        let profile = pb::ClusterProfileRef { namespace: "fleet".into(), name: String::new() };
        let source = Some(pb::credential_ref::Source::ClusterProfile(profile));
        let status = ask(Some(pb::CredentialRef { source, ..pb::CredentialRef::default() })).unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    }
}
