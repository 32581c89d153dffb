//! What the broker sees of itself: clocks, counters, spans, and records of decisions.
//!
//! Observing never waits and never fails what it observes: a reader that does not keep up loses records, which are counted.

/// Defines an enum whose variants have names that logs, records and labels show.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum $name { $($(#[$of])* $variant,)+ }

        impl $name {
            /// Its name, which does not change.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

pub mod audit;
pub mod clock;
pub mod metrics;
pub mod trace;
