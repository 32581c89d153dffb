//! Requests by RPC and result.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use super::{
    counter::Counter,
    exposition::Exposition,
    families,
    rpc::{PATHS, Rpc},
};

/// The requests of all callers.
#[derive(Debug, Default)]
pub struct Requests {
    ok: [Counter; PATHS.len()],
    failed: Mutex<BTreeMap<(u8, &'static str), u64>>,
    denied: Mutex<BTreeMap<&'static str, u64>>,
}

impl Requests {
    /// A request was answered without an error. For a stream: it began.
    pub fn answered(&self, rpc: Rpc) {
        if let Some(count) = self.ok.get(usize::from(rpc.0)) {
            count.add_one();
        }
    }

    /// A request failed. `result` is a stable reason or the name of a gRPC code.
    pub fn failed(&self, rpc: Rpc, result: &'static str, is_denied: bool) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner).entry((rpc.0, result)).or_default() += 1;
        if is_denied {
            *self.denied.lock().unwrap_or_else(PoisonError::into_inner).entry(result).or_default() += 1;
        }
    }

    /// Writes both families.
    pub fn write(&self, to: &mut Exposition) {
        to.family(&families::REQUESTS);
        for ((name, _), count) in PATHS.iter().zip(&self.ok).filter(|(_, count)| count.get() > 0) {
            to.sample(&[("rpc", name), ("result", "OK")], count.get());
        }
        for ((rpc, result), count) in &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            to.sample(&[("rpc", Rpc(*rpc).name()), ("result", result)], *count);
        }
        to.family(&families::DENIALS);
        for (reason, count) in &*self.denied.lock().unwrap_or_else(PoisonError::into_inner) {
            to.sample(&[("reason", reason)], *count);
        }
    }
}
