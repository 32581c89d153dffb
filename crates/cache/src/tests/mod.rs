//! The cache under paused time, with a runner that starts no process.

#![expect(clippy::disallowed_methods, reason = "tokio's paused clock is the tests' clock")]
#![expect(clippy::unchecked_time_subtraction, reason = "of constants")]

mod abandoning;
mod accounts;
mod cell;
mod forgetting;
mod lasting;
mod leasing;
mod promises;
mod prompts;
mod rejection;
mod retiring;
mod room;
mod schedule;
mod selecting;
mod simulation;
mod status;
mod suspicion;
mod throttling;
mod time;
mod watching;

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{CacheParts, Caller, CredentialCache, EntryLimits, Failed, Full, Request, Selector};
use crate::Verdict;
use credbroker_credential::{Decoded, Material, Token};
use credbroker_observe::clock::{Clock, Now};
use credbroker_plugin::{
    Command, Issuer, PluginFile, PluginKey, PluginSpec, ProfileName, Provider, Providers, Target,
    cluster_profile::{ClusterProfile, EndpointRules, resolve},
    testing::provider as test_provider,
};
use credbroker_runner::{Attendance, PluginRunner, RunError, RunErrorKind, RunOutput, Scheduler};

/// How long a fake run takes.
const RUN: Duration = Duration::from_secs(2);

/// The result of a run.
#[derive(Clone, Copy, Debug)]
enum Script {
    /// A new token with this lifetime.
    Token(Duration),
    /// The same token each time, which expires this time after the start of the test.
    Same(Duration),
    /// A new token that expired this time ago.
    Expired(Duration),
    /// A new token for an hour, after a run that takes this time.
    Late(Duration),
    /// Exit code 1.
    Fail,
    /// Exit code 1: the issuer asks for a pause.
    Throttle(Duration),
    /// The plugin prints a prompt, and a user needs this time to log in; then as `Late`.
    Login(Duration),
    /// Needs a terminal; with one, as `Token`.
    Insist(Duration),
    /// The caller in whose terminal it ran has left.
    Leave,
    /// A bug.
    Panic,
}

/// Follows its script, and repeats its last step.
#[derive(Debug)]
struct FakeRunner {
    script: Mutex<VecDeque<Script>>,
    runs: AtomicUsize,
    clock: Arc<FakeClock>,
}

/// Both clocks follow tokio's paused clock, plus steps and suspends.
#[derive(Debug)]
pub(super) struct FakeClock {
    start: Instant,
    /// Milliseconds by which the wall clock was stepped.
    stepped: AtomicI64,
    /// Milliseconds of suspend, which tokio's clock does not count.
    asleep: AtomicU64,
}

struct Setup {
    cache: CredentialCache<FakeRunner>,
    runner: Arc<FakeRunner>,
    clock: Arc<FakeClock>,
    /// The plugin's file in some tests.
    file: Arc<PluginFile>,
    tasks: TaskTracker,
    draining: CancellationToken,
}

/// A cache of 100 keys whose runner takes [`RUN`] and follows `script`, with its maintenance.
fn setup(script: &[Script]) -> Setup {
    setup_with(100, script)
}

fn setup_with(entries: usize, script: &[Script]) -> Setup {
    setup_within(EntryLimits::for_tests(entries), script)
}

fn setup_within(entries: EntryLimits, script: &[Script]) -> Setup {
    let clock = Arc::new(FakeClock::new());
    let runner = Arc::new(FakeRunner {
        script: Mutex::new(script.iter().copied().collect()),
        runs: AtomicUsize::new(0),
        clock: Arc::clone(&clock),
    });
    let (tasks, draining) = (TaskTracker::new(), CancellationToken::new());
    let parts =
        CacheParts::for_tests(Arc::clone(&runner), Arc::clone(&clock) as Arc<dyn Clock>, &tasks, &draining);
    let cache = CredentialCache::new(CacheParts { entries, ..parts });
    let keeper = cache.clone();
    tasks.spawn(async move { keeper.keep_fresh(credbroker_observe::clock::Beat::start()).await });
    let file = Arc::new(PluginFile::new(Command::Path("/fake".into()), None));
    Setup { cache, runner, clock, file, tasks, draining }
}

impl Setup {
    /// Gets the key that most tests use, and returns its generation.
    async fn ask(&self) -> Result<String, Failed> {
        self.cache.get(spec("a"), &Request::default()).await.map(|issued| issued.generation.to_string())
    }

    /// Plugin runs so far.
    fn runs(&self) -> usize {
        self.runner.runs.load(Ordering::SeqCst)
    }
}

