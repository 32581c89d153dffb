use super::*;

fn full() -> Cluster {
    Cluster {
        server: "https://a".into(),
        tls_server_name: Some("b".into()),
        insecure_skip_tls_verify: true,
        certificate_authority_data: Some(b"c".to_vec()),
        proxy_url: Some("http://u:c4n4ry@d".into()),
        disable_compression: true,
        config: Some(b"{\"c4n4ry\":1}".to_vec()),
    }
}

#[test]
fn every_field_is_sent_and_received() {
    for cluster in [full(), Cluster::at("https://a")] {
        assert_eq!(Cluster::from_message(cluster.clone().into_message()), cluster);
    }
    let text = format!("{:?} {:#?}", full(), full());
    assert!(text.contains("https://a") && !text.contains("c4n4ry"), "{text}");
}

#[test]
fn an_endpoint_is_where_requests_go_and_whom_they_trust() {
    let here = Cluster::at("https://a");
    let changes: [fn(&mut Cluster); 5] = [
        |cluster| cluster.server = "https://b".into(),
        |cluster| cluster.tls_server_name = Some("b".into()),
        |cluster| cluster.insecure_skip_tls_verify = true,
        |cluster| cluster.certificate_authority_data = Some(b"b".to_vec()),
        |cluster| cluster.proxy_url = Some("http://b".into()),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut there = here.clone();
        change(&mut there);
        assert!(!there.has_same_endpoint(&here), "change {index}");
    }
    let annotated = Cluster { config: Some(b"{}".to_vec()), disable_compression: true, ..here.clone() };
    assert!(annotated.has_same_endpoint(&here));
}
