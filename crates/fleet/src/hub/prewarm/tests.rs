use std::sync::atomic::Ordering;

use super::*;
use crate::hub::tests::{Runner, Setup, rule};

const SECOND: Duration = Duration::from_secs(1);

/// A prewarmer beside the task that starts queued runs when the rate of their issuer allows them.
fn prewarming(setup: &Setup, rules: Vec<Prewarm>) -> Prewarmer<Runner> {
    let cache = setup.cache.clone();
    setup.tasks.spawn(async move { cache.keep_fresh(credbroker_observe::clock::Beat::start()).await });
    setup.prewarmer(rules)
}

fn offer(setup: &Setup, prewarmer: &Prewarmer<Runner>, names: &[&str]) {
    for name in names {
        let (name, provider) = name.split_once('@').unwrap_or((name, "p"));
        prewarmer.offer(&setup.target(name, provider));
    }
}

#[tokio::test(start_paused = true)]
async fn so_many_run_at_a_time_of_each_provider() {
    let setup = Setup::new(SECOND, false);
    let prewarmer = prewarming(&setup, vec![rule("*", 2, 1000)]);
    offer(&setup, &prewarmer, &["a", "b", "c", "d", "e@q", "f@q", "g@q", "h@q"]);
    sleep(SECOND / 2).await;
    assert_eq!(setup.runner.ran().len(), 4, "each has its own budget");
    sleep(10 * SECOND).await;
    assert_eq!((setup.runner.ran().len(), setup.runner.most()), (8, 2));
}

#[tokio::test(start_paused = true)]
async fn so_many_start_in_a_second() {
    let setup = Setup::new(Duration::ZERO, false);
    let prewarmer = prewarming(&setup, vec![rule("*", 100, 5)]);
    offer(&setup, &prewarmer, &["a", "b", "c", "d", "e"]);
    sleep(10 * SECOND).await;
    let times = setup.runner.times();
    assert_eq!(times.len(), 5);
    for pair in times.windows(2) {
        assert!(pair[1].saturating_sub(pair[0]) >= SECOND / 5, "{times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_due_does_not_wait_for_the_turn_of_the_next() {
    for _ in 0..20 {
        let setup = Setup::new(Duration::ZERO, false);
        let prewarmer = prewarming(&setup, vec![rule("*", 100, 1)]);
        offer(&setup, &prewarmer, &["a", "b"]);
        sleep(SECOND / 2).await;
        assert_eq!(setup.runner.ran(), ["a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_fails_is_tried_three_times_and_delays_no_other() {
    let setup = Setup::new(Duration::ZERO, true);
    let prewarmer = prewarming(&setup, vec![rule("*", 1, 1000)]);
    offer(&setup, &prewarmer, &["a", "b"]);
    sleep(3600 * SECOND).await;
    let ran = setup.runner.ran();
    assert_eq!(ran.len(), 6, "{ran:?}");
    assert_eq!(ran[..2], ["a", "b"], "the pause of the one is the turn of the other");
    assert!(setup.runner.times()[2] >= SECOND, "{:?}", setup.runner.times());
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_that_covers_a_profile_counts() {
    let setup = Setup::new(SECOND, false);
    let prewarmer = prewarming(&setup, vec![rule("fleet/a", 1, 1000), rule("fleet/*", 1, 1000)]);
    offer(&setup, &prewarmer, &["a", "b"]);
    sleep(SECOND / 2).await;
    assert_eq!(setup.runner.ran().len(), 2, "each by its own rule");
    let uncovered = Setup::new(SECOND, false);
    let prewarmer = prewarming(&uncovered, vec![rule("edge/*", 1, 1000)]);
    offer(&uncovered, &prewarmer, &["a"]);
    sleep(10 * SECOND).await;
    assert!(uncovered.runner.ran().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_one_fetch_alone() {
    let setup = Setup::new(SECOND, false);
    let prewarmer = prewarming(&setup, vec![rule("*", 1, 1000)]);
    setup.clock.3.store(true, Ordering::SeqCst);
    offer(&setup, &prewarmer, &["a", "b", "c"]);
    sleep(10 * SECOND).await;
    assert_eq!(setup.runner.ran(), ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_the_broker_drains() {
    let setup = Setup::new(SECOND, false);
    let prewarmer = prewarming(&setup, vec![rule("*", 1, 1)]);
    offer(&setup, &prewarmer, &["a", "b", "c"]);
    sleep(SECOND / 2).await;
    setup.draining.cancel();
    setup.tasks.close();
    tokio::time::timeout(SECOND / 4, setup.tasks.wait()).await.expect("no task is left");
    offer(&setup, &prewarmer, &["d"]);
    sleep(10 * SECOND).await;
    assert_eq!(setup.runner.ran(), ["a"]);
}
