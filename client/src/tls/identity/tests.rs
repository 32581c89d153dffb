use std::time::Duration;

use credbroker_proto::v1;
use credbroker_test_support::{Accepts, ApiServer};
use rustls::crypto::aws_lc_rs::default_provider;

use super::*;
use crate::{clock::tests::paused, credential::Credential};

fn parse(chain: &str, key: &str) -> Result<Identity, IdentityError> {
    let received = v1::Credential {
        client_certificate_data: Some(chain.into()),
        client_key_data: Some(key.into()),
        ..v1::Credential::default()
    };
    let credential = Credential::receive(received, None, paused()).unwrap();
    Identity::parse(credential.identity().unwrap(), &default_provider())
}

#[tokio::test]
async fn identities_are_compared_by_the_content_of_their_pem() {
    let server = ApiServer::start(Accepts::Certificates);
    let (chain, key) = server.issue_client_certificate("dev", Duration::from_secs(60));
    let (other_chain, other_key) = server.issue_client_certificate("dev", Duration::from_secs(60));
    let identity = parse(&chain, &key).unwrap();
    let commented = format!("a comment\n{}\n", chain.replace('\n', "\r\n"));
    let mislabelled = key.replace("PRIVATE KEY", "EC PRIVATE KEY");
    assert_eq!(identity, parse(&commented, &mislabelled).unwrap());
    assert_ne!(identity, parse(&other_chain, &other_key).unwrap());
    assert_ne!(identity, parse(&format!("{chain}{other_chain}"), &key).unwrap(), "another chain");
}

#[tokio::test]
async fn a_pair_that_rustls_cannot_use_is_refused_with_the_reason() {
    let compressed = include_str!("../fixtures/compressed-point.crt.pem");
    let key = include_str!("../fixtures/p256-sec1.key.pem");
    parse(compressed, key).unwrap();
    for label in ["PRIVATE KEY", "RSA PRIVATE KEY", "ANY PRIVATE KEY", "ECDSA PRIVATE KEY"] {
        let relabelled = key.replace("EC PRIVATE KEY", label);
        assert_eq!(parse(compressed, &relabelled).unwrap(), parse(compressed, key).unwrap(), "{label}");
    }
    let pss = (include_str!("../fixtures/rsapss.crt.pem"), include_str!("../fixtures/rsapss.key.pem"));
    assert_eq!(parse(pss.0, pss.1).unwrap_err(), IdentityError::Key);
    insta::assert_snapshot!(IdentityError::Key, @"rustls cannot sign with the client key; have the plugin issue an RSA key of 2048 bits or more, an ECDSA key on P-256, P-384 or P-521, or an Ed25519 key");
}

#[tokio::test]
async fn a_pair_that_is_incomplete_is_refused_with_the_reason() {
    let server = ApiServer::start(Accepts::Certificates);
    let (chain, key) = server.issue_client_certificate("dev", Duration::from_secs(60));
    let odd = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (chain, key, expected) in [
        (chain.as_str(), chain.as_str(), IdentityError::NoKey),
        (chain.as_str(), odd, IdentityError::Key),
        (key.as_str(), key.as_str(), IdentityError::NoCertificate),
    ] {
        assert_eq!(parse(chain, key).unwrap_err(), expected);
    }
}

#[tokio::test]
async fn a_pair_is_not_checked_a_second_time() {
    let server = ApiServer::start(Accepts::Certificates);
    let (chain, _) = server.issue_client_certificate("dev", Duration::from_secs(60));
    let (_, other) = server.issue_client_certificate("dev", Duration::from_secs(60));
    parse(&chain, &other).unwrap();
}
