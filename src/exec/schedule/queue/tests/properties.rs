//! Properties that hold after any sequence of events.

use proptest::prelude::*;

use super::*;

const RUNS: usize = 3;
const PROVIDERS: usize = 5;

/// One event. `run` is an index in the order in which runs entered, or started.
#[derive(Clone, Debug)]
enum Step {
    Enter { provider: usize, urgency: Urgency },
    Leave { run: usize },
    Change { run: usize, urgency: Urgency },
    Finish { run: usize, outcome: Outcome },
    Later { time: Duration },
}

fn urgency() -> impl Strategy<Value = Urgency> {
    prop_oneof![
        Just(Urgency::Background),
        Just(Urgency::Urgent),
        Just(Urgency::Forced),
        (0_u64..3).prop_map(waited),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        4 => Just(Outcome::Success),
        2 => Just(Outcome::Reached),
        1 => Just(Outcome::Unknown),
        1 => (1_u64..100).prop_map(|seconds| {
            Outcome::Throttled(Throttling { retry_after: Some(secs(seconds)).filter(|pause| *pause < secs(50)) })
        }),
    ];
    prop_oneof![
        5 => (0..PROVIDERS, urgency()).prop_map(|(provider, urgency)| Step::Enter { provider, urgency }),
        1 => (0_usize..8).prop_map(|run| Step::Leave { run }),
        1 => (0_usize..8, urgency()).prop_map(|(run, urgency)| Step::Change { run, urgency }),
        4 => (0_usize..RUNS, outcome).prop_map(|(run, outcome)| Step::Finish { run, outcome }),
        4 => (0_u64..3000).prop_map(|time| Step::Later { time: ms(time) }),
    ]
}

/// A queue, and its expected state.
struct QueueModel {
    queue: Queue,
    now: Duration,
    issuers: [Issuer; 3],
    waiting: Vec<u64>,
    running: Vec<(u64, usize)>,
    /// When the runs of each issuer started.
    starts: [Vec<Duration>; 3],
}

/// Two providers each share the first two issuers.
fn issuer_of(provider: usize) -> usize {
    provider / 2
}

impl QueueModel {
    fn new() -> Self {
        let issuers = [issuer("i0", 4, 2), issuer("i1", 1, 3), issuer("i2", 100, 1)];
        let (waiting, running, starts) = (Vec::new(), Vec::new(), [const { Vec::new() }; 3]);
        Self { queue: Queue::new(RUNS), now: NOW, issuers, waiting, running, starts }
    }

    fn happen(&mut self, step: &Step) {
        match step {
            Step::Enter { provider, urgency } => {
                let issuer = &self.issuers[issuer_of(*provider)];
                let name = format!("p{provider}").into();
                self.waiting.push(self.queue.enter(&name, issuer, *urgency, self.now));
            }
            Step::Leave { run } if *run < self.waiting.len() => {
                let id = self.waiting.remove(*run);
                self.queue.leave(id, self.now);
            }
            Step::Change { run, urgency } if *run < self.waiting.len() => {
                self.queue.set_urgency(self.waiting[*run], *urgency, self.now);
            }
            Step::Finish { run, outcome } if *run < self.running.len() => {
                let (id, _) = self.running.remove(*run);
                self.queue.finish(id, *outcome, 0.5, self.now);
            }
            Step::Later { time } => return self.pass(*time),
            Step::Leave { .. } | Step::Change { .. } | Step::Finish { .. } => {}
        }
        self.dispatch();
    }

    /// Lets `time` pass, and wakes the queue at each time that it named.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(wake) = self.queue.next_wake().filter(|wake| *wake <= end) {
            assert!(wake > self.now, "a wake that leads to nothing");
            self.now = wake;
            self.dispatch();
        }
        self.now = end;
        assert!(self.dispatch() == 0, "something could have started before");
    }

    fn dispatch(&mut self) -> usize {
        let answers = self.queue.dispatch(self.now);
        for (id, answer) in &answers {
            let index = self.waiting.iter().position(|waiting| waiting == id).expect("it waited");
            self.waiting.remove(index);
            if *answer == RunAdmission::Start {
                let issuer = &self.queue.slots.started[id].issuer;
                let issuer = self.issuers.iter().position(|known| known.name == *issuer).unwrap();
                self.running.push((*id, issuer));
                self.starts[issuer].push(self.now);
            }
        }
        self.check();
        answers.len()
    }

    fn check(&self) {
        let Self { queue, now, issuers, waiting, running, starts } = self;
        assert!(running.len() <= RUNS && queue.slots.started.len() == running.len());
        assert!(queue.slots.background < RUNS, "one slot is kept");
        assert_eq!(queue.waiting.len(), waiting.len(), "each is answered once");
        for (index, (issuer, starts)) in issuers.iter().zip(starts).enumerate() {
            let at_a_time = running.iter().filter(|(_, of)| *of == index).count();
            assert!(at_a_time <= issuer.concurrency.get());
            let last = starts.iter().rev().take_while(|at| **at + secs(1) > *now).count();
            assert!(last <= issuer.runs_per_second.get());
            let paused = queue.paused(&issuer.name, *now);
            let waiting = queue.waiting.values().filter(|waiting| waiting.issuer == issuer.name);
            let waited = |urgency| matches!(urgency, Urgency::Waited { .. });
            assert!(waiting.into_iter().all(|run| paused.is_none() || !waited(run.urgency)));
        }
        // No run waits that could start.
        let free = RUNS - running.len();
        for (id, run) in &queue.waiting {
            let slot = free > 0 && (run.urgency != Urgency::Background || queue.slots.background + 1 < RUNS);
            let (cause, _) = queue.waits_for(*id, *now).unwrap();
            assert!(!slot || !matches!(cause, Cause::Slots { .. }), "{run:?}");
        }
    }
}

proptest! {
    #[test]
    fn limits_hold_and_every_wait_has_a_cause(steps in prop::collection::vec(step(), 1..200)) {
        let mut model = QueueModel::new();
        for step in &steps {
            model.happen(step);
        }
        // All runs that still wait start once no run fails.
        for _ in 0..100 * (model.waiting.len() + 1) {
            while !model.running.is_empty() {
                model.happen(&Step::Finish { run: 0, outcome: Outcome::Success });
            }
            model.happen(&Step::Later { time: secs(1) });
        }
        prop_assert!(model.waiting.is_empty());
        let Queue { turns, slots, waiting, .. } = &model.queue;
        prop_assert!(turns.next(true).is_none() && turns.next_time().is_none());
        prop_assert!(waiting.is_empty() && slots.started.is_empty());
    }

    /// Between two runs of one caller, each other caller of the provider that waits has one.
    #[test]
    fn callers_take_turns(peers in prop::collection::vec(0_u64..6, 1..60)) {
        let mut setup = Setup::new(1, 1);
        setup.enter("busy", waited(9), 1);
        setup.started();
        for peer in &peers {
            setup.one("a", waited(*peer), &peer.to_string());
        }
        let order = setup.order();
        let order: Vec<&str> = order.split(' ').collect();
        for (index, peer) in order.iter().enumerate() {
            let Some(last) = order[..index].iter().rposition(|other| other == peer) else { continue };
            let waiting = order[index..].iter().filter(|other| *other != peer);
            for other in waiting {
                prop_assert!(order[last..index].contains(other), "{} before {} of {:?}", other, index, order);
            }
        }
    }
}
