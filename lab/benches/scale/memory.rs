//! What the broker holds: idle, and for a key.

use std::{fs, path::Path, time::Duration};

use anyhow::Result;
use credbroker_lab::{
    broker,
    memory::{self, kib},
    report::{Report, figure, section},
};
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256};
use tokio::time::sleep;

use crate::{
    callers,
    keys::{self, TOKEN_PLUGIN, fill},
    subject::Subject,
};

const IDLE_LIMIT: u64 = 1_200_000;
const FIRST: usize = 200;
const TOKENS: usize = 5_000;
const PAIRS: usize = 1_000;
const TOKEN_LIMIT: u64 = 4 * 1024;
const PAIR_LIMIT: u64 = 12 * 1024;
/// Certificates in the chain of a pair.
const CHAIN: usize = 3;

pub(crate) async fn measure(report: &mut Report, directory: &Path) -> Result<()> {
    fs::create_dir(directory)?;
    section("Memory: VmRSS of the broker");
    idle(report, &directory.join("idle")).await?;

    let tokens = directory.join("tokens");
    let subject = Subject::start(&tokens, TOKEN_PLUGIN, &keys::config(&tokens, "")).await?;
    let each = filled(&subject, TOKENS).await?;
    report.limited("a key with a token of 1,000 bytes", &kib(each), &kib(TOKEN_LIMIT), each <= TOKEN_LIMIT);
    callers::measure(report, &subject).await?;

    let pairs = directory.join("pairs");
    let subject = Subject::start(&pairs, PAIR_PLUGIN, &keys::config(&pairs, "")).await?;
    let document = pair()?;
    figure("a certificate chain and its key, in PEM", &format!("{} bytes", document.1));
    fs::write(pairs.join("document"), document.0)?;
    let each = filled(&subject, PAIRS).await?;
    report.limited("a key with them", &kib(each), &kib(PAIR_LIMIT), each <= PAIR_LIMIT);
    Ok(())
}

async fn idle(report: &mut Report, directory: &Path) -> Result<()> {
    broker::private(directory)?;
    let running = broker::start(directory, TOKEN_PLUGIN, "")?;
    sleep(Duration::from_secs(2)).await;
    figure("idle, before its first client", &kib(memory::resident(running.child.id())?));
    let anonymous = memory::anonymous(running.child.id())?;
    report.limited("anonymous memory of it", &kib(anonymous), &kib(IDLE_LIMIT), anonymous <= IDLE_LIMIT);
    Ok(())
}

/// Bytes of each of `count` keys. What is there once is there after the first ones.
async fn filled(subject: &Subject, count: usize) -> Result<u64> {
    fill(&subject.rpc, FIRST).await?;
    let before = subject.resident()?;
    fill(&subject.rpc, FIRST + count).await?;
    Ok(subject.resident()?.saturating_sub(before) / count as u64)
}

const PAIR_PLUGIN: &str = "#!/bin/sh\necho run >> \"${0%/*}/runs\"\nexec cat \"${0%/*}/document\"\n";

/// What the plugin prints, and the bytes of the PEM in it.
fn pair() -> Result<(String, usize)> {
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256)?;
    let certificate = CertificateParams::new(vec!["client.example".to_owned()])?.self_signed(&key)?.pem();
    let (chain, key) = (certificate.repeat(CHAIN), key.serialize_pem());
    let bytes = chain.len() + key.len();
    let status = serde_json::json!({"clientCertificateData": chain, "clientKeyData": key});
    let document = serde_json::json!({
        "kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status,
    });
    Ok((document.to_string(), bytes))
}
