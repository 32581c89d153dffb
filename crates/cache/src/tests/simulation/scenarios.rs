//! Several hours with many credentials of one issuer.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    super::{FakeClock, token},
    plugins::secs,
};
use crate::{CacheParts, Caller, CredentialCache, EntryLimits, Holding, Request, Selector};
use credbroker_observe::clock::Clock;
use credbroker_plugin::{
    Command, Issuer, PluginFile, PluginKey, PluginSpec, Provider, testing::provider as test_provider,
};
use credbroker_runner::{Attendance, PluginRunner, RunError, RunErrorKind, RunOutput, Scheduler};

/// One issuer that records its runs.
#[derive(Debug)]
struct Idp {
    clock: Arc<FakeClock>,
    /// How long a run takes, in milliseconds.
    takes: AtomicU64,
    lifetime: Duration,
    throttles: AtomicBool,
    number: AtomicUsize,
    /// When each run started, and whether it was throttled.
    runs: Mutex<Vec<(Duration, bool)>>,
}

struct Town {
    cache: CredentialCache<Idp>,
    idp: Arc<Idp>,
    provider: Arc<Provider>,
    file: Arc<PluginFile>,
    tasks: TaskTracker,
    draining: CancellationToken,
}

impl PluginRunner for Idp {
    async fn run(&self, spec: Arc<PluginSpec>, _: Arc<Attendance>) -> Result<RunOutput, RunError> {
        let throttles = self.throttles.load(SeqCst);
        self.runs.lock().unwrap().push((self.clock.awake(), throttles));
        sleep(Duration::from_millis(self.takes.load(SeqCst))).await;
        if throttles {
            return Err(RunError {
                stderr: "HTTP 429".into(),
                ..RunError::new("fake", RunErrorKind::Exit(1))
            });
        }
        let number = self.number.fetch_add(1, SeqCst);
        let decoded = token(&format!("token-{number}"), self.clock.now().wall + self.lifetime);
        Ok(RunOutput { decoded, file_version: spec.file.version() })
    }
}

impl Town {
    fn new((rate, concurrency): (usize, usize), takes: Duration, lifetime: Duration) -> Self {
        fastrand::seed(7);
        let clock = Arc::new(FakeClock::new());
        let idp = Arc::new(Idp {
            clock: Arc::clone(&clock),
            takes: AtomicU64::new(takes.as_millis().try_into().unwrap()),
            lifetime,
            throttles: AtomicBool::new(false),
            number: AtomicUsize::new(0),
            runs: Mutex::default(),
        });
        let (tasks, draining) = (TaskTracker::new(), CancellationToken::new());
        let clock = clock as Arc<dyn Clock>;
        let scheduler = Scheduler::new(concurrency, Arc::clone(&clock), fastrand::f64);
        let parts = CacheParts::for_tests(Arc::clone(&idp), clock, &tasks, &draining);
        let parts =
            CacheParts { scheduler, jitter: fastrand::f64, entries: EntryLimits::for_tests(20_000), ..parts };
        let cache = CredentialCache::new(parts);
        let keeper = cache.clone();
        tasks.spawn(async move { keeper.keep_fresh(credbroker_observe::clock::Beat::start()).await });
        let command = Command::Path("/fake".into());
        let count = |count| NonZeroUsize::new(count).unwrap();
        let issuer =
            Issuer { name: "idp".into(), runs_per_second: count(rate), concurrency: count(concurrency) };
        let provider =
            Arc::new(Provider { issuer: Arc::new(issuer), ..test_provider("idp", command.clone()) });
        let file = Arc::new(PluginFile::new(command, None));
        Self { cache, idp, provider, file, tasks, draining }
    }

    fn spec(&self, key: usize) -> PluginSpec {
        let mut name = [0; 32];
        name[..8].copy_from_slice(&key.to_be_bytes());
        PluginSpec {
            key: PluginKey(name),
            provider: Arc::clone(&self.provider),
            file: Arc::clone(&self.file),
            cluster: None,
            caller_env: BTreeMap::new(),
            target: None,
        }
    }

    /// Whether a valid credential of `key` is in memory.
    fn has(&self, key: usize) -> bool {
        self.cache.lookup(&self.spec(key).key, &Caller::default(), Duration::ZERO).is_some()
    }

    /// Watches `keys` until the end; an error only delays the next message.
    fn watch(&self, keys: std::ops::Range<usize>) {
        for key in keys {
            let mut watch = self.cache.watch(self.spec(key), Caller::default()).unwrap();
            let draining = self.draining.clone();
            self.tasks.spawn(async move {
                let follow = async {
                    loop {
                        if watch.next().await.is_err() {
                            sleep(secs(10)).await;
                        }
                    }
                };
                draining.run_until_cancelled(follow).await;
            });
        }
    }

    fn runs_since(&self, start: Duration) -> Vec<(Duration, bool)> {
        let runs = self.idp.runs.lock().unwrap();
        runs.iter().copied().filter(|(at, _)| *at >= start).collect()
    }

