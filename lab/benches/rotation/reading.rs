//! What a program pays to read the current credential, with every request that it sends.

use std::{
    hint::black_box,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::Result;
use credbroker_client::{Broker, CredentialRef, Socket};
use credbroker_lab::{
    broker::PROVIDER,
    report::{Report, figure, section},
};

use crate::subject::Subject;

const READS: u32 = 1_000_000;
const ROUNDS: usize = 15;
const LIMIT: Duration = Duration::from_nanos(50);

pub(crate) async fn measure(report: &mut Report, directory: &Path) -> Result<()> {
    let subject = Subject::start(directory).await?;
    let source = Broker::at(Socket::at(subject.socket())).source(CredentialRef::provider(PROVIDER));
    let locked = Mutex::new(source.ready().await?);
    let (mut reads, mut locks) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        reads.push(each(|| black_box(&source).current().is_some()));
        locks.push(each(|| {
            black_box(&locked).lock().is_ok_and(|held| Arc::strong_count(&Arc::clone(&held)) > 0)
        }));
    }
    section(&format!("Reading the current credential: {ROUNDS} rounds of {READS} reads, in turns"));
    figure("an Arc behind a std Mutex, its end not looked at", &format!("{:?}", median(locks)));
    let read = median(reads);
    report.limited("CredentialSource::current", &format!("{read:?}"), "50ns", read < LIMIT);
    Ok(())
}

/// How long one call takes.
fn each(call: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    for _ in 0..READS {
        black_box(call());
    }
    start.elapsed() / READS
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
