use super::*;

const PARIS: &str = "https://paris.example:6443/prefix";

fn policy(server: Option<&str>) -> Policy {
    Policy { server: server.map(|server| Destination::parse(server).unwrap()), ..Policy::default() }
}

fn check(policy: &Policy, uri: &'static str, cluster: Option<&str>) -> &'static str {
    let mut cluster = cluster.map(Cluster::at);
    if let Some(cluster) = &mut cluster {
        // It says how the server proves its name, not where it is.
        cluster.tls_server_name = Some("evil.example".into());
    }
    match policy.check_cluster(&Uri::from_static(uri), cluster.as_ref()) {
        Ok(()) => "sent",
        Err(Refusal::OtherCluster { .. }) => "other cluster",
        Err(Refusal::UnknownCluster { .. }) => "unknown cluster",
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_credential_is_sent_to_its_own_cluster_only() {
    let policy = policy(None);
    for (uri, expected) in [
        ("https://paris.example:6443/version", "sent"),
        ("https://PARIS.example.:6443/", "sent"),
        ("https://paris.example/version", "other cluster"),
        ("http://paris.example:6443/version", "other cluster"),
        ("https://evil.example:6443/version", "other cluster"),
        ("/version", "other cluster"),
    ] {
        assert_eq!(check(&policy, uri, Some(PARIS)), expected, "{uri}");
    }
}

#[test]
fn a_credential_without_a_cluster_is_sent_to_the_named_server_only() {
    assert_eq!(check(&policy(None), PARIS, None), "unknown cluster");
    assert_eq!(check(&policy(Some(PARIS)), PARIS, None), "sent");
    assert_eq!(check(&policy(Some(PARIS)), "https://evil.example", None), "other cluster");
}

#[test]
fn the_cluster_of_the_credential_wins_over_the_named_server() {
    let lyon = Some("https://lyon.example");
    assert_eq!(check(&policy(Some(PARIS)), PARIS, lyon), "other cluster");
    assert_eq!(check(&policy(Some(PARIS)), "https://lyon.example", lyon), "sent");
}

#[test]
fn a_cluster_whose_url_is_not_valid_gets_nothing() {
    for server in ["", "paris.example", "https://", "not a url"] {
        assert_eq!(check(&policy(Some(PARIS)), PARIS, Some(server)), "unknown cluster", "{server}");
    }
}

#[test]
fn any_host_is_every_server() {
    let policy = Policy { any_host: true, ..Policy::default() };
    assert_eq!(check(&policy, "https://evil.example", Some(PARIS)), "sent");
    assert_eq!(check(&policy, "https://evil.example", None), "sent");
}
