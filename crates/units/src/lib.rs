//! Durations and sizes as people write them: [`duration`] as Go does (`1h30m`), [`size`] as Kubernetes does (`64Mi`).
//!
//! Integers only: the shim links this crate, and tables of floating point would be a hundredth of it.

mod decimal;
pub mod duration;
pub mod size;
