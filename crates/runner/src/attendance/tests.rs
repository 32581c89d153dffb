#![expect(clippy::disallowed_methods, reason = "tokio's paused clock is the tests' clock")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::{task::JoinHandle, time::timeout};

use super::*;
use credbroker_plugin::{Command, testing::provider as test_provider};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// One with a `timeout` of 30 seconds, and an `interactiveTimeout` of 300.
fn provider() -> Provider {
    test_provider("p", Command::Name("p".into()))
}

/// A run that has started, and the task that ends with the time that it had.
fn started() -> (Arc<Attendance>, JoinHandle<Duration>) {
    let run = Arc::<Attendance>::default();
    run.started(&provider());
    let used_up = Arc::clone(&run);
    (run, tokio::spawn(async move { used_up.used_up().await }))
}

/// Lets the run have a place as soon as it waits for a user.
fn with_place(run: &Arc<Attendance>) {
    let run = Arc::clone(run);
    tokio::spawn(async move { run.take_place(|| true).await });
}

fn now() -> Instant {
    Instant::now()
}

#[test]
fn an_attended_run_with_a_place_has_the_longer_time() {
    for (timeout, attendants, has_place, limit) in [
        (30, 0, false, 30),
        (30, 1, false, 30),
        (30, 0, true, 30),
        (30, 1, true, 300),
        (600, 1, true, 600),
        (600, 0, false, 600),
    ] {
        let (timeout, interactive_timeout) = (secs(timeout), secs(300));
        let state = State { attendants, timeout, interactive_timeout, has_place, ..State::default() };
        assert_eq!(state.limit(), secs(limit), "{timeout:?} {attendants} {has_place}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_for_a_person_who_attends_it_when_it_has_written_or_takes_long() {
    for (attendants, written, elapsed, waits) in [
        (0, "", 0, false),
        (0, "x", 29, false),
        (1, "", 0, false),
        (1, "", 14, false),
        (1, "", 15, true),
        (1, "x", 0, true),
    ] {
        let mut state = State { attendants, timeout: secs(30), ..State::default() };
        state.transcript.push(written.as_bytes());
        assert!(!state.waits_for_person(), "it has not started");
        state.started = Some(now());
        sleep(secs(elapsed)).await;
        assert_eq!(state.waits_for_person(), waits, "{attendants} {written} {elapsed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_without_attendants_ends_at_its_timeout() {
    let begun = now();
    let (run, end) = started();
    with_place(&run);
    run.wrote(b"open https://issuer and enter CODE\n");
    assert_eq!((end.await.unwrap(), begun.elapsed()), (secs(30), secs(30)));
    assert!(!run.needed_person());
}

#[tokio::test(start_paused = true)]
async fn attending_extends_a_run_that_is_under_way_and_leaving_ends_it() {
    let begun = now();
    let (run, end) = started();
    with_place(&run);
    sleep(secs(29)).await;
    let (first, second) = (run.attend(), run.attend());
    run.wrote(b"code: ");
    sleep(secs(2)).await;
    assert!(run.needed_person() && !end.is_finished());
    drop(first);
    sleep(secs(60)).await;
    assert!(!end.is_finished(), "the other attends it");
    drop(second);
    assert_eq!((end.await.unwrap(), begun.elapsed()), (secs(30), secs(91)));
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_the_timeout_applies_when_the_last_attendant_leaves() {
    let begun = now();
    let (run, end) = started();
    with_place(&run);
    let attending = run.attend();
    run.wrote(b"code\n");
    sleep(secs(10)).await;
    drop(attending);
    assert_eq!((end.await.unwrap(), begun.elapsed()), (secs(30), secs(30)));
    assert!(!run.needed_person());
}

#[tokio::test(start_paused = true)]
async fn an_attended_run_ends_at_the_interactive_timeout_even_if_it_writes_nothing() {
    let begun = now();
    let (run, end) = started();
    with_place(&run);
    let _attending = run.attend();
    assert_eq!((end.await.unwrap(), begun.elapsed()), (secs(300), secs(300)));
}

#[tokio::test(start_paused = true)]
async fn without_a_place_an_attended_run_keeps_its_timeout_and_tries_again_to_get_one() {
    let begun = now();
    let (run, end) = started();
    let (free, tries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (place, is_free, attempts) = (Arc::clone(&run), Arc::clone(&free), Arc::clone(&tries));
    tokio::spawn(async move {
        let take = || {
            attempts.fetch_add(1, Ordering::SeqCst);
            is_free.load(Ordering::SeqCst)
        };
        place.take_place(take).await;
    });
    let _attending = run.attend();
    sleep(secs(5)).await;
    assert_eq!(tries.load(Ordering::SeqCst), 0, "it has written nothing");
    run.wrote(b"code\n");
    sleep(secs(5)).await;
    assert!(tries.load(Ordering::SeqCst) > 1);
    free.store(true, Ordering::SeqCst);
    sleep(secs(25)).await;
    assert!(run.needed_person(), "it has a place in time");
    assert_eq!((end.await.unwrap(), begun.elapsed()), (secs(300), secs(300)));

    let begun = now();
    let (run, end) = started();
    let _attending = run.attend();
    assert_eq!((end.await.unwrap(), begun.elapsed()), (secs(30), secs(30)));
}

#[tokio::test(start_paused = true)]
async fn all_who_attend_read_all_lines_and_each_change_of_the_time_that_is_left() {
    let run = Arc::<Attendance>::default();
    let mut early = run.read();
    assert!(timeout(secs(1), early.next()).await.is_err(), "nothing is new");
    run.started(&provider());
    assert_eq!(early.next().await.time_left, Some(secs(30)));
    run.wrote(b"one\ntw");
    assert_eq!(texts(&early.next().await), ["one"]);
    let mut late = run.read();
    let news = late.next().await;
    assert_eq!((texts(&news), news.time_left), (vec!["one"], Some(secs(30))));
    run.wrote(b"o\n");
    for reader in [&mut early, &mut late] {
        let news = reader.next().await;
        assert_eq!((texts(&news), news.time_left), (vec!["two"], None));
    }
    run.wrote(b"Password: ");
    assert!(early.news().lines.is_empty() && run.has_partial_line());
    run.show_partial_line();
    assert_eq!(texts(&early.next().await), ["Password:"]);
    let _attending = run.attend();
    run.take_place(|| true).await;
    sleep(secs(10)).await;
    assert_eq!(early.next().await.time_left, Some(secs(290)));
}

fn texts(news: &AttendanceNews) -> Vec<&str> {
    news.lines.iter().map(AsRef::as_ref).collect()
}

#[test]
fn debug_shows_no_line() {
    let run = Arc::<Attendance>::default();
    run.wrote(b"canary\n");
    let mut reader = run.read();
    let shown = format!("{run:?} {reader:?} {:?}", reader.news());
    assert!(!shown.contains("canary"), "{shown}");
}

/// The lines of a run are for others than its lender, who may see them only when it has the offer.
#[tokio::test(start_paused = true)]
async fn a_run_in_a_terminal_says_so_after_the_offer() {
    let lease = async |lender: &Lender| {
        let run = Arc::<Attendance>::default();
        let plugin = PluginCommand { program: "/p".into(), args: Vec::new(), environment: [].into() };
        let ended = run.lease(lender, "p".into(), plugin, &provider()).await;
        (run.read().news().lines.len(), ended.unwrap_err().kind)
    };
    let (lender, offered) = Lender::new(7);
    let offers = tokio::spawn(offered);
    let (lines, _) = lease(&lender).await;
    assert_eq!(lines, 1);
    drop(offers.await.unwrap());
    let (lender, offered) = Lender::new(7);
    drop(offered);
    let (lines, kind) = lease(&lender).await;
    assert!(lines == 0 && matches!(kind, RunErrorKind::TerminalLost(7)), "{lines} {kind:?}");
}