impl FakeClock {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), stepped: AtomicI64::new(0), asleep: AtomicU64::new(0) }
    }

    /// The time that tokio's clock counts.
    pub(super) fn awake(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn step(&self, millis: i64) {
        self.stepped.fetch_add(millis, Ordering::SeqCst);
    }

    pub(super) fn suspend(&self, time: Duration) {
        self.asleep.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Now {
        let boot = self.start.elapsed() + Duration::from_millis(self.asleep.load(Ordering::SeqCst));
        let stepped = self.stepped.load(Ordering::SeqCst);
        let step = Duration::from_millis(stepped.unsigned_abs());
        let wall = base() + boot;
        Now { wall: if stepped < 0 { wall - step } else { wall + step }, boot }
    }
}

impl PluginRunner for FakeRunner {
    async fn run(&self, spec: Arc<PluginSpec>, attendance: Arc<Attendance>) -> Result<RunOutput, RunError> {
        let file_version = spec.file.version();
        let number = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let script = {
            let mut script = self.script.lock().unwrap();
            if script.len() > 1 { script.pop_front().unwrap() } else { *script.front().unwrap() }
        };
        let takes = if let Script::Late(takes) | Script::Login(takes) = script { takes } else { RUN };
        attendance.started(&spec.provider);
        tokio::select! {
            () = tokio::time::sleep(takes) => {}
            limit = attendance.used_up(), if matches!(script, Script::Login(_)) => {
                let (command, stderr) = ("fake", "enter a code".into());
                return Err(RunError { stderr, ..RunError::new(command, RunErrorKind::Timeout(limit, "timeout")) });
            }
        }
        let now = self.clock.now().wall;
        let decoded = match script {
            Script::Late(_) | Script::Login(_) => token(&format!("token-{number}"), now + mins(60)),
            Script::Token(lifetime) => token(&format!("token-{number}"), now + lifetime),
            Script::Same(until) => token("the same", base() + until),
            Script::Expired(ago) => token(&format!("token-{number}"), now - ago),
            Script::Fail => return Err(failure("no")),
            Script::Throttle(pause) => {
                return Err(failure(&format!("Retry-After: {}", pause.as_secs())));
            }
            Script::Insist(lifetime) if attendance.lender.is_some() => {
                token(&format!("token-{number}"), now + lifetime)
            }
            Script::Insist(_) => {
                return Err(RunError::new("fake", RunErrorKind::NeedsTerminal));
            }
            Script::Leave => return Err(RunError::new("fake", RunErrorKind::TerminalLost(7))),
            Script::Panic => panic!("a bug in the runner"),
        };
        Ok(RunOutput { decoded, file_version })
    }
}

fn failure(stderr: &str) -> RunError {
    RunError { stderr: stderr.into(), ..RunError::new("fake", RunErrorKind::Exit(1)) }
}

pub(super) fn token(text: &str, expires_at: SystemTime) -> Decoded {
    let token = Token { secret: text.into(), expires_at: None };
    let material = Material { token: Some(token), pair: None };
    Decoded { material, expires_at: Some(expires_at), warnings: Vec::new() }
}

/// The caller of that name, in a separate process.
fn caller(name: &str) -> Request {
    let name = name.bytes().fold(7, |hash: u64, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    Request { caller: Caller { name, peer: name, ..Caller::default() }, ..Request::default() }
}

/// A different key for each text.
pub(super) fn spec(text: &str) -> PluginSpec {
    let mut key = [0; 32];
    key[..text.len()].copy_from_slice(text.as_bytes());
    let command = Command::Path("/fake".into());
    let many = NonZeroUsize::new(10_000).unwrap();
    let issuer = Arc::new(Issuer { name: "fake".into(), runs_per_second: many, concurrency: many });
    PluginSpec {
        key: PluginKey(key),
        provider: Arc::new(Provider { issuer, ..test_provider("fake", command.clone()) }),
        file: Arc::new(PluginFile::new(command, None)),
        cluster: None,
        caller_env: BTreeMap::new(),
        target: None,
    }
}

/// The target of `fleet/PROFILE` at that server.
pub(super) fn target(profile: &str, server: &str) -> Arc<Target> {
    let provider = Arc::new(test_provider("fake", Command::Path("/fake".into())));
    let cluster = json!({"server": format!("https://{server}")});
    let status = json!({"accessProviders": [{"name": "fake", "cluster": cluster}]});
    let profile = ClusterProfile::read(profile_name(profile), &Value::Null, &status);
    resolve(&profile, &[provider], EndpointRules::default()).outcome.unwrap()
}

fn profile_name(profile: &str) -> ProfileName {
    ProfileName::new("fleet", profile)
}

/// Selects the keys of the provider of that name.
fn of(provider: &str) -> Selector {
    Selector::Provider(provider.into())
}

fn base() -> SystemTime {
    SystemTime::UNIX_EPOCH + secs(1_800_000_000)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn mins(mins: u64) -> Duration {
    secs(60 * mins)
}
