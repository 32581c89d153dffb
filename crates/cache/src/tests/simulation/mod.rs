//! Simulates a broker from one seed: the real cache, scheduler and policy under paused time, with simulated callers,
//! plugins and clocks. An oracle checks each answer and each plugin run.

#![expect(
    clippy::disallowed_methods,
    reason = "tokio's paused clock is the tests' clock; seeds come from the environment"
)]

mod answers;
mod driver;
mod ends;
mod events;
mod fleet;
mod keys;
mod model;
mod peers;
mod persons;
mod plugins;
mod promises;
mod reloads;
mod requests;
mod room;
mod runs;
mod scenarios;
mod scene;
mod verifications;

use std::{
    env,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use model::Story;
use scene::{LARGE, Scene};

/// Seeds of the test command.
const SEEDS: u64 = 50;

/// Simulates `seed`. The story contains all events if `recorded`.
fn live(seed: u64, recorded: bool) -> Story {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(driver::live(Scene::of(seed), recorded))
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not `{value}`")))
}

/// Simulates `seeds` on all processors. Returns those that break a rule, with the rule, in order.
fn failing(seeds: std::ops::Range<u64>) -> Vec<(u64, String)> {
    let (next, found) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Some(broken) = live(seed, false).broken {
                        found.lock().unwrap().push((seed, broken));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_unstable();
    found
}

#[test]
fn no_seed_breaks_a_promise() {
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CREDBROKER_SEEDS").unwrap_or(SEEDS),
    };
    let (count, found) = (seeds.end - seeds.start, failing(seeds));
    let Some((seed, broken)) = found.first() else { return };
    let events = live(*seed, true).events;
    // A run of one seed prints all of them.
    let last = if count == 1 { 0 } else { events.len().saturating_sub(40) };
    let others: Vec<_> =
        found[1..].iter().take(20).map(|(seed, broken)| format!("{seed}: {broken}")).collect();
    panic!(
        "{} of {count} seeds break a rule. Seed {seed}, {broken}\nIts last events:\n{}\nOther seeds:\n{}\n\
         SEED={seed} cargo test -p credbroker-cache simulation",
        found.len(),
        events[last..].join("\n"),
        others.join("\n")
    );
}

/// `event` without the number of its request or watch.
fn without_number(event: &str) -> String {
    match event.split_once('#').or_else(|| event.split_once("watch ")) {
        Some((time, event)) => {
            time.to_owned() + event.trim_start_matches(|digit: char| digit.is_ascii_digit())
        }
        None => event.to_owned(),
    }
}

#[test]
fn a_seed_always_has_the_same_events() {
    for seed in [3, LARGE - 1] {
        // Callers that wait for the same run are answered in any order, and so their next requests are numbered.
        let sorted = |seed| {
            let mut events: Vec<_> =
                live(seed, true).events.iter().map(|event| without_number(event)).collect();
            events.sort_unstable();
            events
        };
        let (one, other) = (sorted(seed), sorted(seed));
        assert!(one.len() > 500);
        let differ = one.iter().zip(&other).find(|(one, other)| one != other);
        assert_eq!(differ, None, "seed {seed} has two stories");
    }
}
