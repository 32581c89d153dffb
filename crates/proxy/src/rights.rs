//! Who may use which target.

use std::fmt;

use tokio::sync::watch;

use crate::{caller::Caller, target::KnownTarget};

/// Decides who may use which target.
pub trait Rights: fmt::Debug + Send + Sync + 'static {
    /// Whether `caller` may send requests to `target` now.
    fn may_use(&self, caller: &Caller, target: &KnownTarget) -> bool;

    /// Changes whenever [`Self::may_use`] may have another answer. Open requests whose caller has lost its right are then
    /// ended within a second.
    fn changes(&self) -> watch::Receiver<u64>;
}
