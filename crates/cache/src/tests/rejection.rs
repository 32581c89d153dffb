//! Reports, and callers that ask again.

use tokio::time::sleep;

use super::{Script::*, *};
use crate::ReportOutcome::{self, *};

impl Setup {
    async fn report(&self, generation: &str) -> Result<String, Failed> {
        self.report_outcome(generation).await.map(|(generation, _)| generation)
    }

    async fn report_outcome(&self, generation: &str) -> Result<(String, ReportOutcome), Failed> {
        let reported = self.cache.report(spec("a"), generation, &Request::default()).await?;
        Ok((reported.issued.generation.to_string(), reported.outcome))
    }

    async fn ask_as(&self, name: &str) -> Result<String, Failed> {
        self.cache.get(spec("a"), &caller(name)).await.map(|issued| issued.generation.to_string())
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_concurrent_reports_of_a_generation_are_one_run() {
    let setup = setup(&[Token(mins(60))]);
    setup.ask().await.unwrap();
    sleep(secs(10)).await;
    let reports: Vec<_> = (0..20)
        .map(|_| {
            let cache = setup.cache.clone();
            setup.tasks.spawn(async move {
                let reported = cache.report(spec("a"), "test-1", &Request::default()).await.unwrap();
                (reported.issued.generation.to_string(), reported.outcome)
            })
        })
        .collect();
    for report in reports {
        assert_eq!(report.await.unwrap(), ("test-2".into(), Replaced));
    }
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_report_says_what_was_done() {
    let setup = setup(&[Token(mins(60)), Token(mins(60)), Same(mins(600))]);
    let outcome = async |generation: &str| setup.report_outcome(generation).await.unwrap();
    setup.ask().await.unwrap();
    sleep(secs(4)).await;
    assert_eq!(outcome("test-1").await, ("test-1".into(), TooEarly { retry_after: secs(6) }));
    sleep(secs(6)).await;
    assert_eq!(outcome("test-1").await, ("test-2".into(), Replaced));
    assert_eq!(outcome("test-1").await, ("test-2".into(), AlreadyReplaced));
    sleep(secs(60)).await;
    assert_eq!(outcome("test-2").await, ("test-3".into(), Replaced));
    sleep(secs(60)).await;
    assert_eq!(outcome("test-3").await, ("test-3".into(), NothingNewer));
    for unknown in ["", "test", "test-0", "test-4", "test-01", "another-1", "test-18446744073709551616"] {
        assert_eq!(outcome(unknown).await, ("test-3".into(), UnknownGeneration), "{unknown}");
    }
    assert_eq!(setup.runs(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_generation_of_another_key_is_unknown() {
    let setup = setup(&[Token(mins(60))]);
    for key in ["b", "a", "c"] {
        setup.cache.get(spec(key), &Request::default()).await.unwrap();
    }
    assert_eq!(setup.report_outcome("test-1").await.unwrap(), ("test-2".into(), UnknownGeneration));
    assert_eq!(setup.report_outcome("test-3").await.unwrap(), ("test-2".into(), UnknownGeneration));
}

#[tokio::test(start_paused = true)]
async fn a_report_of_an_expired_generation_is_answered_with_the_next() {
    let setup = setup(&[Token(mins(10))]);
    setup.ask().await.unwrap();
    setup.clock.suspend(mins(11));
    assert_eq!(setup.report_outcome("test-1").await.unwrap(), ("test-2".into(), Replaced));
}

#[tokio::test(start_paused = true)]
async fn an_evicted_generation_is_known_while_a_watch_is_open() {
    let setup = setup(&[Token(mins(60))]);
    let mut watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    watch.next().await.unwrap();
    setup.cache.evict(&Selector::All);
    assert_eq!(setup.report_outcome("test-1").await.unwrap(), ("test-2".into(), Replaced));
    assert_eq!(setup.report_outcome("test-1").await.unwrap(), ("test-2".into(), AlreadyReplaced));
}

/// A second process starts a run sooner than the first one alone would, but only once.
#[tokio::test(start_paused = true)]
async fn a_report_after_the_time_that_the_last_answer_named_starts_a_run() {
    let setup = setup(&[Token(mins(60))]);
    let mut generation = setup.ask().await.unwrap();
    let report = async |generation: &str, name: &str| {
        setup.cache.report(spec("a"), generation, &caller(name)).await.unwrap()
    };
    for _ in 0..4 {
        sleep(secs(80)).await;
        generation = report(&generation, "a").await.issued.generation.to_string();
    }
    for name in ["a", "b", "a", "b"] {
        sleep(secs(3)).await;
        let early = report(&generation, name).await;
        let TooEarly { retry_after } = early.outcome else { panic!("{early:?}") };
        let status = setup.cache.list(&Selector::All, None, 1);
        let next_run = status[0].rejections.unwrap().next_run.unwrap();
        assert!(next_run >= setup.clock.now().wall + retry_after);
        sleep(retry_after).await;
        let replaced = report(&generation, name).await;
        assert_eq!(replaced.outcome, Replaced, "{name}, after {retry_after:?}");
        generation = replaced.issued.generation.to_string();
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_of_an_older_generation_runs_nothing_and_returns_the_newer() {
    let setup = setup(&[Token(mins(60))]);
    setup.ask().await.unwrap();
    sleep(secs(10)).await;
    assert_eq!(setup.report("test-1").await.unwrap(), "test-2");
    sleep(secs(60)).await;
    assert_eq!(setup.report("test-1").await.unwrap(), "test-2");
    assert_eq!(setup.report("of another start").await.unwrap(), "test-2");
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn endless_reports_cause_few_runs() {
    let setup = setup(&[Token(mins(60))]);
    let mut generation = setup.ask().await.unwrap();
    for _ in 0..1000 {
        generation = setup.report(&generation).await.unwrap();
        sleep(secs(1)).await;
    }
    assert!((6..12).contains(&setup.runs()), "10, 20, 40 … 300 s apart: {}", setup.runs());
}

#[tokio::test(start_paused = true)]
async fn the_same_credential_again_is_not_a_new_generation_and_causes_no_loop() {
    let setup = setup(&[Same(mins(60))]);
    setup.ask().await.unwrap();
    sleep(secs(10)).await;
    for _ in 0..100 {
        assert_eq!(setup.report("test-1").await.unwrap(), "test-1");
    }
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failing_run_fails_the_report_and_other_callers_keep_the_old_credential() {
    let setup = setup(&[Token(mins(60)), Fail]);
    setup.ask().await.unwrap();
    sleep(secs(10)).await;
    let (report, other) = tokio::join!(setup.report("test-1"), setup.ask());
    assert!(report.is_err());
    assert_eq!(other.unwrap(), "test-1");
    assert!(setup.report("test-1").await.is_err(), "held, without a run");
    assert_eq!((setup.ask().await.unwrap().as_str(), setup.runs()), ("test-1", 2));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_asks_again_far_from_expiry_has_seen_a_rejection() {
    let setup = setup(&[Token(mins(60))]);
    assert_eq!(setup.ask_as("kubectl").await.unwrap(), "test-1");
    sleep(secs(10)).await;
    assert_eq!(setup.ask_as("helm").await.unwrap(), "test-1", "another caller that asks for the first time");
    let (again, other) = tokio::join!(setup.ask_as("kubectl"), setup.ask());
    assert_eq!((again.unwrap().as_str(), other.unwrap().as_str()), ("test-2", "test-1"));
    assert_eq!(setup.ask_as("helm").await.unwrap(), "test-2", "not a repeat: another generation");
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_asks_often_at_its_start_costs_nothing() {
    let setup = setup(&[Token(mins(60))]);
    for _ in 0..3 {
        assert_eq!(setup.ask_as("kube-rs").await.unwrap(), "test-1");
    }
    assert_eq!(setup.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn asking_again_near_expiry_is_not_a_rejection() {
    let setup = setup(&[Token(mins(60)), Fail]);
    setup.ask_as("python").await.unwrap();
    sleep(mins(50)).await; // due: it is being refreshed anyway, and the refresh fails
    let runs = setup.runs();
    for _ in 0..100 {
        assert_eq!(setup.ask_as("python").await.unwrap(), "test-1");
    }
    assert!(setup.runs() <= runs + 1);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_caches_is_not_run_for_every_impatient_caller() {
    let setup = setup(&[Same(mins(60))]);
    setup.ask_as("python").await.unwrap();
    sleep(mins(46)).await; // due, refreshed, and the same: its refresh point is behind it
    let runs = setup.runs();
    for _ in 0..60 {
        assert_eq!(setup.ask_as("python").await.unwrap(), "test-1");
        sleep(secs(1)).await;
    }
    assert_eq!((runs, setup.runs()), (2, 2), "the next try is a third of what is left away");
}
