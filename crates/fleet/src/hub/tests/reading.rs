//! From a hub to the fleet.

use credbroker_test_support::{Accepts, ApiServer, Collection, Flood, Kubeconfig, private_directory};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use credbroker_config::{HUB_PROVIDER, HubKubeconfig};

/// Longer than any step of these tests takes, on any machine.
const AGES: Duration = Duration::from_secs(60);

/// A hub with one profile, and its reader.
struct Read {
    server: ApiServer,
    setup: Setup,
    _directory: TempDir,
    hub: Hub<Runner>,
}

fn hub(has_plugin: bool) -> Read {
    let (server, directory) = (ApiServer::start(Accepts::Tokens), private_directory());
    server.apply_cluster_profile(
        "fleet",
        "paris",
        json!({"spec": {"clusterManager": {"name": "m"}}, "status": status("p", "paris")}),
    );
    for number in 1..20 {
        server.accept_token(&format!("login-{number}"));
    }
    let path = directory.path().join("hub.kubeconfig");
    let version = "client.authentication.k8s.io/v1";
    let exec = json!({"apiVersion": version, "command": "/bin/sh", "interactiveMode": "Never"});
    let user = if has_plugin { json!({"exec": exec}) } else { json!({"token": "login-1"}) };
    let kubeconfig = Kubeconfig::new().cluster_of(&server, "hub").user("hub", &user);
    kubeconfig.context("hub", "hub", "hub").write(&path);
    let plugin = has_plugin.then(|| test_provider(HUB_PROVIDER, Command::Path("/bin/sh".into())));
    let plugins = Arc::new(Providers::new(plugin.clone()));
    let plugin = plugin.map(Box::new);
    let section = ClusterProfiles {
        hub: Some(HubKubeconfig { path, plugin, ..HubKubeconfig::default() }),
        namespaces: Vec::new(),
        label_selector: String::new(),
        rules: EndpointRules::default(),
        prewarm: Vec::new(),
    };
    let setup = Setup::new(Duration::ZERO, false);
    let hub = Hub::new(section, plugins, setup.parts());
    Read { server, setup, _directory: directory, hub }
}

/// Waits for this state of the hub.
async fn until(states: &mut watch::Receiver<HubState>, is_so: impl Fn(&HubState) -> bool) {
    let reached = timeout(AGES, states.wait_for(is_so)).await;
    drop(reached.expect("the hub becomes so").unwrap());
}

fn is_well(state: &HubState) -> bool {
    state.synced && state.problem.is_none()
}

#[tokio::test]
async fn what_is_read_ends_the_problem_and_stays_known_after_the_next() {
    let Read { hub, setup, .. } = hub(false);
    let pause = Duration::from_secs(1);
    hub.is_lost(&HubError::OtherPlugin, 1, pause);
    let HubState { synced, problem, .. } = setup.fleet.hub();
    assert!(!synced && problem.is_some());
    hub.is_read();
    assert!(is_well(&setup.fleet.hub()));
    hub.is_lost(&HubError::OtherPlugin, 1, pause);
    assert!(setup.fleet.hub().synced, "what was read stays known");
}

#[tokio::test(start_paused = true)]
async fn all_is_read_when_each_scope_was_listed_and_steady_a_while_later() {
    let Read { hub, setup, .. } = hub(false);
    let limit = hub.access.timeouts.list;
    // Of two scopes, so many are listed after a second.
    for (listed, lasts, is_read, failures, excess) in [
        (1, limit / 2, false, 3, None),
        (1, limit * 2, false, 3, Some(Excess::Time(limit))),
        (2, STEADY / 2, true, 3, None),
        (2, STEADY * 2, true, 0, None),
    ] {
        let (unread, mut failed) = (watch::Sender::new(2), 3);
        setup.fleet.set_hub(false, None);
        let listing = async {
            sleep(Duration::from_secs(1)).await;
            unread.send_modify(|unread| *unread -= listed);
            sleep(lasts).await;
        };
        let found = tokio::select! {
            () = listing => None,
            excess = hub.watch_over(unread.subscribe(), &mut failed) => Some(excess),
        };
        assert_eq!((setup.fleet.hub().synced, failed, found), (is_read, failures, excess));
    }
}

#[tokio::test]
async fn a_silent_hub_is_disconnected_in_a_watch_and_in_a_list() {
    let Read { server, setup, mut hub, _directory } = hub(false);
    hub.access.timeouts = HubTimeouts { silence: Duration::from_secs(2), watch: 1, ..HubTimeouts::default() };
    let mut states = setup.fleet.hub_states();
    let tested = async {
        until(&mut states, is_well).await;
        server.until_watched(Collection::ClusterProfiles, 1).await;
        // If the hub has no events, each watch ends in time, and the next one begins.
        let watches = server.watches(Collection::ClusterProfiles);
        while server.watches(Collection::ClusterProfiles) < watches + 3 {
            sleep(Duration::from_millis(50)).await;
        }
        assert!(is_well(&states.borrow()) && server.lists(Collection::ClusterProfiles) == 1);
        server.hang();
        until(&mut states, |hub| hub.problem.is_some()).await;
        // Then the list of each new connection gets no response and times out.
        let lists = server.lists(Collection::ClusterProfiles);
        while server.lists(Collection::ClusterProfiles) < lists + 2 {
            sleep(Duration::from_millis(50)).await;
        }
        server.mend();
        until(&mut states, is_well).await;
    };
    tokio::select! {
        () = hub.run() => {}
        tested = timeout(AGES, tested) => tested.expect("a silent hub is given up"),
    }
}

