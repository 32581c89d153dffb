//! The plugins and their issuers.

use std::{
    collections::VecDeque,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::sleep;

use super::{
    super::token as decoded,
    fleet::{VARIABLE, hides, identity, index},
    keys::{Content, Held, Issuance, IssuedToken, KeyModel, Reading},
    model::{Model, Shared, since, text_of},
    peers::StartedRun,
    persons::asks_person,
};
use credbroker_plugin::PluginSpec;
use credbroker_runner::{Attendance, PluginRunner, RunError, RunErrorKind, RunOutput};

/// How an issuer behaves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum IssuerMode {
    #[default]
    Healthy,
    /// Some of its runs take longer than their timeout.
    Slow,
    Failing,
    /// Every other run fails.
    Flaky,
    /// It asks for fewer runs, for this many seconds if it names a time.
    Throttling(Option<u64>),
    /// The plugin caches its credential.
    Same,
    /// It returns the same token with a later expiry.
    Extending,
    /// Its credentials expired this many seconds before the run.
    Expired(u64),
}

/// The oracle's model of one issuer.
#[derive(Debug, Default)]
pub(super) struct IssuerModel {
    pub(super) mode: IssuerMode,
    /// How long a run takes.
    pub(super) takes: Duration,
    /// When it began to work (time awake): runs that started before may still fail.
    pub(super) healthy_since: Duration,
    /// The earliest end of the pause, and below the latest: time since boot.
    pub(super) paused_until: Duration,
    pub(super) paused_at_most: Duration,
    pub(super) paused_since: Duration,
    /// The number of pauses that began, and of those that all later starts know of.
    begun: u64,
    active: u64,
    /// The runs in the pause.
    pub(super) probes: u64,
    /// The last throttled key, and when: two keys are throttled before the issuer is paused.
    last_throttled: Option<(usize, Duration)>,
    /// The last throttled key of any kind, and since when a pause may have begun with such runs: time since boot.
    any_throttled: Option<usize>,
    maybe_since: Option<Duration>,
    /// Until then it may start fewer runs than its limits allow: time since boot.
    pub(super) disturbed_until: Duration,
    /// When a run was throttled last: time since boot.
    disturbed_since: Duration,
    pub(super) running: usize,
    /// When its runs started: time since boot.
    pub(super) starts: VecDeque<Duration>,
}

impl IssuerModel {
    pub(super) fn forget_starts(&mut self) {
        self.starts.clear();
    }

    pub(super) fn change(&mut self, mode: IssuerMode, is_crowded: bool, now: Reading) {
        self.mode = mode;
        self.takes = Duration::from_millis(if is_crowded {
            fastrand::u64(200..4000)
        } else {
            fastrand::u64(20..1500)
        });
        self.healthy_since = if mode == IssuerMode::Healthy { now.awake + secs(31) } else { Duration::MAX };
    }

    /// Returns the latest end of the pause of the key.
    fn throttled(&mut self, run: &Run, retry_after: Option<u64>, now: Reading) -> Duration {
        (self.disturbed_until, self.disturbed_since) = (Duration::MAX, now.boot);
        let (least, most) = retry_after.map_or((48, 73), |secs| (secs.min(60), secs + 1));
        if self.any_throttled.replace(run.key).is_some_and(|key| key != run.key) {
            self.maybe_since.get_or_insert(now.boot);
        }
        let before = if run.is_plain { self.last_throttled.replace((run.key, now.boot)) } else { None };
        let is_second = before.is_some_and(|(key, at)| key != run.key && now.boot < at + secs(120));
        if now.boot < self.paused_until {
            if run.pauses == self.begun {
                self.paused_until = self.paused_until.max(now.boot + secs(least));
            }
        } else if is_second {
            (self.paused_until, self.paused_since, self.probes) = (now.boot + secs(least), now.boot, 0);
            self.begun += 1;
        }
        self.paused_at_most = self.paused_at_most.max(now.boot + secs(most));
        now.boot + secs(most)
    }

    /// A run failed for another reason than too many runs, which may end a pause.
    fn is_reached(&mut self, now: Reading) {
        (self.last_throttled, self.any_throttled, self.maybe_since) = (None, None, None);
        self.paused_until = self.paused_until.min(now.boot);
    }

