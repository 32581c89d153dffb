use super::super::*;
use crate::verify::tests::token;

/// A change of a good cluster, and what comes of it.
type Change = (fn(&mut Cluster), Option<&'static str>);

#[test]
fn a_cluster_that_cannot_be_checked_is_refused_for_what_is_wrong_with_it() {
    let refusal = |change: fn(&mut Cluster)| {
        let mut cluster = Cluster { server: "https://paris".into(), ..Cluster::default() };
        change(&mut cluster);
        config(&token("t"), &cluster).err()
    };
    let table: [Change; 9] = [
        (|_| {}, None),
        (|cluster| cluster.server = "HTTPS://paris:443/a/".into(), None),
        (
            |cluster| cluster.server = "http://paris".into(),
            Some("the cluster's server is not an https URL without a user"),
        ),
        (
            |cluster| cluster.server = "https://user@paris".into(),
            Some("the cluster's server is not an https URL without a user"),
        ),
        (
            |cluster| cluster.server = "paris:443".into(),
            Some("the cluster's server is not an https URL without a user"),
        ),
        (
            |cluster| cluster.insecure_skip_tls_verify = true,
            Some("the cluster's server certificate is not verified (insecure-skip-tls-verify)"),
        ),
        (
            |cluster| cluster.certificate_authority_data = "text".into(),
            Some("the cluster's certificate-authority-data has no certificate"),
        ),
        (
            |cluster| cluster.certificate_authority_data = NO_CERTIFICATE.into(),
            Some("the cluster's certificate-authority-data has no certificate"),
        ),
        (|cluster| cluster.proxy_url = "not a url".into(), Some("the cluster's proxy-url is not a URL")),
    ];
    for (index, (change, expected)) in table.into_iter().enumerate() {
        assert_eq!(refusal(change), expected, "row {index}");
    }
}

/// Not a certificate, though it is called one.
const NO_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";

#[test]
fn only_a_cluster_without_a_bundle_is_checked_against_the_systems_authorities() {
    assert_eq!(authorities(b""), Ok(None));
    assert_eq!(authorities(b" \n"), Err("the cluster's certificate-authority-data has no certificate"));
}

#[test]
fn a_token_is_marked_as_a_secret_and_an_anonymous_request_is_not_sent() {
    let request = review(&token("canary")).unwrap();
    assert!(!format!("{request:?}").contains("canary"), "{request:?}");
    let anonymous =
        Issued { encoded: credbroker_credential::EncodedCredential::default(), ..(*token("t")).clone() };
    assert_eq!(review(&anonymous).err(), Some(NO_CREDENTIAL));
}
