use std::time::Duration;

use credbroker_test_support::{Accepts, ApiServer};

use super::*;

fn applied(plaintext: bool, change: impl FnOnce(&mut Cluster)) -> Result<Config, BuildError> {
    let mut cluster = Cluster::at("https://paris.example:6443/prefix");
    change(&mut cluster);
    let mut config = Config::new(Uri::from_static("https://elsewhere.example"));
    config.tls_server_name = Some("elsewhere".into());
    config.proxy_url = Some(Uri::from_static("http://elsewhere.example"));
    config.root_cert_file = Some("/elsewhere".into());
    config.accept_invalid_certs = true;
    config.read_timeout = Some(Duration::from_secs(7));
    apply(&cluster, &mut config, plaintext)?;
    Ok(config)
}

#[test]
fn the_endpoint_is_replaced_and_other_settings_stay() {
    let bare = applied(false, |_| {}).unwrap();
    assert_eq!(bare.cluster_url, "https://paris.example:6443/prefix");
    assert!(bare.root_cert.is_none() && bare.root_cert_file.is_none() && !bare.accept_invalid_certs);
    assert!(bare.tls_server_name.is_none() && bare.proxy_url.is_none());
    assert_eq!(bare.read_timeout, Some(Duration::from_secs(7)));

    let authority = ApiServer::start(Accepts::Tokens).ca_pem();
    let full = applied(false, |cluster| {
        cluster.tls_server_name = Some("inside".into());
        cluster.certificate_authority_data = Some(authority.repeat(2).into());
        cluster.proxy_url = Some("socks5://proxy.example:1080".into());
        cluster.disable_compression = true;
    })
    .unwrap();
    assert_eq!(full.tls_server_name.as_deref(), Some("inside"));
    assert_eq!(full.root_cert.unwrap().len(), 2);
    assert_eq!(full.proxy_url.unwrap(), "socks5://proxy.example:1080");
    assert!(full.disable_compression);
    assert!(applied(false, |cluster| cluster.insecure_skip_tls_verify = true).unwrap().accept_invalid_certs);
}

#[test]
fn an_unusable_endpoint_is_refused_with_the_reason() {
    for server in ["", "paris.example", "/version", "ftp://paris.example", "https://", "https://:6443"] {
        let error = applied(true, |cluster| cluster.server = server.into()).unwrap_err();
        assert!(matches!(error, BuildError::Server { .. }), "{server}: {error}");
    }
    let plain = |cluster: &mut Cluster| cluster.server = "http://127.0.0.1:8001".into();
    assert!(matches!(applied(false, plain), Err(BuildError::Plaintext { .. })));
    assert_eq!(applied(true, plain).unwrap().cluster_url, "http://127.0.0.1:8001");
    for bundle in ["no PEM", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
        let outcome = applied(false, |cluster| cluster.certificate_authority_data = Some(bundle.into()));
        assert!(matches!(outcome, Err(BuildError::Authorities { .. })), "{bundle}");
    }
    let error =
        applied(false, |cluster| cluster.proxy_url = Some("http://u:c4n4ry@ proxy".into())).unwrap_err();
    assert!(matches!(error, BuildError::ProxyUrl) && !format!("{error:?}").contains("c4n4ry"));
    let authority = ApiServer::start(Accepts::Tokens).ca_pem();
    let both = applied(false, |cluster| {
        cluster.insecure_skip_tls_verify = true;
        cluster.certificate_authority_data = Some(authority.into());
    });
    assert!(matches!(both, Err(BuildError::Unchecked)));
}
