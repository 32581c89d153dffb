//! Requests that the proxy forwards.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{
    counter::{Counts, Histogram, add_one, all},
    exposition::{ConstGauge, Exposition, families},
};

/// The verbs of requests that are counted under their names.
const VERBS: [&str; 9] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "connect"];

/// The counts of one proxy.
#[derive(Debug, Default)]
pub struct Proxied {
    requests: Counts<(&'static str, u16)>,
    time: Histogram,
    up: AtomicU64,
    down: AtomicU64,
}

impl Proxied {
    /// A request has ended. `took`: it was a short one.
    pub fn ended(&self, verb: &str, code: u16, (up, down): (u64, u64), took: Option<Duration>) {
        let verb = VERBS.iter().find(|known| **known == verb).copied().unwrap_or("other");
        add_one(&self.requests, (verb, code));
        self.up.fetch_add(up, Ordering::Relaxed);
        self.down.fetch_add(down, Ordering::Relaxed);
        if let Some(took) = took {
            self.time.observe(took);
        }
    }

    /// Writes all of them. `open`: the requests that are open now.
    pub fn write(&self, to: &mut Exposition, open: u64) {
        let requests = all(&self.requests).map(|((verb, code), count)| (verb, code.to_string(), count));
        let requests: Vec<_> = requests.collect();
        to.numbers(
            &families::PROXY_REQUESTS,
            requests.iter().map(|(verb, code, count)| ([*verb, code], *count)),
        );
        to.one(&families::PROXY_TIME, self.time.observed(0));
        let bytes = [("up", &self.up), ("down", &self.down)];
        to.numbers(&families::PROXY_BYTES, bytes.map(|(way, count)| ([way], count.load(Ordering::Relaxed))));
        to.one(&families::PROXY_OPEN, ConstGauge::new(open));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_and_code_and_only_short_ones_are_timed() {
        let proxied = Proxied::default();
        proxied.ended("get", 200, (0, 100), Some(Duration::from_millis(1)));
        proxied.ended("watch", 200, (0, 7), None);
        proxied.ended("made-up", 403, (1, 0), Some(Duration::from_millis(1)));
        let mut text = Exposition::default();
        proxied.write(&mut text, 3);
        let text = text.into_text();
        for line in [
            "credbroker_proxy_requests_total{verb=\"get\",code=\"200\"} 1",
            "credbroker_proxy_requests_total{verb=\"watch\",code=\"200\"} 1",
            "credbroker_proxy_requests_total{verb=\"other\",code=\"403\"} 1",
            "credbroker_proxy_request_duration_seconds_count 2",
            "credbroker_proxy_bytes_total{direction=\"up\"} 1",
            "credbroker_proxy_bytes_total{direction=\"down\"} 107",
            "credbroker_proxy_open_requests 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
