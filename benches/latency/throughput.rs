//! `GetCredential` on a warm key, beside a service that does nothing.

use std::{path::Path, time::Duration};

use anyhow::Result;
use credbroker_client::{CredentialRef, Socket};
use tokio::runtime;

use crate::{
    broker::PROVIDER,
    credential::credential,
    daemon::{self, Subject},
    load::{Load, in_turns},
    report::{Report, figure, section},
};

const ROUNDS: usize = 15;
const CONNECTIONS: usize = 8;
const IN_FLIGHT: usize = 16;
const ROUND: Duration = Duration::from_secs(1);
const LIMIT: f64 = 0.85;

pub(crate) fn measure(report: &mut Report, directory: &Path, subject: Subject) -> Result<()> {
    let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
    let broker = daemon::start(directory, subject)?;
    let broker_socket = Socket::at(&broker.socket);
    let credential = runtime.block_on(credential(&broker_socket))?;
    let bare_directory = directory.join("bare");
    std::fs::create_dir(&bare_directory)?;
    let bare = daemon::start_echo(&bare_directory, &credential)?;
    let bare_socket = Socket::at(&bare.socket);

    let title = format!(
        "GetCredential on a warm key: {CONNECTIONS} connections, {IN_FLIGHT} requests in flight on each, {ROUNDS} rounds of {} s in turns",
        ROUND.as_secs()
    );
    section(&title);
    let request = CredentialRef::provider(PROVIDER);
    let load = |socket| Load { socket, request: &request, connections: CONNECTIONS, in_flight: IN_FLIGHT };
    let rates = runtime.block_on(in_turns(load(&broker_socket), load(&bare_socket), ROUNDS, ROUND))?;
    figure("credbroker, requests per second", &format!("{:.0}", rates.subject));
    figure("bare tonic service, requests per second", &format!("{:.0}", rates.rival));
    report.limited(
        "median of the rounds' ratios",
        &format!("{:.3}", rates.ratio),
        "0.850",
        rates.ratio >= LIMIT,
    );
    Ok(())
}
