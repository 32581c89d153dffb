//! What the broker sees of itself: clocks, counters, spans, and records of decisions.
//!
//! Observing never waits and never fails what it observes: a reader that does not keep up loses records, which are counted.

pub mod audit;
pub mod clock;
pub mod metrics;
pub mod trace;
