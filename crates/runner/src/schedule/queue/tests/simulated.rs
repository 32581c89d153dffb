//! Several hours with many credentials, with a simple model of the cache.

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range};

use super::*;

const LIFETIME: Duration = Duration::from_secs(900);
/// A credential in use is urgent when a tenth of its lifetime is left.
const URGENT: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum QueueEvent {
    /// A run has ended.
    End(u64),
    /// The refresh of a credential is due.
    Due(usize),
    /// A credential expires soon.
    Urgent(usize),
}

/// A credential that is in use.
#[derive(Debug)]
struct HeldCredential {
    expires: Duration,
    waits: Option<u64>,
}

struct SimulatedCache {
    queue: Queue,
    now: Duration,
    provider: Arc<str>,
    issuer: Issuer,
    /// How long a run takes.
    long: Duration,
    /// The time in which the issuer throttles every run.
    throttles: Range<Duration>,
    held: Vec<HeldCredential>,
    /// The credential that each run refreshes.
    renews: HashMap<u64, usize>,
    events: BinaryHeap<Reverse<(Duration, QueueEvent)>>,
    random: fastrand::Rng,
    starts: Vec<Duration>,
    /// The number of starts per pause. The first number is for the time before any pause.
    per_pause: Vec<usize>,
    /// When a refresh came after the old credential had expired.
    lapses: Vec<Duration>,
}

impl SimulatedCache {
    fn new(runs: usize, issuer: Issuer, long: Duration) -> Self {
        Self {
            queue: Queue::new(runs),
            now: Duration::ZERO,
            provider: "held".into(),
            issuer,
            long,
            throttles: Duration::MAX..Duration::MAX,
            held: Vec::new(),
            renews: HashMap::new(),
            events: BinaryHeap::new(),
            random: fastrand::Rng::with_seed(7),
            starts: Vec::new(),
            per_pause: vec![0],
            lapses: Vec::new(),
        }
    }

    /// Holds `count` credentials. The first expires in `first`, and the others evenly in the `width` after it.
    fn hold(&mut self, count: u32, first: Duration, width: Duration) {
        for number in 0..count {
            self.held.push(HeldCredential { expires: Duration::ZERO, waits: None });
            self.renewed(self.held.len() - 1, first + width * number / count);
        }
    }

    fn renewed(&mut self, index: usize, left: Duration) {
        let held = &mut self.held[index];
        held.expires = self.now + left;
        held.waits = None;
        let lead = Duration::from_secs_f64(360.0 + 90.0 * self.random.f64());
        let due = held.expires.saturating_sub(lead).max(self.now);
        let urgent = held.expires.saturating_sub(URGENT).max(self.now);
        self.events.push(Reverse((due, QueueEvent::Due(index))));
        self.events.push(Reverse((urgent, QueueEvent::Urgent(index))));
    }

    fn run_until(&mut self, end: Duration) {
        loop {
            let event = self.events.peek().map(|Reverse((at, _))| *at);
            let Some(next) =
                event.into_iter().chain(self.queue.next_wake(self.now)).min().filter(|at| *at < end)
            else {
                self.now = end;
                return;
            };
            self.now = next;
            while let Some(Reverse((_, event))) = self.events.pop_if_due(next) {
                self.happen(event);
            }
            for (id, answer) in self.queue.dispatch(next) {
                if answer.is_ok() {
                    self.starts.push(next);
                    *self.per_pause.last_mut().unwrap() += 1;
                    self.events.push(Reverse((next + self.long, QueueEvent::End(id))));
                }
            }
        }
    }

    fn happen(&mut self, event: QueueEvent) {
        match event {
            QueueEvent::Due(index) => self.enter(index, Urgency::Background),
            QueueEvent::Urgent(index) => {
                let held = &self.held[index];
                if let Some(id) = held.waits.filter(|_| held.expires <= self.now + URGENT) {
                    self.queue.set_floor(id, Urgency::Urgent { uid: None });
                }
            }
            QueueEvent::End(id) => {
                let throttled = self.throttles.contains(&self.now);
                let outcome = if throttled { THROTTLED } else { Outcome::Success };
                let change = self.queue.finish(id, outcome, self.random.f64(), self.now);
                if matches!(change, Some((_, PaceChange::Paused(_)))) {
                    self.per_pause.push(0);
                }
                let Some(index) = self.renews.remove(&id) else { return };
                if throttled {
                    let is_urgent = self.held[index].expires <= self.now + URGENT;
                    self.enter(
                        index,
                        if is_urgent { Urgency::Urgent { uid: None } } else { Urgency::Background },
                    );
                } else {
                    if self.held[index].expires <= self.now {
                        self.lapses.push(self.now);
                    }
                    self.renewed(index, LIFETIME);
                }
            }
        }
    }

