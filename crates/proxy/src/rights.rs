//! Who may use which target.

use std::{fmt, sync::Arc};

use tokio::sync::watch;

use crate::{caller::Caller, target::KnownTarget};

/// Decides who may use which target.
pub trait Rights: fmt::Debug + Send + Sync + 'static {
    /// Whether `caller` may send requests to `target` now.
    fn may_use(&self, caller: &Caller, target: &KnownTarget) -> bool;

    /// The access rule by which `caller` may use `target`. `None`: it needs none, or may not use it.
    fn rule(&self, _caller: &Caller, _target: &KnownTarget) -> Option<Arc<str>> {
        None
    }

    /// Whether `caller` may see what goes to `target`; `None`: to any target.
    fn may_list(&self, caller: &Caller, target: Option<&KnownTarget>) -> bool;

    /// Changes whenever [`Self::may_use`] may have another answer. Open requests whose caller has lost its right are then
    /// ended within a second.
    fn changes(&self) -> watch::Receiver<u64>;
}
