//! The caller's environment chooses the identity, the broker's never does.

use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, Kubeconfig};

use super::{Kubectl, newest_api_version, stdout};
use crate::programs::{broker, shim_stanza};

#[test]
fn a_caller_gets_its_profile_and_never_that_of_the_broker() {
    let server = ApiServer::start(Accepts::Tokens);
    for token in ["aws-", "aws-dev", "aws-prod"] {
        server.accept_token(token);
    }
    let plugin = FakePlugin::builder().token_from_shell("aws-$AWS_PROFILE").expires_in(3600).build();
    let plain = Kubectl::new();
    let original = plain.dir().join("original");
    Kubeconfig::for_server(&server, "eks", &plugin.exec_stanza()).write(&original);
    let broker = Broker::builder(broker()).kubeconfig(&original).env("AWS_PROFILE", "prod").start();
    let kubeconfig = plain.dir().join("config");
    let stanza = shim_stanza(newest_api_version(), "eks", &broker.socket());
    Kubeconfig::for_server(&server, "eks", &stanza).write(&kubeconfig);
    let dev = Kubectl::new().env("AWS_PROFILE", "dev");

    for (caller, token) in [(&plain, "aws-"), (&dev, "aws-dev"), (&plain, "aws-"), (&dev, "aws-dev")] {
        server.forget_requests();
        stdout(&caller.run(&kubeconfig, &["get", "pods"]));
        assert_eq!(server.seen_tokens(), [token]);
    }
    assert_eq!(plugin.runs(), 2);
}
