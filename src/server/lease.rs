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

use super::{access::Access, peer::Peer, status};
use crate::{
    exec::{Deposit, LeasedCommand, Lender, Offer},
    plugin::{Interactive, Origin, PluginSpec},
};

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
mod tests {
    use std::collections::BTreeMap;

    use tokio::sync::watch;

    use super::*;
    use crate::{
        access::{Facts, Grant, Peers, Policy, Principal, Process, Rule, Verb},
        plugin::{Command, Globs, PluginFile, PluginKey, Provider, test_provider},
    };

    fn own() -> u32 {
        geteuid().as_raw()
    }

    /// Whether a caller with these properties may lend its terminal to a provider of `mode`, for which there are rules for
    /// `uids`.
    fn lends((uid, pid, origin): (u32, Option<i32>, Origin), mode: Interactive, uids: &[u32]) -> bool {
        let facts = Facts { origin, ..Facts::default() };
        let process = Process::new(move || facts);
        let principal = Principal { uid: Some(uid), process, ..Principal::default() };
        let rule = |uid: &u32| {
            let peers = Peers { uids: vec![*uid], ..Peers::default() };
            let verbs = [Verb::Get].into_iter().collect();
            Rule {
                name: "r".into(),
                peers,
                allow: Grant { providers: Globs::new(["p"]), verbs, ..Grant::default() },
            }
        };
        let policies = watch::Sender::new(Arc::new(Policy::new(uids.iter().map(rule)))).subscribe();
        let access = Access::new(Peer { listener: 0, uid, gid: uid, pid }, principal, policies);
        let command = Command::Path("/fake".into());
        let spec = PluginSpec {
            key: PluginKey([0; 32]),
            provider: Arc::new(Provider { interactive: mode, ..test_provider("p", command.clone()) }),
            file: Arc::new(PluginFile::new(command, None)),
            cluster: None,
            caller_env: BTreeMap::new(),
            target: None,
        };
        lender(&access, &spec).is_some()
    }

    #[test]
    fn only_a_process_of_the_brokers_user_beside_the_broker_lends_its_terminal() {
        let beside = Origin::Beside;
        for (caller, mode, uids, expected) in [
            ((own(), Some(7), beside), Interactive::Always, &[][..], true),
            ((own(), Some(7), beside), Interactive::IfAvailable, &[], true),
            ((own(), Some(7), beside), Interactive::Never, &[], false),
            ((own() + 1, Some(7), beside), Interactive::Always, &[], false),
            ((own(), Some(7), Origin::Elsewhere), Interactive::Always, &[], false),
            ((own(), None, beside), Interactive::Always, &[], false),
            ((own(), Some(7), beside), Interactive::Always, &[own()], true),
            ((own(), Some(7), beside), Interactive::Always, &[own(), own() + 1], false),
        ] {
            assert_eq!(lends(caller, mode, uids), expected, "{caller:?} {mode:?} {uids:?}");
        }
    }

    fn offer() -> (Offer, oneshot::Receiver<Deposit>) {
        let (deposit, deposited) = oneshot::channel();
        let environment = [("A".into(), "b=c".into())].into();
        let command = LeasedCommand { program: "/bin/pw".into(), args: vec!["-x".into()], environment };
        (Offer { command, deposit }, deposited)
    }

    #[test]
    fn only_the_holder_brings_the_output_and_only_while_it_holds_the_lease() {
        let leases = Leases::default();
        let peer = |pid| Peer { listener: 0, uid: 1, gid: 1, pid: Some(pid) };
        let (offer, mut deposited) = offer();
        let (lease, command) = leases.grant(&peer(7), offer);
        assert_eq!(command.command, [&b"/bin/pw"[..], b"-x"]);
        assert_eq!(command.environment, [b"A=b=c"]);
        let output = |lease_id| pb::DepositOutputRequest { lease_id, stdout: b"out".to_vec(), exit_code: 0 };
        assert!(leases.deposit(&peer(8), output(command.id)).is_err(), "another process");
        assert!(leases.deposit(&peer(7), output(command.id + 1)).is_err(), "another lease");
        leases.deposit(&peer(7), output(command.id)).unwrap();
        assert_eq!(*deposited.try_recv().unwrap().stdout, b"out");
        assert!(leases.deposit(&peer(7), output(command.id)).is_err(), "a second time");
        drop(lease);

        let (offer, mut deposited) = self::offer();
        let (lease, command) = leases.grant(&peer(7), offer);
        drop(lease);
        assert!(deposited.try_recv().is_err() && leases.lock().is_empty(), "the run is free at once");
        assert!(leases.deposit(&peer(7), output(command.id)).is_err());
    }
}
