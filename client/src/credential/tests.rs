use super::*;
use crate::clock::tests::paused;

fn received(token: &str, chain: &str, key: &str) -> Result<Credential, Error> {
    let credential = v1::Credential {
        generation: "g1".into(),
        token: Some(token.into()),
        client_certificate_data: Some(chain.into()),
        client_key_data: Some(key.into()),
        ..v1::Credential::default()
    };
    Credential::receive(credential, None, paused())
}

#[tokio::test]
async fn a_token_is_sent_as_a_sensitive_header_and_shown_nowhere() {
    let credential = received("c4n4ry", "c4n4ry", "c4n4ry").unwrap();
    let mut headers = HeaderMap::new();
    credential.authorize(&mut headers);
    assert_eq!(headers[AUTHORIZATION], "Bearer c4n4ry");
    assert!(headers[AUTHORIZATION].is_sensitive());
    let text = format!("{credential:?} {credential:#?} {headers:?}");
    assert!(!text.contains("c4n4ry") && text.contains("g1"), "{text}");
}

#[tokio::test]
async fn an_unusable_credential_is_refused_and_not_shown() {
    for (token, chain, key) in [("", "", ""), ("c4n4ry\n", "", ""), ("", "c4n4ry", ""), ("t", "", "c4n4ry")] {
        let error = received(token, chain, key).unwrap_err();
        assert!(matches!(error, Error::Unusable { .. }) && !format!("{error:?}").contains("c4n4ry"));
    }
    assert!(received("", "chain", "key").unwrap().token().is_none());
}

#[tokio::test]
async fn credentials_are_compared_by_the_endpoint_that_they_came_with() {
    let at = |server: &str, config: &'static str| {
        let config = Some(config.into());
        let cluster = v1::Cluster { server: server.into(), config, ..v1::Cluster::default() };
        let token = v1::Credential { token: Some("t".into()), ..v1::Credential::default() };
        Credential::receive(token, Some(cluster), paused()).unwrap()
    };
    let here = at("https://a", "");
    assert!(at("https://a", "{}").has_same_endpoint(&here));
    assert!(!at("https://b", "").has_same_endpoint(&here));
    let nowhere = received("t", "", "").unwrap();
    assert!(nowhere.has_same_endpoint(&nowhere) && !nowhere.has_same_endpoint(&here));
}