    fn enter(&mut self, index: usize, urgency: Urgency) {
        let id = self.queue.enter_any(&self.provider, &self.issuer, urgency);
        self.held[index].waits = Some(id);
        self.renews.insert(id, index);
    }

    /// The largest number of starts in any second.
    fn busiest(&self) -> usize {
        let starts = self.starts.iter().enumerate();
        let within = |(index, first): (usize, &Duration)| {
            self.starts[index..].iter().take_while(|at| **at < *first + secs(1)).count()
        };
        starts.map(within).max().unwrap_or_default()
    }
}

trait PopIfDue {
    fn pop_if_due(&mut self, now: Duration) -> Option<Reverse<(Duration, QueueEvent)>>;
}

impl PopIfDue for BinaryHeap<Reverse<(Duration, QueueEvent)>> {
    fn pop_if_due(&mut self, now: Duration) -> Option<Reverse<(Duration, QueueEvent)>> {
        self.peek().is_some_and(|Reverse((at, _))| *at <= now).then(|| self.pop()).flatten()
    }
}

#[test]
fn one_peer_with_ten_thousand_requests_starves_no_renewal() {
    for (provider, first, width) in [
        ("held", secs(60), secs(840)),
        ("other", secs(60), secs(840)),
        // All of them expire within a second.
        ("held", secs(899), secs(1)),
        ("other", secs(899), secs(1)),
    ] {
        let mut simulated = SimulatedCache::new(4, issuer("idp", 10, 4), ms(500));
        for _ in 0..10_000 {
            simulated.queue.enter_any(&provider.into(), &simulated.issuer, waited(1));
        }
        simulated.run_until(secs(1)); // so that all slots are taken
        simulated.hold(200, first, width);
        simulated.run_until(secs(3600));
        assert!(simulated.lapses.is_empty(), "{provider} {first:?}: {:?}", simulated.lapses);
        assert!(simulated.queue.waiting.is_empty(), "everything has had its turn");
        let since = simulated.starts.len() - 10_000;
        assert!((200..=200 * 9).contains(&since), "{since} refreshes");
    }
}

#[test]
fn an_hour_of_three_thousand_tokens_takes_no_more_runs_than_the_schedule_needs() {
    let mut simulated = SimulatedCache::new(8, issuer("idp", 10, 4), ms(500));
    simulated.hold(3000, Duration::ZERO, LIFETIME);
    simulated.run_until(secs(3600));
    let (runs, busiest) = (simulated.starts.len(), simulated.busiest());
    assert!(runs <= 21_800 * 11 / 10, "{runs} runs");
    assert!(busiest <= 12, "{busiest} runs in a second");
    assert_eq!(simulated.lapses.iter().filter(|at| **at > secs(300)).count(), 0);
}

#[test]
fn an_issuer_that_throttles_for_ten_minutes_gets_one_run_in_fifteen_seconds_and_recovers() {
    let mut simulated = SimulatedCache::new(8, issuer("idp", 10, 4), ms(300));
    let (down, up) = (secs(1800), secs(2400));
    simulated.throttles = down..up;
    simulated.hold(3000, LIFETIME / 2, LIFETIME / 2);
    simulated.run_until(up);
    let pauses = &simulated.per_pause[1..];
    let probes: usize = pauses.iter().sum();
    assert!((38..=41).contains(&probes), "one run in fifteen seconds: {pauses:?}");
    simulated.run_until(up + secs(450));
    let valid = simulated.held.iter().filter(|held| held.expires > simulated.now).count();
    assert_eq!(valid, 3000, "1.5 times as long as its rate needs for all of them");
    assert!(
        simulated.lapses.len() > 1000,
        "ten minutes are more than their margin: {}",
        simulated.lapses.len()
    );
    assert!(simulated.busiest() <= 12);
    simulated.run_until(up + secs(3600));
    assert!(simulated.lapses.iter().all(|at| *at < up + secs(450)));
}
