//! Two thousand keys that are due together must not delay a request for another key.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use credbroker_lab::report::{Report, figure, percentile, section};
use credbroker_proto::v1alpha1::{self, credential_selector::Selector};

use crate::{
    keys::{self, KEYS, OTHER, fill, request},
    subject::{Rpc, Subject},
};

const DUE: usize = 2_000;
const COLD: usize = 20;
const RUN: Duration = Duration::from_millis(500);

/// Takes its time once the file `slow` is there.
const PLUGIN: &str = r#"#!/bin/sh
echo run >> "${0%/*}/runs"
if [ -e "${0%/*}/slow" ]; then sleep 0.5; fi
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%01000d"}}\n' $$
"#;

pub(crate) async fn measure(report: &mut Report, directory: &Path) -> Result<()> {
    let config = keys::config(directory, "limits: {pluginRuns: 4}\n");
    let subject = Subject::start(directory, PLUGIN, &config).await?;
    fill(&subject.rpc, DUE).await?;
    fs::write(directory.join("slow"), "")?;
    let alone = cold(&subject.rpc, 0).await?;

    let mut refreshing = subject.admin.clone();
    let selector = Some(Selector::Provider(KEYS.to_owned()));
    let refresh =
        v1alpha1::RefreshCredentialsRequest { selector: Some(v1alpha1::CredentialSelector { selector }) };
    let refreshing = tokio::spawn(async move { refreshing.refresh_credentials(refresh).await.map(drop) });
    let asking = Asking::start(&subject.rpc);
    // All four slots are taken before the first cold ask.
    let runs = subject.running.runs();
    while subject.running.runs() < runs + 4 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut times = Vec::new();
    for key in 1..=COLD {
        times.push(cold(&subject.rpc, key).await?);
    }
    let (asked, overloaded, lost) = asking.stop().await?;
    refreshing.abort();

    times.sort_unstable();
    section(&format!("{DUE} keys due together, 4 slots, a plugin of {} ms", RUN.as_millis()));
    figure("a cold ask for another provider, alone", &seconds(alone));
    figure(&format!("meanwhile, p50 of {COLD}"), &seconds(percentile(&times, 50)));
    let (worst, limit) = (percentile(&times, 100), alone * 2);
    report.limited(
        "meanwhile, at most",
        &seconds(worst),
        &format!("{}, two runs", seconds(limit)),
        worst <= limit,
    );
    figure("asks for what is due, meanwhile", &asked.to_string());
    report.limited("of them refused as OVERLOADED", &overloaded.to_string(), "none", overloaded == 0);
    report.limited("of them without a credential", &lost.to_string(), "none", lost == 0);
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

async fn cold(rpc: &Rpc, key: usize) -> Result<Duration> {
    let start = Instant::now();
    let answer = rpc.clone().get_credential(request(OTHER, key)).await?.into_inner();
    answer.credential.context("an answer without a credential")?;
    Ok(start.elapsed())
}

/// A caller that asks for every key that is due, in turns.
struct Asking {
    stop: Arc<AtomicBool>,
    counts: Arc<[AtomicUsize; 3]>,
    task: tokio::task::JoinHandle<()>,
}

impl Asking {
    fn start(rpc: &Rpc) -> Self {
        let (mut rpc, stop, counts) = (rpc.clone(), Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopped, counting) = (Arc::clone(&stop), Arc::clone(&counts));
        let task = tokio::spawn(async move {
            let counting: Arc<[AtomicUsize; 3]> = counting;
            let [asked, overloaded, lost] = &*counting;
            for key in (0..DUE).cycle() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                asked.fetch_add(1, Ordering::Relaxed);
                match rpc.get_credential(request(KEYS, key)).await {
                    Ok(answer) if answer.get_ref().credential.is_some() => {}
                    answer => {
                        let code = answer.err().map(|status| status.code());
                        overloaded.fetch_add(
                            usize::from(code == Some(tonic::Code::ResourceExhausted)),
                            Ordering::Relaxed,
                        );
                        lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        Self { stop, counts, task }
    }

    /// Asks, answers that were `OVERLOADED`, and answers without a credential.
    async fn stop(self) -> Result<(usize, usize, usize)> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?;
        let [asked, overloaded, lost] = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        Ok((asked, overloaded, lost))
    }
}
