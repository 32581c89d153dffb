//! Tickets, permits and the timer, under paused time.

#![expect(clippy::disallowed_methods, reason = "tokio's paused clock is the tests' clock")]

use std::{
    io,
    num::NonZeroUsize,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::SystemTime,
};

use tokio::{
    task::{JoinHandle, JoinSet, yield_now},
    time::{Instant, timeout},
};

use super::{throttling::Throttling, *};
use credbroker_credential::{DecodeError, Decoded, Material};
use credbroker_observe::clock::Now;
use credbroker_plugin::{Command, Issuer, PluginKey, testing::provider as test_provider};

/// Follows tokio's paused clock, plus the time of suspends.
#[derive(Debug)]
struct SchedulerClock {
    start: Instant,
    /// Seconds of suspend, during which tokio's clock stops.
    asleep: AtomicU64,
    is_broken: AtomicBool,
}

impl Clock for SchedulerClock {
    fn now(&self) -> Now {
        assert!(!self.is_broken.load(Ordering::SeqCst), "broken on purpose");
        let boot = self.start.elapsed() + secs(self.asleep.load(Ordering::SeqCst));
        Now { wall: SystemTime::UNIX_EPOCH + boot, boot }
    }
}

struct Setup {
    scheduler: Scheduler,
    clock: Arc<SchedulerClock>,
    timer: JoinHandle<()>,
}

fn setup(runs: usize) -> Setup {
    let clock = Arc::new(SchedulerClock {
        start: Instant::now(),
        asleep: AtomicU64::new(0),
        is_broken: AtomicBool::new(false),
    });
    let scheduler = Scheduler::new(runs, Arc::clone(&clock) as Arc<dyn Clock>, || 0.5);
    let timer = scheduler.clone();
    let timer = tokio::spawn(async move { timer.keep_time().await });
    Setup { scheduler, clock, timer }
}

