//! How soon a change of a file that selects an account is noticed.

use std::{fs, path::Path, time::Instant};

use anyhow::{Context, Result};
use credbroker_client::{Client, CredentialRef, ExposeSecret as _, Socket};
use credbroker_lab::{
    broker::{self, PROVIDER},
    report::{Report, figure, section},
};
use tokio::time::{Duration, sleep};

/// Its token is the account in the file.
const PLUGIN: &str = r#"#!/bin/sh
directory=$(dirname "$0")
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%s"}}\n' "$(cat "$directory/account")"
"#;
const SWITCHES: usize = 50;
/// From this long after the switch on, no request may get the account before.
const LIMIT: Duration = Duration::from_millis(100);

pub(crate) async fn measure(report: &mut Report, directory: &Path) -> Result<()> {
    broker::private(directory)?;
    let file = directory.join("account");
    fs::write(&file, "0")?;
    let more = format!("  identityFiles: [{}]\n", file.display());
    let running = broker::start(directory, PLUGIN, &more)?;
    let client = Client::connect(&Socket::at(&running.socket)).await?;
    let cloud = CredentialRef::provider(PROVIDER);
    let account = async || -> Result<String> {
        let credential = client.credential(&cloud).await?;
        Ok(credential.token().context("a token")?.expose_secret().to_owned())
    };
    account().await?;
    let (mut noticed, mut late) = (Vec::new(), 0);
    for number in 1..=SWITCHES {
        let wanted = number.to_string();
        let before = Instant::now();
        fs::write(&file, &wanted)?;
        let written = Instant::now();
        if number % 2 == 0 {
            sleep(LIMIT.saturating_sub(written - before)).await;
            late += usize::from(account().await? != wanted);
            continue;
        }
        // The last request that began before the change was noticed.
        let mut last = written;
        loop {
            let began = Instant::now();
            if account().await? == wanted {
                break;
            }
            last = began;
        }
        noticed.push(last - written);
    }
    noticed.sort_unstable();
    section(&format!("A switched account: {SWITCHES} switches"));
    let at =
        |part: usize| noticed.get(noticed.len().saturating_sub(1) * part / 100).copied().unwrap_or_default();
    figure("the last request with the account before, p50", &format!("{:?}", at(50)));
    figure("the last request with the account before, longest", &format!("{:?}", at(100)));
    report.limited("requests after 100 ms with the account before", &late.to_string(), "0", late == 0);
    Ok(())
}
