//! A request to the cache, and an answer from memory.

use std::{sync::Arc, time::Duration};

use super::{Attendant, Caller, attention::Asker};
use credbroker_credential::{Cluster, Issued};
use credbroker_plugin::{PluginSpec, Session};
use credbroker_runner::Lender;

/// Who asks for a credential, and under which conditions.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// How long the caller waits; `None`: it set no deadline.
    pub deadline: Option<Duration>,
    /// The API server to ask whether it accepts the credential; `None`: the broker cannot ask one.
    pub verify_at: Option<Arc<Cluster>>,
    /// Attends the runs that the caller waits for; `None`: the caller does not attend them.
    pub attendant: Option<Arc<Attendant>>,
    /// The session of the person who asks. A run that the request starts has it, and the caller attends that run.
    pub session: Option<Arc<Session>>,
    /// The caller can run the plugin in its own terminal.
    pub lender: Option<Arc<Lender>>,
    /// A person asks for a run, also if there is a valid credential.
    pub is_login: bool,
}

impl Request {
    /// Whom a run of `spec` starts for.
    pub(super) fn asker(&self, spec: &PluginSpec) -> Asker {
        // A lender that has taken an offer is one no longer, and no terminal is borrowed for other users.
        let lends = self.lender.as_ref().is_some_and(|lender| lender.is_free());
        let lends = lends && !spec.provider.standing.is_shared();
        match (self.is_login, self.caller.at_terminal) {
            (true, _) => Asker::Login { lends },
            (false, true) => Asker::Person { lends },
            (false, false) => Asker::Program,
        }
    }
}

/// The result of a lookup in memory.
#[derive(Debug)]
pub enum Lookup {
    /// A valid credential.
    Served(Arc<Issued>),
    /// There is none, or the caller already has it: call [`CredentialCache::get`](super::CredentialCache::get).
    Undecided,
}
