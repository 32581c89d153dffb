//! A hit beside a service that does nothing, in three shapes of load.

use std::{path::Path, time::Duration};

use anyhow::Result;
use credbroker_client::{CredentialRef, Socket};
use credbroker_lab::{
    broker::PROVIDER,
    daemon,
    load::{Load, in_turns},
    report::{Report, figure, section},
};

use crate::{credential::credential, keys::TOKEN_PLUGIN, subject::Subject};

/// Connections, and calls in flight on each.
const SHAPES: [(usize, usize); 3] = [(1, 1), (1, 16), (4, 16)];
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(500);
const LIMIT: f64 = 0.92;

pub(crate) async fn measure(report: &mut Report, directory: &Path) -> Result<()> {
    let subject = Subject::start(directory, TOKEN_PLUGIN, "").await?;
    let socket = Socket::at(&subject.running.socket);
    let credential = credential(&socket).await?;
    let bare = directory.join("bare");
    std::fs::create_dir(&bare)?;
    let bare = daemon::start_echo(&bare, &credential)?;
    let bare = Socket::at(&bare.socket);

    section(&format!("GetCredential on a warm key, {ROUNDS} rounds of {} ms in turns", ROUND.as_millis()));
    for (connections, in_flight) in SHAPES {
        let request = CredentialRef::provider(PROVIDER);
        let load = |socket| Load { socket, request: &request, connections, in_flight };
        let rates = in_turns(load(&socket), load(&bare), ROUNDS, ROUND).await?;
        let shape = format!("{} in flight on {connections}", connections * in_flight);
        figure(&format!("{shape}: credbroker, requests/s"), &format!("{:.0}", rates.subject));
        figure(&format!("{shape}: bare tonic service, requests/s"), &format!("{:.0}", rates.rival));
        let ratio = rates.ratio;
        let name = format!("{shape}: median of the ratios");
        report.limited(&name, &format!("{ratio:.3}"), &format!("{LIMIT}"), ratio >= LIMIT);
    }
    Ok(())
}
