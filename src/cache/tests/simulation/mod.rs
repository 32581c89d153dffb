//! Simulates a broker from one seed: the real cache, scheduler and policy under paused time, with simulated callers,
//! plugins and clocks. An oracle checks each answer and each plugin run.

#![expect(
    clippy::disallowed_methods,
    reason = "tokio's paused clock is the tests' clock; seeds come from the environment"
)]

mod answers;
mod driver;
mod events;
mod fleet;
mod keys;
mod model;
mod plugins;
mod promises;
mod requests;
mod runs;
mod scenarios;

use std::env;

use model::Story;

/// Seeds of the test command.
const SEEDS: u64 = 300;
/// One of this many seeds has a thousand keys.
const LARGE: u64 = 50;

/// Simulates `seed`. The story contains all events if `recorded`.
fn live(seed: u64, recorded: bool) -> Story {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(driver::live(seed % LARGE == LARGE - 1, recorded))
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not `{value}`")))
}

#[test]
fn no_seed_breaks_a_promise() {
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CREDBROKER_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        if let Some(broken) = live(seed, false).broken {
            let events = live(seed, true).events;
            // A run of one seed prints all of them.
            let last = if number("SEED").is_some() { 0 } else { events.len().saturating_sub(40) };
            panic!(
                "{broken}\nThe last events:\n{}\nSEED={seed} cargo test -p credbroker --lib cache::tests::simulation",
                events[last..].join("\n")
            );
        }
    }
}

#[test]
fn a_seed_always_has_the_same_events() {
    for seed in [3, LARGE - 1] {
        // Callers that wait for the same run are answered in any order.
        let sorted = |seed| {
            let mut events = live(seed, true).events;
            events.sort_unstable();
            events
        };
        let (one, other) = (sorted(seed), sorted(seed));
        assert!(one.len() > 500);
        let differ = one.iter().zip(&other).find(|(one, other)| one != other);
        assert_eq!(differ, None, "seed {seed} has two stories");
    }
}
