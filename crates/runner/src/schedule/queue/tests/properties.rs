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
    Join { run: usize, peer: u64 },
    Part { run: usize, peer: u64 },
    Change { run: usize, floor: Urgency },
    Finish { run: usize, outcome: Outcome },
    Later { time: Duration },
}

fn floor() -> impl Strategy<Value = Urgency> {
    prop_oneof![
        Just(Urgency::Background),
        (0_u32..3).prop_map(|uid| Urgency::Urgent { uid: uid.checked_sub(1) }),
        Just(Urgency::Forced)
    ]
}

fn urgency() -> impl Strategy<Value = Urgency> {
    prop_oneof![3 => floor(), 1 => peer().prop_map(waited)]
}

/// Processes of two uids.
fn peer() -> impl Strategy<Value = u64> {
    (0_u64..4).prop_map(|number| (number % 2) << 32 | number)
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
        1 => (0_usize..8, peer()).prop_map(|(run, peer)| Step::Join { run, peer }),
        1 => (0_usize..8, peer()).prop_map(|(run, peer)| Step::Part { run, peer }),
        1 => (0_usize..8, floor()).prop_map(|(run, floor)| Step::Change { run, floor }),
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

fn is_forced(run: &QueuedRun) -> bool {
    run.floor == Urgency::Forced
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
                self.waiting.push(self.queue.enter_any(&name, issuer, *urgency));
            }
            Step::Leave { run } if *run < self.waiting.len() => {
                let id = self.waiting.remove(*run);
                self.queue.remove(id);
            }
            Step::Join { run, peer } if *run < self.waiting.len() => {
                let joined = self.queue.join(self.waiting[*run], *peer, self.now);
                let run = &self.queue.waiting[&self.waiting[*run]];
                assert_eq!(
                    joined.err(),
                    self.queue.paused(&run.issuer, self.now).filter(|_| !is_forced(run))
                );
            }
            Step::Part { run, peer } if *run < self.waiting.len() => {
                self.queue.part(self.waiting[*run], *peer);
            }
            Step::Change { run, floor } if *run < self.waiting.len() => {
                self.queue.set_floor(self.waiting[*run], *floor);
            }
            Step::Finish { run, outcome } if *run < self.running.len() => {
                let (id, _) = self.running.remove(*run);
                self.queue.finish(id, *outcome, 0.5, self.now);
            }
            Step::Later { time } => return self.pass(*time),
            Step::Leave { .. }
            | Step::Join { .. }
            | Step::Part { .. }
            | Step::Change { .. }
            | Step::Finish { .. } => {}
        }
        self.dispatch();
    }

    /// Lets `time` pass, and wakes the queue at each time that it named.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(wake) = self.queue.next_wake(self.now).filter(|wake| *wake <= end) {
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
            if answer.is_ok() {
                let (issuer, _) = &self.queue.started[id];
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
        assert!(running.len() <= RUNS && queue.started.len() == running.len());
        let background_runs = queue.running(|run| run.class == Class::Background);
        assert!(background_runs < RUNS, "one slot is kept");
        assert_eq!(queue.waiting.len(), waiting.len(), "each is answered once");
        for (index, (issuer, starts)) in issuers.iter().zip(starts).enumerate() {
            let at_a_time = running.iter().filter(|(_, of)| *of == index).count();
            assert!(at_a_time <= issuer.concurrency.get());
            let last = starts.iter().rev().take_while(|at| **at + secs(1) > *now).count();
            assert!(last <= issuer.runs_per_second.get());
            let paused = queue.paused(&issuer.name, *now);
            let waiting = queue.waiting.values().filter(|waiting| waiting.issuer == issuer.name);
            let may_wait = |run: &QueuedRun| paused.is_none() || is_forced(run) || run.own_place().is_some();
            assert!(waiting.into_iter().all(may_wait));
        }
        // No run waits that could start.
        let free = RUNS - running.len();
        for (id, run) in &queue.waiting {
            let is_background = run.places().all(|(class, _)| class == Class::Background);
            let slot = free > 0 && (!is_background || background_runs + 1 < RUNS);
            let (cause, _) = queue.waits_for(*id, None, *now).unwrap();
            assert!(!slot || !matches!(cause, Cause::Slots(_)), "{run:?}");
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
        let Queue { first, background, started, waiting, .. } = &model.queue;
        prop_assert_eq!((first.doors().count(), background.doors().count()), (0, 0));
        prop_assert!(waiting.is_empty() && started.is_empty());
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

/// Runs that start in rounds: at the end of each, all that run end together.
struct Rounds {
    queue: Queue,
    now: Duration,
    /// In the order of entry.
    ids: Vec<u64>,
    providers: Vec<usize>,
    /// The round in which each run started.
    started: HashMap<u64, usize>,
    round: usize,
}

#[derive(Clone, Debug)]
enum RoundStep {
    Enter { provider: usize, urgency: Urgency },
    Join { run: usize, peer: u64 },
    Part { run: usize, peer: u64 },
    Round,
}

fn round_step() -> impl Strategy<Value = RoundStep> {
    prop_oneof![
        4 => (0..PROVIDERS, urgency()).prop_map(|(provider, urgency)| RoundStep::Enter { provider, urgency }),
        2 => (0_usize..20, peer()).prop_map(|(run, peer)| RoundStep::Join { run, peer }),
        1 => (0_usize..20, peer()).prop_map(|(run, peer)| RoundStep::Part { run, peer }),
        1 => Just(RoundStep::Round),
    ]
}

impl Rounds {
    fn new() -> Self {
        let queue = Queue::new(RUNS);
        Self { queue, now: NOW, ids: Vec::new(), providers: Vec::new(), started: HashMap::new(), round: 0 }
    }

    fn happen(&mut self, step: &RoundStep) {
        match step {
            RoundStep::Enter { provider, urgency } => {
                let issuer = issuer(&format!("i{provider}"), 100_000, 100);
                let name = format!("p{provider}").into();
                self.ids.push(self.queue.enter_any(&name, &issuer, *urgency));
                self.providers.push(*provider);
            }
            RoundStep::Join { run, peer } => {
                if let Some(id) = self.ids.get(*run) {
                    self.queue.join(*id, *peer, self.now).unwrap();
                }
            }
            RoundStep::Part { run, peer } => {
                if let Some(id) = self.ids.get(*run) {
                    self.queue.part(*id, *peer);
                }
            }
            RoundStep::Round => {
                self.round += 1;
                self.now += secs(1);
                let running: Vec<_> = self.queue.started.keys().copied().collect();
                for id in running {
                    self.queue.finish(id, Outcome::Success, 0.5, self.now);
                }
            }
        }
        for (id, _) in self.queue.dispatch(self.now) {
            self.started.insert(id, self.round);
        }
    }

    /// Lets `step` happen unless it is at the provider of `run` or of `peer`.
    fn happen_elsewhere(&mut self, step: &RoundStep, run: usize, peer: u64) {
        let is_near = match step {
            RoundStep::Enter { provider, urgency } => {
                *provider == self.providers[run] || *urgency == waited(peer)
            }
            RoundStep::Join { run: of, peer: who } | RoundStep::Part { run: of, peer: who } => {
                self.providers.get(*of) == Some(&self.providers[run]) || *who == peer
            }
            RoundStep::Round => false,
        };
        if !is_near {
            self.happen(step);
        }
    }

    /// The round in which the run starts.
    fn start_of(mut self, run: usize) -> usize {
        while !self.started.contains_key(&self.ids[run]) {
            self.happen(&RoundStep::Round);
            assert!(self.round < 1000);
        }
        self.started[&self.ids[run]]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// After any events, a run that a caller joins starts no later than without that caller, if events follow at other
    /// providers and to other callers. (At its own provider, a later run can start in a turn that the caller brought.)
    #[test]
    fn joining_a_run_never_delays_it(
        before in prop::collection::vec(round_step(), 1..40),
        after in prop::collection::vec(round_step(), 0..20),
        run in 0_usize..20,
        peer in peer(),
    ) {
        let replay = |joins: bool| {
            let mut rounds = Rounds::new();
            // The slots are taken at first.
            for peer in 0..RUNS as u64 {
                rounds.happen(&RoundStep::Enter { provider: 0, urgency: waited(100 + (peer << 32)) });
            }
            for step in &before {
                rounds.happen(step);
            }
            let run = run % rounds.ids.len();
            if joins {
                rounds.happen(&RoundStep::Join { run, peer });
            }
            for step in &after {
                rounds.happen_elsewhere(step, run, peer);
            }
            rounds.start_of(run)
        };
        let (alone, joined) = (replay(false), replay(true));
        prop_assert!(joined <= alone, "in round {joined} instead of {alone}");
    }
}
