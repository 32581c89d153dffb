//! What a fleet of 2,000 ClusterProfiles costs: `cargo bench -p credbroker-lab --bench fleet`.
//!
//! Prints every figure, beside its limit where it has one, and exits 1 when one is missed. See `lab/README.md`.

#![expect(clippy::disallowed_methods, reason = "measures real processes in real time")]

mod asking;
mod calls;
mod follow;
mod ledger;
mod lists;
mod mirror;
mod news;
mod processor;
mod reflector;
mod relist;
mod rival;
mod start;
mod subject;

use std::{env::args, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use credbroker_lab::{
    hub::{self, Change, Hub},
    report::Report,
};

use crate::subject::Subject;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args: Vec<_> = args().skip(1).collect();
    match args.as_slice() {
        [command, kubeconfig, namespace] if command == reflector::COMMAND => {
            reflector::reflect(&PathBuf::from(kubeconfig), namespace).await?;
            return Ok(ExitCode::SUCCESS);
        }
        [command, socket, pages] if command == mirror::COMMAND => {
            mirror::serve(&PathBuf::from(socket), &PathBuf::from(pages)).await?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let directory = tempfile::tempdir().context("a directory for sockets")?;
    let directory = directory.path();
    let (mut hub, mut report) = (Hub::filled(directory), Report::default());
    start::measure(&mut report, &directory.join("start"), &hub).await?;

    let subject = Subject::start(&directory.join("subject"), &hub, hub::NAMESPACE).await?;
    for change in [Change::Endpoint, Change::Shown] {
        follow::measure(&mut report, &mut hub, &subject, change).await?;
    }
    relist::measure(&mut report, &hub, &subject).await?;
    lists::measure(&mut report, &directory.join("lists"), &subject).await?;
    calls::measure(&mut report, &subject).await?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
