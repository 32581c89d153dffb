//! More credentials than fit into one message.

use std::collections::BTreeSet;

use credbroker_client::admin::Selector;
use credbroker_proto::v1alpha1::{
    CredentialState, ListCredentialsRequest, credential_broker_admin_client::CredentialBrokerAdminClient,
};
use prost::Message as _;
use serde_json::json;
use tokio::task::JoinSet;
use tonic::Code;

use crate::harness::{InProcess, reference};

/// Each has a message of 2 KiB: together more than a page.
const KEYS: usize = 600;
const AT_ONCE: usize = 50;

#[tokio::test]
async fn the_states_of_many_failing_keys_come_in_pages_to_every_client() {
    let stanza = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/bin/sh",
        "args": ["-c", "printf '%02048d' 0 >&2; exit 1"],
        "interactiveMode": "Never",
    });
    let provider =
        json!({"name": "cloud", "issuer": "fast", "callerEnv": ["AWS_PROFILE"], "execConfig": stanza});
    let issuer = json!({"name": "fast", "runsPerSecond": 1000, "concurrency": 8});
    let broker = InProcess::with(json!({"providers": [provider], "issuers": [issuer]}), &[]);
    let client = broker.client().await;
    for batch in (0..KEYS).collect::<Vec<_>>().chunks(AT_ONCE) {
        let asks: JoinSet<_> = batch
            .iter()
            .map(|key| {
                let (client, key) = (client.clone(), key.to_string());
                async move { client.credential(&reference("cloud", None, &[("AWS_PROFILE", &key)])).await }
            })
            .collect();
        assert!(asks.join_all().await.iter().all(Result::is_err));
    }
    let listed = client.admin().credentials(&Selector::Provider("cloud".into())).await.unwrap();
    assert_eq!(listed.len(), KEYS);
    assert!(listed.is_sorted_by(|a, b| a.id < b.id));
    assert_eq!(client.admin().credentials(&Selector::All).await.unwrap().len(), KEYS);

    let mut client = CredentialBrokerAdminClient::new(broker.channel().await);
    let (mut keys, mut pages, mut page_token) = (BTreeSet::new(), 0, None);
    loop {
        let list = ListCredentialsRequest { page_token, ..Default::default() };
        let page = client.list_credentials(list).await.unwrap().into_inner();
        let size: usize = page.credentials.iter().map(CredentialState::encoded_len).sum();
        assert!(size <= 256 * 1024, "{size}");
        keys.extend(page.credentials.into_iter().map(|state| state.id));
        (page_token, pages) = (page.next_page_token, pages + 1);
        if page_token.is_none() {
            break;
        }
    }
    assert_eq!(keys.len(), KEYS);
    assert!(pages > 4, "{pages}");
    let wrong = ListCredentialsRequest { page_token: Some("x".into()), ..Default::default() };
    assert_eq!(client.list_credentials(wrong).await.unwrap_err().code(), Code::InvalidArgument);
}
