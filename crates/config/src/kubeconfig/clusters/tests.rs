use credbroker_test_support::private_directory;

use super::*;
use crate::read_kubeconfig;

fn kubeconfig(text: &str) -> Kubeconfig {
    let dir = private_directory();
    let path = dir.path().join("config");
    credbroker_test_support::private_file(&path, text);
    read_kubeconfig(&[path], Mode::Named).unwrap()
}

const TEXT: &str = "
clusters:
- {name: paris, cluster: {server: https://paris, tls-server-name: p}}
- {name: nowhere, cluster: {}}
contexts:
- {name: p, context: {cluster: paris, user: u}}
- {name: lost, context: {cluster: rome, user: u}}
- {name: bad, context: {cluster: nowhere, user: u}}
";

#[test]
fn a_context_has_the_cluster_that_it_names() {
    let cluster = kubeconfig(TEXT).cluster_of("p").unwrap();
    assert_eq!((cluster.server.as_str(), cluster.tls_server_name.as_str()), ("https://paris", "p"));
}

#[test]
fn a_context_without_a_usable_cluster_is_an_error_that_says_why() {
    let kubeconfig = kubeconfig(TEXT);
    let error = |context| kubeconfig.cluster_of(context).unwrap_err().to_string();
    let unknown = "the kubeconfig has no context `paris`; its contexts are: p, lost, bad";
    assert_eq!(error("paris"), unknown);
    assert_eq!(error("lost"), "context `lost` names no cluster that the kubeconfig defines");
    assert!(error("bad").ends_with("cluster `nowhere` has no `server`"), "{}", error("bad"));
}