fn added() -> Value {
    json!({"spec": {"clusterManager": {"name": "m"}}})
}

#[tokio::test]
async fn no_rotation_is_a_failure_or_leads_to_a_further_list() {
    let Read { server, setup, hub, _directory } = hub(true);
    let mut states = setup.fleet.hub_states();
    let tested = async {
        until(&mut states, is_well).await;
        states.mark_unchanged();
        let mut revisions = setup.fleet.revisions();
        for count in 2..12 {
            setup.cache.refresh(&credbroker_cache::Selector::Provider(HUB_PROVIDER.into())).await;
            server.apply_cluster_profile("fleet", &format!("added-{count}"), added());
            while server.seen_tokens().len() < count {
                sleep(Duration::from_millis(5)).await;
            }
            revisions.wait_for(|_| setup.fleet.list(None).len() == count).await.unwrap();
        }
        assert!(!states.has_changed().unwrap(), "{:?}", states.borrow());
    };
    tokio::select! {
        () = hub.run() => {}
        tested = timeout(AGES, tested) => tested.expect("each token is used, and each event arrives"),
    }
    assert_eq!((server.lists(Collection::ClusterProfiles), setup.runner.ran().len()), (1, 11));
}

#[tokio::test]
async fn a_rotation_after_which_the_hub_no_longer_has_the_events_leads_to_one_further_list() {
    let Read { server, setup, hub, _directory } = hub(true);
    let mut states = setup.fleet.hub_states();
    let tested = async {
        until(&mut states, is_well).await;
        server.until_watched(Collection::ClusterProfiles, 1).await;
        server.compact();
        setup.cache.refresh(&credbroker_cache::Selector::Provider(HUB_PROVIDER.into())).await;
        while server.lists(Collection::ClusterProfiles) < 2 {
            sleep(Duration::from_millis(5)).await;
        }
        let mut revisions = setup.fleet.revisions();
        server.apply_cluster_profile("fleet", "added", added());
        revisions.wait_for(|_| setup.fleet.list(None).len() == 2).await.unwrap();
    };
    tokio::select! {
        () = hub.run() => {}
        tested = timeout(AGES, tested) => tested.expect("the profiles are listed again"),
    }
    assert_eq!(server.lists(Collection::ClusterProfiles), 2);
}

/// The token of the watch in progress is not checked again, but that of the next one is.
#[tokio::test]
async fn a_token_that_the_hub_revokes_is_replaced_when_the_watch_ends() {
    let Read { server, setup, mut hub, _directory } = hub(true);
    hub.access.timeouts = HubTimeouts { watch: 1, ..HubTimeouts::default() };
    let mut states = setup.fleet.hub_states();
    let tested = async {
        until(&mut states, is_well).await;
        // Old enough for another run.
        setup.clock.2.store(60, Ordering::SeqCst);
        server.revoke_token("login-1");
        until(&mut states, |hub| {
            hub.problem.as_ref().is_some_and(|problem| problem.contains("Unauthorized"))
        })
        .await;
        until(&mut states, is_well).await;
    };
    tokio::select! {
        () = hub.run() => {}
        tested = timeout(AGES, tested) => tested.expect("the token is replaced"),
    }
    assert_eq!(setup.runner.ran().len(), 2);
}

#[tokio::test]
async fn a_user_that_changes_with_a_rotation_is_shown_its_own_list() {
    let Read { server, setup, hub, _directory: directory } = hub(true);
    let mut states = setup.fleet.hub_states();
    let tested = async {
        until(&mut states, is_well).await;
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "interactiveMode": "Never"});
        let kubeconfig = Kubeconfig::new().cluster_of(&server, "hub");
        let kubeconfig = kubeconfig.user("hub", &json!({"exec": exec, "as": "reader"}));
        kubeconfig.context("hub", "hub", "hub").write(directory.path().join("hub.kubeconfig"));
        setup.cache.refresh(&credbroker_cache::Selector::Provider(HUB_PROVIDER.into())).await;
        while server.lists(Collection::ClusterProfiles) < 2 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = hub.run() => {}
        tested = timeout(AGES, tested) => tested.expect("the profiles are listed again"),
    }
}

