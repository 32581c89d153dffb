//! What a broker without requests costs: memory with some keys, and wake-ups with many watches.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use credbroker_lab::{
    channel::channel,
    memory::{self, kib},
    report::{Report, figure, section},
};
use credbroker_proto::v1::WatchCredentialRequest;
use tokio::time::sleep;

use crate::{
    keys::{self, KEYS, TOKEN_PLUGIN, fill, request},
    subject::{Rpc, Subject},
};

const HELD: usize = 50;
const ANONYMOUS_LIMIT: u64 = 3_000_000;
const WATCHES: (usize, usize) = (10, 100);
/// How long wake-ups are counted, and the most of them in a second.
const PERIOD: Duration = Duration::from_secs(30);
const WAKE_UPS_LIMIT: f64 = 5.0;

pub(crate) async fn measure(report: &mut Report, directory: &Path) -> Result<()> {
    section("Idle: a broker without requests");
    let subject = Subject::start(directory, TOKEN_PLUGIN, &keys::config(directory, "")).await?;
    fill(&subject.rpc, HELD).await?;
    sleep(Duration::from_secs(3)).await;
    figure(&format!("VmRSS with {HELD} keys"), &kib(subject.resident()?));
    let anonymous = memory::anonymous(subject.running.child.id())?;
    report.limited(
        "anonymous memory of it",
        &kib(anonymous),
        &kib(ANONYMOUS_LIMIT),
        anonymous <= ANONYMOUS_LIMIT,
    );

    let (connections, each) = WATCHES;
    let mut watches = Vec::new();
    for connection in 0..connections {
        let mut rpc = Rpc::new(channel(&subject.running.socket).await?);
        for number in 0..each {
            let r#ref = request(KEYS, (connection * each + number) % HELD).r#ref;
            let mut messages = rpc.watch_credential(WatchCredentialRequest { r#ref }).await?.into_inner();
            messages.message().await?.context("no first message")?;
            watches.push(messages);
        }
    }
    sleep(Duration::from_secs(3)).await;
    let before = switches(subject.running.child.id())?;
    sleep(PERIOD).await;
    let count = switches(subject.running.child.id())?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 wake-ups")]
    let rate = count as f64 / PERIOD.as_secs_f64();
    let name = format!("wake-ups in a second with {} watches", watches.len());
    report.limited(&name, &format!("{rate:.1}"), &format!("{WAKE_UPS_LIMIT:.0}"), rate <= WAKE_UPS_LIMIT);
    Ok(())
}

/// How often the threads of process `id` have waited for something, and so were woken up.
fn switches(id: u32) -> Result<u64> {
    let mut count = 0;
    for thread in fs::read_dir(format!("/proc/{id}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count += line.context("no count of switches")?.trim().parse::<u64>()?;
    }
    Ok(count)
}