    /// Whether all runs that start now had their turns in the pause.
    pub(super) fn is_active(&self) -> bool {
        self.active == self.begun
    }

    /// `run` brought a credential, which ends a pause.
    fn succeeded(&mut self, run: &Run, now: Reading) {
        self.last_throttled = None;
        // Two uids begin a pause too, so it may have begun before the model knows, and before this run.
        let is_in_it = self.maybe_since.is_some_and(|since| since <= run.started.boot);
        if run.pauses < self.begun && !is_in_it {
            return;
        }
        (self.any_throttled, self.maybe_since) = (None, None);
        self.paused_until = self.paused_until.min(now.boot);
        if self.disturbed_until == Duration::MAX && run.started.boot > self.disturbed_since {
            self.disturbed_until = now.boot;
        }
    }
}

/// A plugin run in progress.
pub(super) struct Run {
    pub(super) key: usize,
    pub(super) identity: u64,
    /// The configuration alone defines it.
    is_plain: bool,
    pub(super) started: Reading,
    /// The pauses of its issuer before its turn.
    pauses: u64,
    pub(super) evictions: u64,
    /// It may be the run from before or from after an eviction.
    pub(super) unsure: bool,
    /// It may be a run for a longer lifetime.
    is_for_more: bool,
    pub(super) mode: IssuerMode,
    pub(super) version: u64,
    pub(super) number: u64,
}

/// Simulates plugins.
pub(super) struct Plugins(pub(super) Shared);

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plugins")
    }
}

/// Records the end of a run, also if it is dropped.
struct Going<'a>(&'a Shared, Run);

impl Drop for Going<'_> {
    fn drop(&mut self) {
        let Self(model, run) = self;
        let mut model = model.lock().unwrap();
        let now = model.now();
        let key = &mut model.keys[run.key];
        // The outcome of a run from before an eviction is not kept, so it does not answer a later suspicion.
        if run.evictions == key.evictions {
            key.ended = now.awake;
        }
        let index = key.running.iter().position(|evictions| *evictions == run.evictions);
        key.running.remove(index.unwrap());
        let issuer = key.issuer;
        model.issuers[issuer].running -= 1;
        model.evicts_for(None);
        let number = run.number;
        model.started.end(number, now);
        model.event(|| format!("run {number} is over"));
    }
}

impl Plugins {
    /// A pause of the issuer of `key` may have begun now. Runs that had their turns at this moment but before it may start
    /// after it: one end may open the gate for many runs, and the next one begin the pause. Tasks go on in the order in which
    /// they are woken: those runs start before the task of here, and those that the broker lets start from now on after it.
    fn pauses_begin(&self, key: usize) {
        let model = Arc::clone(&self.0);
        let issuer = model.lock().unwrap().keys[key].issuer;
        if !model.lock().unwrap().issuers[issuer].is_active() {
            tokio::spawn(async move {
                let known = &mut model.lock().unwrap().issuers[issuer];
                known.active = known.begun;
            });
        }
    }
}

impl PluginRunner for Plugins {
    async fn run(&self, spec: Arc<PluginSpec>, attendance: Arc<Attendance>) -> Result<RunOutput, RunError> {
        let file_version = spec.file.version();
        let (going, takes) = {
            let mut model = self.0.lock().unwrap();
            let (run, takes) = model.starts(&spec, file_version);
            (Going(&self.0, run), takes)
        };
        let has_terminal = attendance.lender.is_some();
        let login = self.0.lock().unwrap().needs_person(going.1.key, has_terminal);
        if let Some(login) = login
            && let Err(error) = asks_person(&self.0, &spec, &attendance, login).await
        {
            // Without the terminal, the run has no outcome.
            if !matches!(error, RunError { kind: RunErrorKind::TerminalLost(_), .. }) {
                let mut model = self.0.lock().unwrap();
                let (issuer, now) = (model.keys[going.1.key].issuer, model.now());
                model.issuers[issuer].is_reached(now);
                model.failed(&going.1);
            }
            return Err(error);
        }
        if takes > spec.provider.timeout {
            sleep(spec.provider.timeout).await;
            let (command, limit) = (Arc::from("fake"), spec.provider.timeout);
            let error = RunError::new(command, RunErrorKind::Timeout(limit, "timeout"));
            self.0.lock().unwrap().failed(&going.1);
            return Err(error);
        }
        sleep(takes).await;
        let issued = self.0.lock().unwrap().ends(&going.1);
        self.pauses_begin(going.1.key);
        let (text, expires) = issued.map_err(|mut stderr| {
            // What the caller of a run sent is not what its issuer says.
            if let Some(value) = spec.caller_env.get(VARIABLE) {
                stderr = format!("The config profile ({value}) could not be found: {stderr}");
            }
            RunError { stderr: stderr.into(), ..RunError::new("fake", RunErrorKind::Exit(1)) }
        })?;
        Ok(RunOutput { decoded: decoded(&text, expires), file_version })
    }
}