    fn awake(&self) -> Duration {
        self.idp.clock.awake()
    }
}

/// The largest number of starts in any second.
fn busiest(runs: &[(Duration, bool)]) -> usize {
    let within = |(index, (first, _)): (usize, &(Duration, bool))| {
        runs[index..].iter().take_while(|(at, _)| *at < *first + secs(1)).count()
    };
    runs.iter().enumerate().map(within).max().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn one_peer_with_ten_thousand_requests_lets_no_held_credential_expire() {
    // 10,000 runs take 250 s, longer than the lifetime of the held credentials: 240 s.
    let town = Town::new((40, 20), Duration::from_millis(500), secs(240));
    town.watch(0..100);
    for key in 100..200 {
        town.cache.get(town.spec(key), &Request::default()).await.unwrap();
    }
    for caller in 0..2000 {
        let (cache, specs) = (town.cache.clone(), (0..5).map(|key| town.spec(1000 + 5 * caller + key)));
        let specs: Vec<_> = specs.collect();
        town.tasks.spawn(async move {
            for spec in specs {
                let caller = Caller { peer: 1, ..Caller::default() };
                let request = Request { caller, deadline: Some(secs(1000)), ..Request::default() };
                drop(cache.get(spec, &request).await);
            }
        });
    }
    let start = town.awake();
    for second in 1..=270 {
        sleep(secs(1)).await;
        for key in 0..200 {
            assert!(town.has(key), "key {key} has nothing after {second} s");
        }
    }
    assert!(town.runs_since(start).len() > 10_000);
    town.draining.cancel();
}

#[tokio::test(start_paused = true)]
async fn three_thousand_tokens_take_no_more_runs_than_their_schedule_and_an_outage_one_in_fifteen_seconds() {
    let town = Town::new((10, 4), Duration::from_millis(300), secs(900));
    town.watch(0..3000);
    sleep(secs(900)).await; // the first runs take five minutes in total
    let start = town.awake();
    sleep(secs(3600)).await;
    let hour = town.runs_since(start);
    // An hour divided by the lifetime less the mean lead: 900 s - 405 s.
    assert!((19_000..=21_818 * 11 / 10).contains(&hour.len()), "{} runs", hour.len());
    assert!(busiest(&hour) <= 12, "{} runs in a second", busiest(&hour));
    assert!((0..3000).all(|key| town.has(key)));

    let down = town.awake();
    town.idp.throttles.store(true, SeqCst);
    for second in 0..600 {
        for key in (second % 60..3000).step_by(60) {
            let at_once = Request { deadline: Some(Duration::from_millis(1)), ..Request::default() };
            let answer = town.cache.get(town.spec(key), &at_once).await;
            assert!(answer.is_ok() || !town.has(key), "{answer:?}, and a valid one is held");
        }
        sleep((down + secs(second as u64 + 1)).saturating_sub(town.awake())).await;
    }
    let up = town.awake();
    town.idp.throttles.store(false, SeqCst);
    // Runs in progress at the start of the outage are throttled together.
    let probes = town.runs_since(down + secs(2));
    assert!((30..=41).contains(&probes.len()), "{} probes", probes.len());
    assert!(probes.windows(2).all(|pair| pair[1].0 >= pair[0].0 + secs(15)), "{probes:?}");
    let lapsed = (0..3000).filter(|key| !town.has(*key)).count();
    assert!(lapsed > 500, "ten minutes are more than their margin: {lapsed}");
    sleep((up + secs(450)).saturating_sub(town.awake())).await;
    let lapsed = (0..3000).filter(|key| !town.has(*key)).count();
    assert_eq!(lapsed, 0, "1.5 times as long as its rate needs for all of them");
    assert!(busiest(&town.runs_since(up)) <= 12);
    town.draining.cancel();
}

#[tokio::test(start_paused = true)]
async fn many_due_keys_delay_no_caller_of_another_provider() {
    let town = Town::new((1000, 4), Duration::from_millis(500), secs(3600));
    town.idp.takes.store(0, SeqCst);
    for key in 0..2000 {
        town.cache.get(town.spec(key), &Request::default()).await.unwrap();
    }
    town.idp.takes.store(500, SeqCst);
    town.file.replace();
    sleep(secs(3)).await; // all keys are due, and background runs use all slots that they may use
    let other = || {
        let provider = Arc::new(test_provider("other", Command::Path("/fake".into())));
        PluginSpec { provider, ..town.spec(5000) }
    };
    let asked = town.awake();
    town.cache.get(other(), &Request::default()).await.unwrap();
    assert!(town.awake() <= asked + secs(1), "{:?} after {asked:?}", town.awake());
    for second in 0..400 {
        for key in (second % 50..2000).step_by(50) {
            town.cache.get(town.spec(key), &Request::default()).await.unwrap();
        }
        sleep(secs(1)).await;
    }
    let held = town.cache.list(&Selector::Provider("idp".into()), None, usize::MAX);
    assert!(held.iter().all(|held| held.holding == Holding::Valid && held.runs == 2));
    town.draining.cancel();
}
