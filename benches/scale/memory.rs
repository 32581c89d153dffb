//! What the broker holds: idle, for a key, and for a caller.

use std::{fs, path::Path, time::Duration};

use anyhow::Result;
use credbroker_proto::v1::ExecPluginCaller;
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256};
use tokio::time::sleep;

use crate::{
    broker,
    keys::{self, KEYS, TOKEN_PLUGIN, fill, request},
    process_memory::{self, kib},
    report::{Report, figure, section},
    subject::Subject,
};

const IDLE_LIMIT: u64 = 10_000_000;
const FIRST: usize = 200;
const TOKENS: usize = 5_000;
const PAIRS: usize = 1_000;
const TOKEN_LIMIT: u64 = 4 * 1024;
const PAIR_LIMIT: u64 = 12 * 1024;
const CALLERS: (usize, usize) = (100, 1_000);
/// 16 bytes, and a tenth for the allocator.
const CALLER_LIMIT: f64 = 17.6;
/// Bytes of a name that is as long as it may be, and how many there are.
const HOSTILE: (usize, usize) = (250 * 1024, 200);
const HOSTILE_LIMIT: u64 = 512 * 1024;
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
    callers(report, &subject).await?;

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
    let resident = process_memory::resident(running.child.id())?;
    report.limited("idle, before its first client", &kib(resident), &kib(IDLE_LIMIT), resident <= IDLE_LIMIT);
    Ok(())
}

/// Bytes of each of `count` keys. What is there once is there after the first ones.
async fn filled(subject: &Subject, count: usize) -> Result<u64> {
    fill(&subject.rpc, FIRST).await?;
    let before = subject.resident()?;
    fill(&subject.rpc, FIRST + count).await?;
    Ok(subject.resident()?.saturating_sub(before) / count as u64)
}

async fn callers(report: &mut Report, subject: &Subject) -> Result<()> {
    let ask = async |key, caller: String| {
        let mut asked = request(KEYS, key);
        asked.exec_plugin_caller = Some(ExecPluginCaller { id: caller, without_exec_info: false });
        subject.rpc.clone().get_credential(asked).await
    };
    let (keys, each) = CALLERS;
    for caller in 0..each {
        ask(0, format!("first {caller}")).await?;
    }
    let before = subject.resident()?;
    for key in 1..=keys {
        for caller in 0..each {
            ask(key, format!("caller {caller}")).await?;
        }
    }
    let grown = subject.resident()?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
    let bytes = grown as f64 / (keys * each) as f64;
    let name = format!("a caller that is remembered, of {}", keys * each);
    report.limited(
        &name,
        &format!("{bytes:.1} bytes"),
        &format!("{CALLER_LIMIT} bytes"),
        bytes <= CALLER_LIMIT,
    );

    let (length, count) = HOSTILE;
    let hostile = |number: usize| format!("{}{number}", "x".repeat(length));
    ask(0, hostile(count)).await?;
    let before = subject.resident()?;
    for number in 0..count {
        ask(0, hostile(number)).await?;
    }
    let grown = subject.resident()?.saturating_sub(before);
    let name = format!("{count} callers with names of {} KiB, together", length / 1024);
    report.limited(&name, &kib(grown), &kib(HOSTILE_LIMIT), grown <= HOSTILE_LIMIT);
    Ok(())
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
