//! Many keys of one provider, distinguished by a variable of the caller.

use std::{collections::HashMap, path::Path, sync::Arc};

use anyhow::{Context, Result};
use credbroker_proto::v1::{CredentialRef, GetCredentialRequest, ProviderRef, credential_ref::Source};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::subject::Rpc;

/// The provider of the keys, and another one, whose runs have nothing to do with them.
pub(crate) const KEYS: &str = "keys";
pub(crate) const OTHER: &str = "other";
/// Runs that are asked for at a time.
const FILLING: usize = 32;

/// Prints a token of 1,000 bytes.
pub(crate) const TOKEN_PLUGIN: &str = r#"#!/bin/sh
echo run >> "${0%/*}/runs"
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%01000d"}}\n' $$
"#;

/// The providers [`KEYS`] and [`OTHER`], which run the plugin of `directory`, and issuers that do not hold them up.
/// `sections` is the rest of the configuration.
pub(crate) fn config(directory: &Path, sections: &str) -> String {
    let issuer = |name| format!("- {{name: {name}, runsPerSecond: 10000, concurrency: 4}}\n");
    format!("{}issuers:\n{}{}{sections}", providers(directory), issuer(KEYS), issuer(OTHER))
}

/// These providers, with issuers as they are without a configuration.
pub(crate) fn providers(directory: &Path) -> String {
    let plugin = directory.join("plugin");
    let provider = |name| {
        format!(
            "- name: {name}\n  execConfig: {{apiVersion: client.authentication.k8s.io/v1, command: {}, interactiveMode: Never}}\n  \
             callerEnv: [KEY]\n  unknownExpiryMaxAge: 12h\n",
            plugin.display()
        )
    };
    provider(KEYS) + &provider(OTHER)
}

pub(crate) fn request(provider: &str, key: usize) -> GetCredentialRequest {
    let env = HashMap::from([("KEY".to_owned(), key.to_string())]);
    let provider = ProviderRef { name: provider.to_owned(), definition: None };
    let source = Some(Source::Provider(provider));
    let reference = CredentialRef { source, env: env.into_iter().collect(), ..CredentialRef::default() };
    GetCredentialRequest { r#ref: Some(reference), ..GetCredentialRequest::default() }
}

/// Asks for keys of [`KEYS`] until the broker holds `count`.
pub(crate) async fn fill(rpc: &Rpc, count: usize) -> Result<()> {
    let (mut asking, places) = (JoinSet::new(), Arc::new(Semaphore::new(FILLING)));
    for key in 0..count {
        let place = Arc::clone(&places).acquire_owned().await?;
        let mut rpc = rpc.clone();
        asking.spawn(async move {
            let answer = rpc.get_credential(request(KEYS, key)).await;
            drop(place);
            answer.map(|answer| answer.into_inner().credential.is_some())
        });
    }
    while let Some(answer) = asking.join_next().await {
        answer??.then_some(()).context("an answer without a credential")?;
    }
    Ok(())
}
