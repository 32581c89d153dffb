use clap::Parser;
use credbroker_test_support::{private_directory, private_file};

use super::super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: ClusterArgs,
}

fn read(line: &[&str]) -> anyhow::Result<Option<Cluster>> {
    let line = Line::try_parse_from([&["get"], line].concat())?;
    line.args.read(&Environment::default())
}

#[test]
fn every_field_has_a_flag() {
    let dir = private_directory();
    let authorities = dir.path().join("ca.pem");
    private_file(&authorities, "pem");
    let line = [
        "--server=https://a",
        "--tls-server-name=b",
        "--insecure-skip-tls-verify",
        "--proxy-url=http://d",
        "--disable-compression",
        "--exec-config={\"e\":1}",
        "--certificate-authority",
        authorities.to_str().unwrap(),
    ];
    let mut expected = Cluster::at("https://a");
    expected.tls_server_name = Some("b".into());
    expected.insecure_skip_tls_verify = true;
    expected.certificate_authority_data = Some(b"pem".to_vec());
    expected.proxy_url = Some("http://d".into());
    expected.disable_compression = true;
    expected.config = Some(b"{\"e\":1}".to_vec());
    assert_eq!(read(&line).unwrap(), Some(expected));
    assert_eq!(read(&[]).unwrap(), None);
    assert_eq!(read(&["--server=https://a"]).unwrap(), Some(Cluster::at("https://a")));
}

#[test]
fn a_context_has_every_field_too() {
    let dir = private_directory();
    let path = dir.path().join("config");
    private_file(
        &path,
        "clusters: [{name: c, cluster: {server: https://a, tls-server-name: b, insecure-skip-tls-verify: true, \
         certificate-authority-data: cGVt, proxy-url: http://d, disable-compression: true, extensions: \
         [{name: client.authentication.k8s.io/exec, extension: {e: 1}}]}}]\n\
         contexts: [{name: x, context: {cluster: c, user: u}}]\n",
    );
    let cluster = read(&["--context=x", "--kubeconfig", path.to_str().unwrap()]).unwrap().unwrap();
    assert_eq!((cluster.server.as_str(), cluster.tls_server_name.as_deref()), ("https://a", Some("b")));
    assert!(cluster.insecure_skip_tls_verify && cluster.disable_compression);
    assert_eq!(cluster.certificate_authority_data.as_deref(), Some(&b"pem"[..]));
    assert_eq!(cluster.proxy_url.as_deref(), Some("http://d"));
    assert_eq!(cluster.config.as_deref(), Some(&br#"{"e":1}"#[..]));
}

#[test]
fn flags_without_a_server_and_unknown_contexts_are_refused() {
    for line in [
        &["--tls-server-name=b"][..],
        &["--kubeconfig=/k"],
        &["--server=a", "--context=b"],
        &["--context=b", "--kubeconfig=/nonexistent"],
        &["--server=a", "--certificate-authority=/nonexistent"],
    ] {
        assert!(read(line).is_err(), "{line:?}");
    }
}
