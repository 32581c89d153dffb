//! The real binary against a broker that answers what a test tells it to.

#![expect(clippy::disallowed_methods, reason = "tests start the shim and their broker's tasks")]

mod broker;
mod failures;
mod requests;
mod shim;
mod success;
mod waiting;
