//! Runs that are throttled, and callers who make their plugins say so.

use tokio::time::sleep;

use super::{Script::*, *};
use crate::CacheError;
use credbroker_plugin::Globs;

fn is_of_key(failed: &Failed) -> bool {
    let CacheError::Run(RunError { kind: RunErrorKind::Throttled { of_key, .. }, .. }) = &failed.error else {
        panic!("{failed:?}")
    };
    *of_key
}

#[tokio::test(start_paused = true)]
async fn a_throttled_run_pauses_its_own_key_first() {
    let setup = setup(&[Throttle(secs(7)), Token(mins(60))]);
    let failed = setup.ask().await.unwrap_err();
    assert!(is_of_key(&failed));
    assert_eq!(failed.retry_after, secs(7));
    insta::assert_snapshot!(failed, @"plugin `/fake` was not started: issuer `fake` asked for fewer runs, and this credential is paused for another 7 s; to run it now, use `credbroker refresh fake`");
    setup.cache.get(spec("b"), &Request::default()).await.unwrap();
    assert_eq!(setup.ask().await.unwrap_err().retry_after, secs(5));
    let login = Request { is_login: true, ..Request::default() };
    let failed = setup.cache.get(spec("a"), &login).await.unwrap_err();
    assert_eq!((failed.retry_after, setup.runs()), (secs(5), 2), "not even a login runs it");
    sleep(secs(5)).await;
    setup.ask().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_second_key_of_the_configuration_pauses_the_issuer() {
    let setup = setup(&[Throttle(secs(40)), Throttle(secs(40)), Token(mins(60))]);
    for key in ["a", "b"] {
        assert!(is_of_key(&setup.cache.get(spec(key), &Request::default()).await.unwrap_err()));
    }
    let failed = setup.cache.get(spec("c"), &Request::default()).await.unwrap_err();
    assert!(!is_of_key(&failed));
    assert_eq!((failed.retry_after, setup.runs()), (secs(40), 2));
    sleep(secs(15)).await;
    setup.cache.get(spec("c"), &Request::default()).await.unwrap();
    setup.cache.get(spec("d"), &Request::default()).await.unwrap();
    assert!(
        is_of_key(&setup.ask().await.unwrap_err()),
        "the issuer works again, and the key is still paused"
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_pause_is_believed_when_it_is_said_again() {
    let setup = setup(&[Throttle(secs(900)), Fail, Throttle(secs(900)), Token(mins(1)), Throttle(secs(900))]);
    let mut pauses = Vec::new();
    while let Err(failed) = setup.ask().await {
        pauses.push(failed.retry_after.as_secs());
        sleep(failed.retry_after).await;
    }
    assert_eq!(pauses, [60, 1, 600], "a failure in between changes nothing");
    let login = Request { is_login: true, ..Request::default() };
    assert_eq!(setup.cache.get(spec("a"), &login).await.unwrap_err().retry_after, secs(60));
}

#[tokio::test(start_paused = true)]
async fn the_renewal_of_a_paused_key_is_tried_every_fifteen_seconds() {
    let setup = setup(&[Token(secs(300)), Throttle(secs(60)), Throttle(secs(600)), Token(secs(300))]);
    setup.ask().await.unwrap();
    for _ in 0..600 {
        setup.ask().await.unwrap();
        sleep(secs(1)).await;
    }
    assert!(setup.runs() >= 5);
}

/// A plugin that quotes its variable `V`. Without one, it prints a token for a minute.
#[derive(Debug)]
struct Quoting {
    clock: Arc<FakeClock>,
    /// Within these times since the start, the issuer really throttles.
    throttles: std::ops::Range<Duration>,
    number: AtomicUsize,
    /// The runs with a variable.
    quoted: AtomicUsize,
}

/// What the plugin writes for a variable.
const WAYS: [fn(&str) -> String; 7] = [
    |value| format!("The config profile ({value}) could not be found"),
    |value| format!("THE CONFIG PROFILE ({}) COULD NOT BE FOUND", value.to_uppercase()),
    |value| format!("no such profile: {}", value.to_lowercase()),
    |value| {
        format!("GET /?p={}", value.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat())
    },
    |value| format!("profile {}", &value[value.len() / 2..]),
    |value| value.split(' ').rev().collect::<Vec<_>>().join(" | "),
    // What the broker cannot know to be the caller's.
    |_| "HTTP 429 | Throttling: Rate exceeded | Retry-After: 600".to_owned(),
];

const VALUES: [&str; 6] = [
    "Throttling",
    "x) Retry-After: 600 (",
    "Rate exceeded Throttling RESOURCE_EXHAUSTED TooManyRequests",
    "%54hrottling %52%65try-After: 600",
    "%2554hrottling, HTTP 429",
    "retry-after: 600, AADSTS90055, Throttling",
];

impl PluginRunner for Quoting {
    async fn run(&self, spec: Arc<PluginSpec>, _: Arc<Attendance>) -> Result<RunOutput, RunError> {
        let Some(value) = spec.caller_env.get("V") else {
            sleep(Duration::from_millis(300)).await;
            let now = self.clock.now();
            if self.throttles.contains(&now.boot) {
                return Err(failure("HTTP 429"));
            }
            let number = self.number.fetch_add(1, Ordering::SeqCst);
            let decoded = token(&format!("token-{number}"), now.wall + secs(60));
            return Ok(RunOutput { decoded, file_version: spec.file.version() });
        };
        let number = self.quoted.fetch_add(1, Ordering::SeqCst);
        // Some of them hang.
        sleep(if number.is_multiple_of(5) { secs(8) } else { Duration::from_millis(100) }).await;
        // Everything behind the last `#` makes the key another one.
        let value = value.rsplit_once('#').unwrap().0;
        Err(failure(&WAYS[number % WAYS.len()](value)))
    }
}

struct Scene {
    cache: CredentialCache<Quoting>,
    runner: Arc<Quoting>,
    provider: Arc<Provider>,
    tasks: TaskTracker,
}

impl Scene {
    /// Eight slots, and an issuer of ten runs in a second, four at a time.
    fn new(throttles: std::ops::Range<Duration>) -> Self {
        let clock = Arc::new(FakeClock::new());
        let (number, quoted) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let runner = Arc::new(Quoting { clock: Arc::clone(&clock), throttles, number, quoted });
        let (tasks, draining) = (TaskTracker::new(), CancellationToken::new());
        let clock = clock as Arc<dyn Clock>;
        let scheduler = Scheduler::new(8, Arc::clone(&clock), || 0.5);
        let parts = CacheParts::for_tests(Arc::clone(&runner), clock, &tasks, &draining);
        let entries = EntryLimits::for_tests(100_000);
        let cache = CredentialCache::new(CacheParts { scheduler, entries, ..parts });
        let keeper = cache.clone();
        tasks.spawn(async move { keeper.keep_fresh(credbroker_observe::clock::Beat::start()).await });
        let count = |count| NonZeroUsize::new(count).unwrap();
        let issuer = Issuer { name: "idp".into(), runs_per_second: count(10), concurrency: count(4) };
        let named = test_provider("idp", Command::Path("/fake".into()));
        let caller_env = Globs::new(["V"]);
        let provider = Arc::new(Provider { issuer: Arc::new(issuer), caller_env, ..named });
        Self { cache, runner, provider, tasks }
    }

    fn spec(&self, key: &str, variable: Option<String>) -> PluginSpec {
        let caller_env = variable.into_iter().map(|value| ("V".to_owned(), value)).collect();
        PluginSpec { provider: Arc::clone(&self.provider), caller_env, ..spec(key) }
    }

    /// Asks once, with a variable that selects another key each time.
    fn provoke(&self, number: usize) {
        let variable = format!("{}#{number}", VALUES[number % VALUES.len()]);
        let spec = self.spec(&format!("provoked {number}"), Some(variable));
        // Now and then as another process.
        let caller = Caller { peer: 1000 << 32 | (number as u64 / 10 % 7), ..Caller::default() };
        let request = Request { caller, is_login: number.is_multiple_of(3), ..Request::default() };
        let cache = self.cache.clone();
        self.tasks.spawn(async move { assert!(cache.get(spec, &request).await.is_err()) });
    }
}

/// A caller of another uid.
fn of_other() -> Request {
    let caller = Caller { peer: 2000 << 32 | 1, ..Caller::default() };
    Request { caller, ..Request::default() }
}

#[tokio::test(start_paused = true)]
async fn a_credential_stays_valid_while_another_uid_provokes_throttling() {
    let scene = Scene::new(Duration::MAX..Duration::MAX);
    scene.cache.get(scene.spec("held", None), &of_other()).await.unwrap();
    let mut provoked = 0;
    for second in 0..600 {
        for _ in 0..5 {
            provoked += 1;
            scene.provoke(provoked);
        }
        let asked = Instant::now();
        let answer = scene.cache.get(scene.spec("held", None), &of_other()).await;
        assert!(answer.is_ok(), "after {second} s: {answer:?}");
        assert_eq!(asked.elapsed(), Duration::ZERO, "after {second} s");
        let new = scene.spec(&format!("new {second}"), None);
        if second % 30 == 0 {
            scene.cache.get(new, &of_other()).await.unwrap();
        }
        sleep(secs(1)).await;
    }
    assert!(scene.runner.quoted.load(Ordering::SeqCst) > 500, "each of its keys runs once at least");
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_soon_although_a_uid_provokes_throttling() {
    let scene = Scene::new(secs(10)..secs(30));
    for key in ["held", "other"] {
        scene.cache.get(scene.spec(key, None), &of_other()).await.unwrap();
    }
    sleep(secs(11)).await;
    for key in ["new 1", "new 2"] {
        assert!(scene.cache.get(scene.spec(key, None), &of_other()).await.is_err());
    }
    assert!(scene.cache.get(scene.spec("new 3", None), &of_other()).await.is_err(), "it is paused");
    let mut provoked = 0;
    for _ in 0..600 {
        provoked += 1;
        scene.provoke(provoked);
        for key in ["held", "other"] {
            let held = scene.spec(key, None).key;
            let served = scene.cache.lookup(&held, &of_other().caller, Duration::ZERO);
            assert!(served.is_some(), "{key}");
        }
        sleep(secs(1)).await;
    }
}
