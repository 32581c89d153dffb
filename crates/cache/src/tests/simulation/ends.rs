//! The end of a simulated day: every key works again, and nothing is left.

use std::sync::Arc;

use tokio::{
    task::unconstrained,
    time::{sleep, timeout},
};

use super::{
    driver::{INTERACTIVE, World},
    fleet::ISSUERS,
    keys::RequestKind,
    peers::PEERS,
    plugins::{IssuerMode, secs},
    room::entry_limits,
    verifications,
};
use crate::Request;
use credbroker_plugin::{Command, Provider, testing::provider as test_provider};
use credbroker_runner::{RunPermit, RunSource, Urgency};

impl World {
    /// Every issuer works again. After some time, every key must have a credential, and nothing is left of what callers
    /// began.
    pub(super) async fn ends_well(&self) {
        self.restore();
        *self.limits.lock().unwrap() = entry_limits(None);
        self.cache.set_limits(entry_limits(None));
        let quiet = {
            let mut model = self.model.lock().unwrap();
            for issuer in 0..ISSUERS.len() {
                model.change(issuer, IssuerMode::Healthy);
            }
            // The longest run, pause and back-off together, and some time.
            secs(31 + 121 + 61 + 60)
        };
        sleep(quiet).await;
        for key in 0..self.catalog.keys {
            if self.catalog.plugins[self.catalog.plugin_of(key)].asks_persons() {
                if !self.logs_in(key).await {
                    let mut model = self.model.lock().unwrap();
                    model.broken(|| format!("a user who answers does not get key {key}"));
                }
                continue;
            }
            let request = Request::default();
            let asked = {
                let mut model = self.model.lock().unwrap();
                model.asks(key, RequestKind::Get, &request.caller, Some(secs(60)), true)
            };
            let answer = self.cache.get(self.catalog.spec(key), &request).await;
            let mut model = self.model.lock().unwrap();
            model.judge(asked, &answer);
            if let Err(failed) = answer {
                model.broken(|| format!("every issuer works, and key {key} has: {failed}"));
            }
        }
        for watch in std::mem::take(&mut *self.watches.lock().unwrap()) {
            watch.cancel();
        }
        // A refresh that a watch asked for.
        sleep(secs(60)).await;
        if self.is_fine() {
            self.leaves_nothing().await;
        }
    }

    /// No caller waits, and no run or verification holds a place.
    async fn leaves_nothing(&self) {
        let left = {
            let model = self.model.lock().unwrap();
            let waiting = model.keys.iter().flat_map(|key| key.waiting.keys()).next();
            match waiting {
                Some(id) => Some(format!("#{id} waits without end")),
                None if !model.verifications.is_empty() => Some("a verification has no end".into()),
                None => None,
            }
        };
        let left = match left {
            Some(left) => Some(left),
            None if !verifications::all_free(&self.places).await => {
                Some("a verification holds a place".into())
            }
            // Immediately: when a future has been ready too often, tokio lets other tasks run, and a refresh that comes due may
            // take a place.
            None => unconstrained(self.left_in_queue()).await,
        };
        if let Some(left) = left {
            self.model.lock().unwrap().broken(|| format!("at the end, {left}"));
        }
    }

    /// A run that holds a slot, or the share of a process.
    async fn left_in_queue(&self) -> Option<String> {
        let slots = self.model.lock().unwrap().slots;
        let provider = Arc::new(test_provider("last", Command::Path("/fake".into())));
        if !self.start_at_once(&provider, Urgency::Urgent { uid: None }, slots - self.running()).await {
            return Some("a run holds a slot".into());
        }
        if self.running() < slots && !self.step_aside(&provider).await {
            return Some("a run holds a place among those that wait for a user".into());
        }
        for peer in PEERS {
            let share = slots - self.running(); // no other run waits
            if !self.start_at_once(&provider, Urgency::Waited { peer }, share).await {
                return Some(format!("a run holds the share of process {peer:#x}"));
            }
        }
        None
    }

    /// Whether as many runs may wait for a user as at the start.
    async fn step_aside(&self, provider: &Arc<Provider>) -> bool {
        let mut permits = Vec::new();
        for _ in 0..INTERACTIVE {
            let turn = self
                .scheduler
                .enter(provider, Urgency::Urgent { uid: None }, RunSource::Others { uid: None })
                .turn();
            let permit = timeout(secs(1), turn).await;
            permits.extend(permit.ok().and_then(Result::ok).filter(RunPermit::step_aside));
        }
        permits.len() == INTERACTIVE
    }

    /// Refreshes that are in progress.
    fn running(&self) -> usize {
        self.model.lock().unwrap().issuers.iter().map(|issuer| issuer.running).sum()
    }

    /// Whether so many runs have their turns without an end of another one.
    async fn start_at_once(&self, provider: &Arc<Provider>, urgency: Urgency, runs: usize) -> bool {
        let mut permits = Vec::new();
        for _ in 0..runs {
            let turn = self.scheduler.enter(provider, urgency, RunSource::Others { uid: None }).turn();
            match timeout(std::time::Duration::from_millis(1), turn).await {
                Ok(permit) => permits.extend(permit),
                Err(_late) => return false,
            }
        }
        permits.len() == runs
    }
}
