use super::*;

#[test]
fn a_cluster_survives_the_way_in_and_out() {
    let message = pb::Cluster {
        server: "https://a".into(),
        tls_server_name: Some("b".into()),
        insecure_skip_tls_verify: true,
        certificate_authority_data: Some("c".into()),
        proxy_url: Some("d".into()),
        disable_compression: true,
        config: Some(r#"{"e":1}"#.into()),
    };
    assert!(cluster_message(&cluster(message.clone())) == message);
    let bare = pb::Cluster { server: "https://a".into(), ..pb::Cluster::default() };
    assert!(cluster_message(&cluster(bare.clone())) == bare);
}

#[test]
fn a_request_that_names_nothing_is_refused() {
    for reference in [None, Some(pb::CredentialRef::default())] {
        assert_eq!(
            ask(reference, &Access::of_the_owner(), Verb::Get).unwrap_err().code(),
            tonic::Code::InvalidArgument
        );
    }
    let profile = pb::ClusterProfileRef { namespace: "fleet".into(), name: String::new() };
    let source = Some(pb::credential_ref::Source::ClusterProfile(profile));
    let reference = Some(pb::CredentialRef { source, ..pb::CredentialRef::default() });
    let status = ask(reference, &Access::of_the_owner(), Verb::Get).unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
}
