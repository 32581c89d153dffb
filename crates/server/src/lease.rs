//! Leases: which caller may run a plugin in its terminal, and what it brings back.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use credbroker_proto::v1 as pb;
use rustix::process::geteuid;
use tokio::sync::oneshot;
use tonic::Status;

use super::{access::Access, status};
use credbroker_plugin::{Interactive, Origin, PluginSpec};
use credbroker_runner::{Deposit, LeasedCommand, Lender, Offer};
use credbroker_uds_server::Peer;

/// The leases that callers hold, by their id. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    open: Arc<Mutex<HashMap<u64, OpenLease>>>,
    last: Arc<AtomicU64>,
}

#[derive(Debug)]
struct OpenLease {
    /// The process that holds it.
    process: u64,
    deposit: oneshot::Sender<Deposit>,
}

/// A lease. The run ends when it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    leases: Leases,
    id: u64,
}

/// The caller as one that runs the plugin of `spec` in its own terminal, if it may: the plugin may read from one, the caller
/// runs as the broker's own user beside the broker, and no other user can get the credential, which the caller could forge.
/// Processes of plugin runs have no connection.
pub(super) fn lender(access: &Access, spec: &PluginSpec) -> Option<(Arc<Lender>, oneshot::Receiver<Offer>)> {
    let own = geteuid().as_raw();
    let process = access.peer.pid?.cast_unsigned();
    let may = spec.provider.interactive != Interactive::Never
        && spec.target.is_none()
        && access.principal().uid == Some(own)
        && access.origin() == Origin::Beside
        && access.is_alone(own, &spec.provider.name);
    may.then(|| Lender::new(process))
}

impl Leases {
    /// Grants a lease to the process of `peer`, and returns what it is asked to run.
    pub(super) fn grant(&self, peer: &Peer, offer: Offer) -> (Lease, pb::Lease) {
        let Offer { command: LeasedCommand { program, args, environment }, deposit } = offer;
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let command = [program.into_os_string()].into_iter().chain(args.into_iter().map(OsString::from));
        let variable = |(name, value): (OsString, OsString)| {
            [name.as_os_str(), OsStr::new("="), &value].map(OsStr::as_bytes).concat()
        };
        let command = pb::Lease {
            id,
            command: command.map(OsString::into_vec).collect(),
            environment: environment.into_iter().map(variable).collect(),
        };
        self.lock().insert(id, OpenLease { process: peer.process(), deposit });
        (Lease { leases: self.clone(), id }, command)
    }

    /// Takes what the process of `peer` brings.
    pub(super) fn deposit(&self, peer: &Peer, request: pb::DepositOutputRequest) -> Result<(), Status> {
        let pb::DepositOutputRequest { lease_id, stdout, exit_code } = request;
        let deposit = Deposit { stdout: stdout.into(), exit_code };
        let held = {
            let mut leases = self.lock();
            let is_held = leases.get(&lease_id).is_some_and(|open| open.process == peer.process());
            if is_held { leases.remove(&lease_id) } else { None }
        };
        held.and_then(|open| open.deposit.send(deposit).ok())
            .ok_or_else(|| status::invalid("this process does not hold a lease with this id"))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, OpenLease>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
