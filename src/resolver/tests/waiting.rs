//! For the first look at the hub.
#![expect(clippy::disallowed_methods, reason = "tokio's paused clock is the tests' clock")]

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    profiles::{apply, by_profile, paris, sent_paris, with_unread_fleet},
    *,
};
use crate::fleet::HubState;

const SYNCED: HubState = HubState { synced: true, problem: None };

fn unread() -> Resolver {
    let of = |name, cluster_info| Provider { cluster_info, ..provider(name, Command::Name("x".into())) };
    with_unread_fleet([of("p", ClusterInfo::Match), of("believing", ClusterInfo::FromCaller)])
}

/// How long `ask` waits when the hub is `then` after a second.
async fn waits(resolver: &Resolver, ask: CredentialRequest, then: Option<HubState>) -> Duration {
    let started = Instant::now();
    let fleet = resolver.fleet().unwrap();
    let news = async {
        sleep(Duration::from_secs(1)).await;
        if let Some(state) = then {
            fleet.set_hub(state);
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
    let failed = HubState { synced: false, problem: Some("refused".into()) };
    for state in [SYNCED, failed] {
        assert_eq!(waits(&unread(), by_profile("paris"), Some(state)).await, Duration::from_secs(1));
    }
    assert_eq!(waits(&unread(), by_profile("paris"), None).await, FIRST_LOOK);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_must_match_is_waited_for_too() {
    let ask = || CredentialRequest { cluster: Some(sent_paris()), ..ask("p") };
    assert_eq!(waits(&unread(), ask(), Some(SYNCED)).await, Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn what_needs_no_hub_does_not_wait() {
    let known = unread();
    apply(&known, "paris", "p", &paris());
    assert_eq!(waits(&known, by_profile("paris"), None).await, Duration::ZERO);
    let cluster = || Some(sent_paris());
    for ask in [
        ask("p"),
        CredentialRequest { cluster: cluster(), ..ask("believing") },
        CredentialRequest { cluster: cluster(), ..ask("none") },
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
    let down = |synced| HubState { synced, problem: Some("refused".into()) };
    for state in [SYNCED, down(false), down(true)] {
        let resolver = unread();
        resolver.fleet().unwrap().set_hub(state);
        assert_eq!(waits(&resolver, by_profile("paris"), None).await, Duration::ZERO);
    }
}