impl Setup {
    /// Queues a run that the configuration alone defines, with another key each time.
    fn enter(&self, provider: &Arc<Provider>, urgency: Urgency) -> Ticket {
        static KEYS: AtomicU64 = AtomicU64::new(0);
        let mut key = [0; 32];
        key[..8].copy_from_slice(&KEYS.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        self.scheduler.enter(provider, urgency, RunSource::Configuration(PluginKey(key)))
    }

    async fn permit(&self, provider: &Arc<Provider>, urgency: Urgency) -> RunPermit {
        self.enter(provider, urgency).turn().await.unwrap()
    }

    /// One run that is throttled. It pauses its key only.
    async fn throttle_once(&self, provider: &Arc<Provider>) {
        let pause =
            self.permit(provider, WAITED).await.finish(&failed("HTTP 429"), true, ForeignTexts::default);
        assert_eq!(pause, Some(secs(60)));
    }

    /// Two runs that are throttled; the pause lasts a minute.
    async fn throttle(&self, provider: &Arc<Provider>) {
        self.throttle_once(provider).await;
        assert_eq!(self.scheduler.paused(provider), None);
        self.throttle_once(provider).await;
        assert_eq!(self.scheduler.paused(provider), Some(secs(60)));
    }

    /// Seconds since the test's start, by tokio's clock.
    fn elapsed(&self) -> Duration {
        self.clock.start.elapsed()
    }
}

const WAITED: Urgency = Urgency::Waited { peer: 1 };

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A provider with an issuer of 2 runs in a second.
fn provider(name: &str) -> Arc<Provider> {
    let count = |count| NonZeroUsize::new(count).unwrap();
    let issuer = Issuer { name: "idp".into(), runs_per_second: count(2), concurrency: count(10) };
    Arc::new(Provider { issuer: Arc::new(issuer), ..test_provider(name, Command::Name(name.into())) })
}

fn failed(stderr: &str) -> Result<Decoded, RunError> {
    Err(RunError { stderr: stderr.into(), ..RunError::new("p", RunErrorKind::Exit(1)) })
}

fn decoded() -> Decoded {
    Decoded { material: Material { token: None, pair: None }, expires_at: None, warnings: Vec::new() }
}

/// Whether the run still waits for its turn.
async fn waits(turn: &mut (impl Future<Output = Result<RunPermit, Duration>> + Unpin)) -> bool {
    timeout(Duration::ZERO, turn).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn the_next_run_gets_the_slot_of_a_permit_that_is_dropped_or_finished() {
    let (setup, provider) = (setup(1), provider("p"));
    let first = setup.permit(&provider, WAITED).await;
    let mut second = Box::pin(setup.enter(&provider, WAITED).turn());
    assert!(waits(&mut second).await);
    drop(first);
    second.await.unwrap().finish(&Ok(decoded()), true, ForeignTexts::default);
    setup.permit(&provider, Urgency::Background).await.finish(&failed("no"), true, ForeignTexts::default);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_is_dropped_leaves_no_trace() {
    let (setup, provider) = (setup(1), provider("p"));
    let held = setup.permit(&provider, WAITED).await;
    drop(setup.enter(&provider, WAITED));
    let ticket = setup.enter(&provider, WAITED);
    let handle = ticket.handle.clone();
    let mut polled = Box::pin(ticket.turn());
    assert!(waits(&mut polled).await);
    assert_eq!(
        handle.waits_for(None).unwrap(),
        "all run slots are in use (`limits.pluginRuns`: 1)",
        "the ticket that was dropped does not wait"
    );
    drop(polled);
    assert!(handle.waits_for(None).is_none());
    // A slot that was granted but not used.
    let granted = setup.enter(&provider, WAITED);
    drop(held);
    assert!(granted.handle.waits_for(None).is_none());
    drop(granted);
    drop(setup.permit(&provider, WAITED).await);
    assert!(setup.scheduler.state().tickets.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_that_a_caller_joins_moves_ahead() {
    let (setup, provider) = (setup(1), provider("p"));
    let held = setup.permit(&provider, WAITED).await;
    let enter = |urgency| {
        let ticket = setup.enter(&provider, urgency);
        (ticket.handle.clone(), Box::pin(ticket.turn()))
    };
    let (_, mut refresh) = enter(Urgency::Background);
    let (handle, mut prewarm) = enter(Urgency::Background);
    assert!(waits(&mut refresh).await && waits(&mut prewarm).await);
    handle.join(1).unwrap();
    drop(held);
    let permit = prewarm.await.unwrap();
    handle.part(1); // without effect
    assert!(waits(&mut refresh).await);
    drop(permit);
    drop(refresh.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_timer_starts_runs_when_the_rate_allows_them() {
    let (setup, provider) = (setup(100), provider("p"));
    let mut runs = JoinSet::new();
    for _ in 0..5 {
        let turn = setup.enter(&provider, WAITED).turn();
        let clock = Arc::clone(&setup.clock);
        runs.spawn(async move {
            turn.await.unwrap().finish(&Ok(decoded()), true, ForeignTexts::default);
            clock.start.elapsed().as_secs()
        });
    }
    let mut seconds = runs.join_all().await;
    seconds.sort_unstable();
    assert_eq!(seconds, [0, 0, 1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_timer_ends_its_task() {
    let (setup, provider) = (setup(100), provider("p"));
    setup.throttle(&provider).await;
    let _ticket = setup.enter(&provider, Urgency::Background);
    yield_now().await; // the timer sleeps until the end of the pause
    setup.clock.is_broken.store(true, Ordering::SeqCst);
    assert!(setup.timer.await.unwrap_err().is_panic());
    setup.clock.is_broken.store(false, Ordering::SeqCst);
}

#[tokio::test(start_paused = true)]
async fn a_paused_issuer_refuses_callers_at_once_and_other_runs_wait() {
    let (setup, provider) = (setup(100), provider("p"));
    setup.throttle(&provider).await;
    let retry_after = setup.enter(&provider, WAITED).turn().await.unwrap_err();
    assert_eq!(retry_after, secs(60));
    let (command, name) = ("/bin/p", Arc::clone(&provider.name));
    let issuer = Arc::clone(&provider.issuer.name);
    let refused = RunError::new(
        command,
        RunErrorKind::Throttled { provider: name, issuer, of_key: false, retry_after },
    );
    insta::assert_snapshot!(refused, @"plugin `/bin/p` was not started: issuer `idp` asked for fewer runs and is paused for another 60 s; to run it now, use `credbroker refresh p`");
    let ticket = setup.enter(&provider, Urgency::Urgent { uid: None });
    let waits_for = ticket.handle.waits_for(None).unwrap();
    insta::assert_snapshot!(waits_for, @"issuer `idp` asked for fewer runs and is paused for another 60 s");
    let permit = ticket.turn().await.unwrap();
    assert_eq!(setup.elapsed(), secs(15), "it is the first probe");
    permit.finish(&Ok(decoded()), true, ForeignTexts::default);
    assert_eq!(setup.scheduler.paused(&provider), None);
}

#[tokio::test(start_paused = true)]
async fn callers_that_wait_when_a_pause_begins_are_refused() {
    let (setup, provider) = (setup(1), provider("p"));
    setup.throttle_once(&provider).await;
    let running = setup.permit(&provider, Urgency::Background).await;
    let (caller, refresh) =
        (setup.enter(&provider, Urgency::Waited { peer: 2 }), setup.enter(&provider, Urgency::Background));
    running.finish(&failed("Throttling: Rate exceeded | Retry-After: 7"), true, ForeignTexts::default);
    assert_eq!(caller.turn().await.unwrap_err(), secs(7));
    let handle = refresh.handle.clone();
    let mut refresh = Box::pin(refresh.turn());
    assert!(waits(&mut refresh).await);
    assert_eq!(handle.join(1).unwrap_err(), secs(7), "a caller that joins it is refused");
    assert!(waits(&mut refresh).await, "and it stays");
    setup.permit(&provider, Urgency::Forced).await.finish(&Ok(decoded()), true, ForeignTexts::default);
    drop(refresh.await.unwrap());
    setup.permit(&provider, WAITED).await.finish(&Ok(decoded()), true, ForeignTexts::default);
}

#[tokio::test(start_paused = true)]
async fn a_pause_continues_during_a_suspend() {
    let (setup, provider) = (setup(1), provider("p"));
    setup.throttle(&provider).await;
    let ticket = setup.enter(&provider, Urgency::Background);
    yield_now().await; // the timer waits
    setup.clock.asleep.store(3600, Ordering::SeqCst);
    drop(ticket.turn().await.unwrap());
    assert!(setup.elapsed() <= secs(1), "it is noticed within a second");
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_says_what_it_waits_for() {
    let setup = setup(2);
    let provider = provider("p");
    let wait = || setup.enter(&provider, WAITED);
    let mut shown = Vec::new();
    let mut show = |tickets: &[Ticket]| {
        shown.push(tickets.last().unwrap().handle.waits_for(None).unwrap());
    };
    let held = [setup.permit(&provider, WAITED).await, setup.permit(&provider, WAITED).await];
    show(&[wait(), wait(), wait()]);
    sleep(secs(1)).await;
    show(&[wait(), wait()]);
    drop(held);
    let issuer = Arc::new(Issuer::new("slow", NonZeroUsize::MIN));
    let other = Arc::new(Provider { issuer, ..(*provider).clone() });
    let held = setup.permit(&other, WAITED).await;
    show(&[setup.enter(&other, WAITED)]);
    drop(held);
    setup.throttle(&provider).await;
    sleep(secs(60)).await;
    let probe = setup.permit(&provider, Urgency::Background).await;
    show(&[wait()]);
    drop(probe);
    insta::assert_snapshot!(shown.join("\n"), @r"
issuer `idp` is at its limit of runs per second (2); 2 other runs of the provider wait
all run slots are in use (`limits.pluginRuns`: 2); 1 other run of the provider waits
issuer `slow` is at its limit of concurrent runs (1)
issuer `idp` asked for fewer runs, and one run tests whether it accepts runs again
");
}

#[test]
fn a_permit_may_outlive_its_runtime() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let provider = provider("p");
    let (setup, held, ticket) = runtime.block_on(async {
        let setup = setup(1);
        setup.throttle_once(&provider).await;
        let held = setup.permit(&provider, WAITED).await;
        drop(setup.permit(&provider, Urgency::Background));
        let ticket = setup.enter(&provider, WAITED);
        (setup, held, ticket)
    });
    drop(runtime);
    held.finish(&failed("429"), true, ForeignTexts::default);
    drop(ticket);
    assert!(setup.scheduler.paused(&provider).is_some());
}

#[test]
fn only_the_stderr_of_failed_runs_shows_that_the_issuer_throttles() {
    let command = || Arc::<str>::from("429"); // names mean nothing
    let stderr = || Arc::<str>::from("HTTP 429");
    let after = |retry_after| Outcome::Throttled(Throttling { retry_after });
    let (long, second) = (Duration::from_secs(30), Duration::from_secs(1));
    for (error, expected) in [
        (RunError { stderr: stderr(), ..RunError::new(command(), RunErrorKind::Exit(1)) }, after(None)),
        (RunError { stderr: stderr(), ..RunError::new(command(), RunErrorKind::Signal(9)) }, after(None)),
        (
            RunError {
                stderr: "Retry-After: 1".into(),
                ..RunError::new(command(), RunErrorKind::Timeout(long, "timeout"))
            },
            after(Some(second)),
        ),
        (
            RunError { stderr: "no".into(), ..RunError::new(command(), RunErrorKind::Exit(429)) },
            Outcome::Reached,
        ),
        (RunError::new(command(), RunErrorKind::Decode(DecodeError::Empty)), Outcome::Reached),
        (RunError::new(command(), RunErrorKind::OutputTooLarge(429)), Outcome::Reached),
        (RunError::new(command(), RunErrorKind::NotFound(". 429".into())), Outcome::Unknown),
        (
            RunError::new(command(), RunErrorKind::Spawn(Arc::new(io::ErrorKind::NotFound.into()))),
            Outcome::Unknown,
        ),
    ] {
        assert_eq!(outcome::<()>(&Err(error.clone()), ForeignTexts::default), expected, "{error}");
    }
    assert_eq!(outcome(&Ok(()), ForeignTexts::default), Outcome::Success);
}