#[tokio::test]
async fn a_longer_lifetime_needs_no_new_connection() {
    let Read { server, setup, hub, _directory } = hub(true);
    setup.runner.same.store(true, Ordering::SeqCst);
    let mut states = setup.fleet.hub_states();
    let tested = async {
        until(&mut states, is_well).await;
        let mut revisions = setup.fleet.revisions();
        setup.cache.refresh(&credbroker_cache::Selector::Provider(HUB_PROVIDER.into())).await;
        server.apply_cluster_profile("fleet", "tokyo", json!({"spec": {"clusterManager": {"name": "m"}}}));
        revisions.wait_for(|_| setup.fleet.list(None).len() == 2).await.unwrap();
    };
    tokio::select! {
        () = hub.run() => {}
        tested = timeout(AGES, tested) => tested.expect("the change is seen"),
    }
    assert_eq!((setup.runner.ran().len(), server.lists(Collection::ClusterProfiles)), (2, 1));
}

/// A hub that fails must not cause many requests to the issuer of its credential.
#[tokio::test]
async fn a_failure_that_is_not_the_credentials_asks_for_no_other() {
    let Read { server, setup, hub, _directory } = hub(true);
    server.forbid("login-1", Collection::ClusterProfiles);
    let started = Instant::now();
    let mut states = setup.fleet.hub_states();
    let tested = async {
        until(&mut states, |hub| hub.problem.as_ref().is_some_and(|problem| problem.contains("forbidden")))
            .await;
        // Old enough for another run.
        setup.clock.2.store(60, Ordering::SeqCst);
        while server.lists(Collection::ClusterProfiles) < 4 {
            sleep(Duration::from_millis(5)).await;
        }
        assert!(started.elapsed() >= Duration::from_millis(300), "each time after a pause");
        server.permit("login-1", Collection::ClusterProfiles);
        until(&mut states, is_well).await;
    };
    tokio::select! {
        () = hub.run() => {}
        tested = timeout(AGES, tested) => tested.expect("the hub is read"),
    }
    assert_eq!(setup.runner.ran(), [HUB_PROVIDER]);
}

/// More profiles than one answer of the usual size can have.
#[tokio::test]
async fn profiles_that_are_large_are_read_a_few_at_a_time() {
    let Read { server, setup, hub, _directory } = hub(false);
    for number in 0..20 {
        let spec = json!({"clusterManager": {"name": "m"}, "displayName": "x".repeat(1_000_000)});
        server.apply_cluster_profile("fleet", &format!("large-{number}"), json!({"spec": spec}));
    }
    let mut states = setup.fleet.hub_states();
    let tested = async {
        until(&mut states, |hub| hub.problem.as_ref().is_some_and(|problem| problem.contains("16 MiB")))
            .await;
        until(&mut states, is_well).await;
    };
    tokio::select! {
        () = hub.run() => {}
        tested = timeout(AGES, tested) => tested.expect("all are read"),
    }
    assert_eq!(setup.fleet.list(None).len(), 21);
}

#[tokio::test]
async fn a_list_without_progress_is_given_up_after_a_few_pages() {
    for (flood, requests, problem) in [
        (Flood::EmptyPages, 6, "6 pages in a row without a new ClusterProfile"),
        (Flood::SamePage, 6, "6 pages in a row without a new ClusterProfile"),
    ] {
        let begun = Instant::now();
        let Read { server, setup, mut hub, _directory } = hub(false);
        // No second attempt in this test.
        let parts = Arc::into_inner(setup.parts()).unwrap();
        hub.parts = Arc::new(HubParts { jitter: || 3_600.0, ..parts });
        server.flood(flood);
        let mut states = setup.fleet.hub_states();
        let tested =
            until(&mut states, |hub| hub.problem.as_ref().is_some_and(|found| found.contains(problem)));
        tokio::select! {
            () = hub.run() => {}
            tested = timeout(AGES, tested) => tested.expect("it is given up"),
        }
        assert_eq!(server.lists(Collection::ClusterProfiles), requests);
        assert!(begun.elapsed() >= Duration::from_millis(100 + 200 + 400 + 800 + 1600), "each after a pause");
    }
}

#[tokio::test]
async fn a_list_or_page_that_does_not_end_is_given_up() {
    let (short, long) = (Duration::from_millis(300), HubTimeouts::default());
    let floods = |server: &ApiServer| server.flood(Flood::Pages);
    for (timeouts, fails) in [
        (HubTimeouts { list: short, ..long }, floods as fn(&ApiServer)),
        (HubTimeouts { page: short, ..long }, ApiServer::hang),
    ] {
        let Read { server, setup, mut hub, _directory } = hub(false);
        hub.access.timeouts = timeouts;
        fails(&server);
        let mut states = setup.fleet.hub_states();
        let tested = async {
            until(&mut states, |hub| {
                hub.problem.as_ref().is_some_and(|problem| problem.contains("longer than the limit of 300ms"))
            })
            .await;
            server.mend();
            until(&mut states, is_well).await;
        };
        tokio::select! {
            () = hub.run() => {}
            tested = timeout(AGES, tested) => tested.expect("it is given up, and read again"),
        }
    }
}