impl Model {
    fn starts(&mut self, spec: &PluginSpec, version: u64) -> (Run, Duration) {
        let (now, key, identity) = (self.now(), index(spec), identity(spec));
        self.judge_start(key, now);
        let retired = self.keys[key].retired.is_some_and(|at| at < now.awake);
        if retired && spec.provider.state.retirement().is_some() {
            self.broken(|| format!("a run of key {key}, whose provider was retired"));
        }
        let number = self.number();
        let known = &mut self.keys[key];
        let (evictions, unsure) = (known.evictions, !known.detached.is_empty());
        let is_for_more = !known.needs.is_empty();
        known.running.push(evictions);
        // A run of before an eviction does not answer a refresh of after it.
        known.refresh_asked &= unsure;
        let issuer = &mut self.issuers[known.issuer];
        issuer.running += 1;
        let pauses = issuer.active;
        let random = &mut known.random.0;
        let mode = match issuer.mode {
            IssuerMode::Flaky if random.bool() => IssuerMode::Failing,
            IssuerMode::Flaky => IssuerMode::Healthy,
            mode => mode,
        };
        let takes = match mode {
            IssuerMode::Slow => Duration::from_millis(random.u64(5_000..33_000)),
            _ => issuer.takes,
        };
        let plugin = &self.catalog.plugins[self.keys[key].plugin];
        let is_plain = spec.caller_env.is_empty() && spec.target.is_none();
        let run = StartedRun::new(spec, plugin.asks_persons(), &self.keys[key], now);
        self.started.start(number, run);
        self.event(|| {
            format!(
                "run {number} of {key}, identity {identity:04x}, starts: {mode:?}, {takes:?}, unsure {unsure}"
            )
        });
        (
            Run {
                key,
                identity,
                is_plain,
                started: now,
                pauses,
                evictions,
                unsure,
                is_for_more,
                mode,
                version,
                number,
            },
            takes,
        )
    }

    /// The output of the plugin: a token and its expiry, or the text on stderr.
    fn ends(&mut self, run: &Run) -> Result<(String, SystemTime), String> {
        let now = self.now();
        let issuer = self.keys[run.key].issuer;
        match run.mode {
            IssuerMode::Failing => {
                self.issuers[issuer].last_throttled = None;
                self.failed(run);
                return Err("the directory is down".into());
            }
            IssuerMode::Throttling(retry_after) => {
                self.failed(run);
                let (name, time) = match retry_after {
                    Some(secs) => ("Retry-After", format!(": {secs}")),
                    None => ("Rate exceeded", String::new()),
                };
                // Of what the caller may have sent, nothing is believed: neither the throttling nor its time.
                if hides(run.key, name) {
                    self.issuers[issuer].last_throttled = None;
                } else {
                    let retry_after = retry_after.filter(|_| !hides(run.key, &time));
                    let until = self.issuers[issuer].throttled(run, retry_after, now);
                    self.keys[run.key].throttled_until = until;
                }
                return Err(format!("{name}{time}"));
            }
            _ => {}
        }
        self.issuers[issuer].succeeded(run, now);
        let lifetime = self.catalog.plugins[self.keys[run.key].plugin].lifetime;
        let lifetime = lifetime.mul_f64(0.9 + 0.2 * self.keys[run.key].random.0.f64());
        let old = self.keys[run.key].last_token;
        let old = old.filter(|old| self.tokens[*old].identity == run.identity);
        let (token, named) = match (run.mode, old) {
            (IssuerMode::Same, Some(old)) => (old, self.tokens[old].named),
            (IssuerMode::Extending, Some(old)) => (old, now.wall + lifetime),
            (IssuerMode::Expired(ago), _) => (self.tokens.len(), now.wall - secs(ago)),
            _ => (self.tokens.len(), now.wall + lifetime),
        };
        if token == self.tokens.len() {
            self.tokens.push(IssuedToken {
                key: run.key,
                identity: run.identity,
                named,
                issuances: Vec::new(),
                revoked: false,
            });
        }
        self.tokens[token].named = named;
        self.keys[run.key].last_token = Some(token);
        self.lands(run, token, named);
        Ok((text_of(run.key, token), named))
    }

