//! For the first read of the hub.
#![expect(clippy::disallowed_methods, reason = "tokio's paused clock is the tests' clock")]

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    profiles::{apply, by_profile, paris, sent_paris, with_unread_fleet},
    *,
};
/// Whether the hub was read, and the problem.
type State = (bool, Option<&'static str>);

const SYNCED: State = (true, None);
const FAILED: State = (false, Some("refused"));
const SECOND: Duration = Duration::from_secs(1);

fn unread() -> Resolver {
    let of = |name, cluster_info| Provider { cluster_info, ..provider(name, Command::Name("x".into())) };
    with_unread_fleet([of("p", ClusterInfo::Match), of("believing", ClusterInfo::FromCaller)])
}

/// How long `ask` waits when an attempt to read the hub ends after a second and leaves it in this state.
async fn waits(resolver: &Resolver, ask: CredentialRequest, then: Option<State>) -> Duration {
    let started = Instant::now();
    let fleet = resolver.fleet().unwrap();
    let news = async {
        sleep(SECOND).await;
        if let Some((synced, problem)) = then {
            fleet.set_hub(synced, problem.map(Into::into));
            fleet.end_read(None);
        }
    };
    let waited = async {
        resolver.settled(&ask).await;
        started.elapsed()
    };
    tokio::join!(waited, news).0
}

#[tokio::test(start_paused = true)]
async fn a_profile_is_waited_for_until_the_hub_answers_or_fails() {
    for state in [SYNCED, FAILED] {
        assert_eq!(waits(&unread(), by_profile("paris"), Some(state)).await, SECOND);
    }
    assert_eq!(waits(&unread(), by_profile("paris"), None).await, FIRST_LOOK);
}

/// A resolver whose hub could not be read and is read again after `pause`.
fn paused(pause: Duration) -> Resolver {
    let resolver = unread();
    let fleet = resolver.fleet().unwrap();
    fleet.set_hub(false, Some("refused".into()));
    fleet.end_read(Some(pause));
    resolver
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_read_one_further_outcome_is_waited_for() {
    for state in [SYNCED, FAILED] {
        assert_eq!(waits(&paused(FIRST_LOOK), by_profile("paris"), Some(state)).await, SECOND);
    }
    assert_eq!(
        waits(&paused(SECOND), by_profile("paris"), None).await,
        FIRST_LOOK,
        "it does not end in time"
    );
    let trying = paused(10 * FIRST_LOOK);
    sleep(10 * FIRST_LOOK).await;
    assert_eq!(waits(&trying, by_profile("paris"), Some(SYNCED)).await, SECOND, "it has begun");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_begins_too_late_is_not_waited_for() {
    let resolver = paused(FIRST_LOOK + SECOND);
    assert_eq!(waits(&resolver, by_profile("paris"), None).await, Duration::ZERO);
    let refused = resolver.resolve(by_profile("paris")).unwrap_err();
    let ResolveError::ProfileUnread(_, _, retry_after) = refused else { panic!("{refused}") };
    assert_eq!(retry_after, FIRST_LOOK, "when it begins");
    assert_eq!(
        waits(&resolver, by_profile("paris"), Some(SYNCED)).await,
        SECOND,
        "it begins soon enough now"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_must_match_is_waited_for_too() {
    let ask = || CredentialRequest { cluster: Some(Box::new(sent_paris())), ..ask("p") };
    assert_eq!(waits(&unread(), ask(), Some(SYNCED)).await, SECOND);
}

#[tokio::test(start_paused = true)]
async fn what_needs_no_hub_does_not_wait() {
    let known = unread();
    apply(&known, "paris", "p", &paris());
    assert_eq!(waits(&known, by_profile("paris"), None).await, Duration::ZERO);
    let cluster = || Some(sent_paris());
    for ask in [
        ask("p"),
        CredentialRequest { cluster: cluster().map(Box::new), ..ask("believing") },
        CredentialRequest { cluster: cluster().map(Box::new), ..ask("none") },
    ] {
        assert_eq!(waits(&unread(), ask, None).await, Duration::ZERO);
    }
    let none = resolver([provider("p", Command::Name("x".into()))]);
    let started = Instant::now();
    none.settled(&by_profile("paris")).await;
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn after_the_first_list_no_request_waits() {
    for problem in [None, Some("refused".into())] {
        let resolver = unread();
        resolver.fleet().unwrap().set_hub(true, problem);
        assert_eq!(waits(&resolver, by_profile("paris"), None).await, Duration::ZERO);
    }
}
