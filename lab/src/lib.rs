//! What the benches and the soak test share: the programs that are measured, as they are shipped, a broker with a plugin
//! that counts its runs, its rivals, load, and figures with their limits. `lab/README.md` and `docs/soak.md` describe both.

#![expect(clippy::disallowed_methods, reason = "it starts processes and reads the clock")]
#![expect(clippy::print_stdout, reason = "it prints figures")]

pub mod broker;
pub mod channel;
pub mod daemon;
pub mod echo;
pub mod hub;
pub mod load;
pub mod memory;
pub mod oracle;
pub mod programs;
pub mod report;
pub mod token;