    fn lands(&mut self, run: &Run, token: usize, named: SystemTime) {
        let now = self.now();
        // A credential that expired less than five minutes ago is served for ten seconds.
        let lent = named <= now.wall;
        if since(named, now.wall) > secs(300) {
            return self.failed(run);
        }
        let expires = if lent { now.wall + secs(10) } else { named };
        let lifetime = since(now.wall, expires);
        let until = now.boot + lifetime;
        self.tokens[token].issuances.push(Issuance { expires, until, evictions: run.evictions });
        let number = run.number;
        self.event(|| format!("run {number} brings {} for {lifetime:?}", text_of(run.key, token)));
        let known = &mut self.keys[run.key];
        if run.evictions != known.evictions {
            return;
        }
        (known.back_off_since, known.attempts) = (None, 0);
        let due_in = if lent { (lifetime, lifetime) } else { due_in(lifetime) };
        let held = Held { token, expires, until, lifetime, landed: now, due_in, version: run.version };
        known.content = match known.content {
            _ if run.unsure || !known.detached.is_empty() => Content::Unsure,
            Content::Unsure
                if run.is_for_more || !matches!(run.mode, IssuerMode::Healthy | IssuerMode::Expired(_)) =>
            {
                Content::Unsure
            }
            // A run for a longer lifetime keeps what lives longer.
            Content::Held(old) if run.is_for_more && old.token != token && old.left(now) > lifetime => {
                Content::Unsure
            }
            Content::Held(old) if old.token == token && known.lapsed => Content::Unsure,
            Content::Held(old) if old.token == token && old.expires == expires && old.is_valid_at(now) => {
                let again = (old.left(now) / 3).clamp(secs(10), secs(300));
                let still = if run.is_for_more { old.still_due_in(now) } else { (again, again) };
                Content::Held(Held {
                    until: old.until,
                    lifetime: old.lifetime,
                    due_in: (again.min(still.0), again.max(still.1)),
                    ..held
                })
            }
            _ => Content::Held(held),
        };
        known.lapsed = false;
    }

    fn failed(&mut self, run: &Run) {
        let now = self.now();
        let known = &mut self.keys[run.key];
        known.failed = Some((now.boot, now.awake));
        if run.evictions == known.evictions {
            let sure = !run.unsure && known.detached.is_empty();
            known.back_off_since = sure.then_some(now.boot);
            known.attempts += 1;
        }
        let number = run.number;
        self.event(|| format!("run {number} fails"));
    }
}

impl KeyModel {
    /// Whether a caller waits for its run. A prewarm is not a caller.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.values().any(|waiting| waiting.kind != super::keys::RequestKind::Watch || waiting.cold)
    }
}

/// The earliest and the latest time to the refresh of a credential with this lifetime.
fn due_in(left: Duration) -> (Duration, Duration) {
    if left < secs(720) {
        return (left.mul_f64(0.7), left.mul_f64(0.8));
    }
    let lead =
        |share: f64, margin: u64, most: f64| left.mul_f64(share).max(secs(margin).min(left.mul_f64(most)));
    (left.saturating_sub(lead(0.30, 450, 0.52)), left.saturating_sub(lead(0.20, 360, 0.42)))
}

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
