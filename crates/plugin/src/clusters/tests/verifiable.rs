use bytes::Bytes;

use super::super::*;
use crate::{Command, ProfileName, testing::provider as bare};

/// Description, known clusters, cluster that the caller sent, cluster to ask.
type Example<'a> = (&'a str, &'a [Cluster], Option<&'a Cluster>, Option<&'a Cluster>);

fn cluster(server: &str) -> Cluster {
    Cluster {
        server: server.into(),
        tls_server_name: "name".into(),
        certificate_authority_data: Bytes::from_static(b"CA\n"),
        ..Cluster::default()
    }
}

fn provider(clusters: &[Cluster]) -> Provider {
    Provider { clusters: clusters.to_vec(), ..bare("p", Command::Name("x".into())) }
}

fn target(provider: &Provider, endpoint: Cluster) -> Arc<Target> {
    let profile = ProfileName::new("fleet", "paris");
    let provider = Arc::new(provider.clone());
    Arc::new(Target::new(profile, Arc::clone(&provider), provider, Arc::new(endpoint)))
}

fn with(change: impl FnOnce(&mut Cluster)) -> Cluster {
    let mut cluster = cluster("https://paris");
    change(&mut cluster);
    cluster
}

#[test]
fn a_provider_is_verified_at_the_cluster_that_is_meant_if_the_broker_knows_it() {
    let (paris, tokyo) = (cluster("https://paris"), cluster("https://tokyo"));
    let other_audience = with(|c| c.config = r#"{"audience":"a"}"#.into());
    let uncompressed = with(|c| c.disable_compression = true);
    let slash = with(|c| c.server.push('/'));
    let other_authority = with(|c| c.certificate_authority_data = "other".into());
    let other_name = with(|c| c.tls_server_name = "other".into());
    let other_proxy = with(|c| c.proxy_url = "http://proxy".into());
    let unchecked = with(|c| c.insecure_skip_tls_verify = true);
    let only_server = Cluster { server: "https://paris".into(), ..Cluster::default() };
    let nothing = Cluster::default();
    let (one, two) = (std::slice::from_ref(&paris), &[tokyo.clone(), paris.clone()][..]);

    let table: [Example<'_>; 18] = [
        ("none is known", &[], None, None),
        ("none is known, and one is named", &[], Some(&paris), None),
        ("the only one", one, None, Some(&paris)),
        ("one of two, unnamed", two, None, None),
        ("one of two, named", two, Some(&paris), Some(&paris)),
        ("the only one, named", one, Some(&paris), Some(&paris)),
        ("named by its server alone", two, Some(&only_server), Some(&paris)),
        ("another than the only one", one, Some(&tokyo), None),
        ("with the caller's own authority", one, Some(&other_authority), None),
        ("with the caller's own TLS name", one, Some(&other_name), None),
        ("with the caller's own extension", one, Some(&other_audience), None),
        ("with the caller's own proxy, which is not used", one, Some(&other_proxy), Some(&paris)),
        ("unchecked by the caller, checked by us", one, Some(&unchecked), Some(&paris)),
        ("without a server", one, Some(&nothing), None),
        (
            "one place under several names",
            &[paris.clone(), slash, uncompressed, other_audience.clone()],
            None,
            Some(&paris),
        ),
        ("two authorities", &[paris.clone(), other_authority.clone()], Some(&only_server), None),
        ("two TLS names", &[paris.clone(), other_name.clone()], Some(&only_server), None),
        ("two proxies", &[paris.clone(), other_proxy.clone()], Some(&paris), None),
    ];
    for (name, known, sent, expected) in table {
        let found = verifiable_at(&provider(known), None, sent);
        assert_eq!(found.as_deref(), expected, "{name}");
    }
    assert_eq!(verifiable_at(&provider(&[paris, unchecked]), None, None), None, "checked and unchecked");
}

#[test]
fn a_profile_is_verified_at_its_endpoint_alone() {
    let (paris, tokyo) = (cluster("https://paris"), cluster("https://tokyo"));
    let provider = provider(std::slice::from_ref(&tokyo));
    let target = target(&provider, paris.clone());
    let at = |sent: Option<&Cluster>| verifiable_at(&provider, Some(&target), sent);
    assert_eq!(at(None).as_deref(), Some(&paris));
    assert_eq!(at(Some(&paris)).as_deref(), Some(&paris));
    assert_eq!(at(Some(&tokyo)), None, "known, but not the profile's");
}

#[test]
fn verify_never_asks_no_server() {
    let paris = cluster("https://paris");
    let provider = Provider { verify: false, ..provider(std::slice::from_ref(&paris)) };
    assert_eq!(verifiable_at(&provider, None, None), None);
    assert_eq!(verifiable_at(&provider, None, Some(&paris)), None);
    assert_eq!(verifiable_at(&provider, Some(&target(&provider, paris.clone())), None), None);
}
