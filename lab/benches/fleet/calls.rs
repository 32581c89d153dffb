//! Credentials that callers ask for by profile.

use std::time::Duration;

use anyhow::Result;
use credbroker_client::{CredentialRef, Socket};
use credbroker_lab::{
    broker::PROVIDER,
    hub::{NAMESPACE, name},
    load::{Load, in_turns},
    report::{Report, figure, section},
};

use crate::subject::Subject;

const ROUNDS: usize = 11;
const CONNECTIONS: usize = 8;
const IN_FLIGHT: usize = 16;
const ROUND: Duration = Duration::from_secs(1);
const RATE_LIMIT: f64 = 0.7;

pub(crate) async fn measure(report: &mut Report, subject: &Subject) -> Result<()> {
    section(&format!(
        "GetCredential on a warm key: {CONNECTIONS} connections, {IN_FLIGHT} requests in flight on each, {ROUNDS} rounds of {} s in turns",
        ROUND.as_secs()
    ));
    let socket = Socket::at(&subject.running.socket);
    let by_profile = CredentialRef::cluster_profile(NAMESPACE, name(0));
    let by_provider = CredentialRef::provider(PROVIDER);
    let runs = subject.running.runs();
    let load = |request| Load { socket: &socket, request, connections: CONNECTIONS, in_flight: IN_FLIGHT };
    let rates = in_turns(load(&by_profile), load(&by_provider), ROUNDS, ROUND).await?;
    figure("by provider, requests per second", &format!("{:.0}", rates.rival));
    figure("by cluster profile, requests per second", &format!("{:.0}", rates.subject));
    let (ratio, limit) = (format!("{:.2}", rates.ratio), format!("{RATE_LIMIT:.2}"));
    report.limited("median of the rounds' ratios", &ratio, &limit, rates.ratio >= RATE_LIMIT);
    let runs = subject.running.runs() - runs;
    report.limited("plugin runs", &runs.to_string(), "none", runs == 0);
    Ok(())
}
