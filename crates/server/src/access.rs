//! The rights of one connection, kept current.

use std::{
    future::{pending, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use arc_swap::ArcSwap;
use rustix::process::geteuid;
use tokio::sync::watch;
use tonic::{Request, Status};
use tracing::{Span, debug_span};

use super::status;
use credbroker_fleet::resolver::{CredentialRequest, Resolver};
use credbroker_plugin::{
    Context, Origin, PluginSpec,
    access::{Permit, Policy, Principal, Rights, Verb},
};
use credbroker_runner::CallingRun;
use credbroker_uds_server::{Peer, WatchSlot, WatchSlots};

/// The active policy, and each that follows it.
pub type Policies = watch::Receiver<Arc<Policy>>;

/// Who the peer of a connection is, and what it may do. The calls of the connection share it.
#[derive(Debug)]
pub struct Access {
    pub(super) peer: Peer,
    /// The plugin run that the peer is a process of.
    pub(super) run: Option<PeerRun>,
    /// The identity that the rights are for.
    pub(super) principal: Principal,
    current: ArcSwap<CurrentRights>,
}

#[derive(Clone, Debug)]
pub(super) enum PeerRun {
    /// The peer is the plugin or descends from it.
    Known(Arc<CallingRun>),
    /// The peer has ended, and its connection may be one of a run.
    Possible,
}

/// The rights under one policy, with a receiver that has seen it and no newer one.
#[derive(Debug)]
struct CurrentRights(Policies, Arc<Rights>);

impl CurrentRights {
    fn of(principal: &Principal, mut policies: Policies) -> Self {
        let rights = Arc::new(policies.borrow_and_update().rights(principal));
        Self(policies, rights)
    }
}

impl Access {
    pub(super) fn new(peer: Peer, principal: Principal, policies: Policies) -> Self {
        let current = ArcSwap::from_pointee(CurrentRights::of(&principal, policies));
        Self { peer, run: None, principal, current }
    }

    pub(super) fn of<T>(request: &Request<T>) -> Result<&Arc<Self>, Status> {
        request.extensions().get().ok_or_else(status::no_peer)
    }

    /// The rights of the peer now. Computed again only after the policy has changed; otherwise this takes no lock and
    /// allocates nothing.
    pub(super) fn rights(&self) -> Arc<Rights> {
        let current = self.current.load();
        let CurrentRights(policies, rights) = &**current;
        // An error means that the broker ends.
        if !policies.has_changed().unwrap_or(false) {
            return Arc::clone(rights);
        }
        let renewed = CurrentRights::of(&self.principal, policies.clone());
        let rights = Arc::clone(&renewed.1);
        self.current.store(Arc::new(renewed));
        rights
    }

    pub(super) fn permit(&self, verb: Verb) -> Permit {
        Permit::new(self.rights(), verb)
    }

    /// Whether the peer still has the rights of `permit`. A configuration makes its rules active before its
    /// providers, so a request whose permit is current after it was resolved has no provider of a newer configuration than
    /// its rights.
    pub(super) fn is_current(&self, permit: &Permit) -> bool {
        permit.is_of(&self.rights())
    }

    /// Resolves `ask` with the rights of the peer now. With the context that it names, if it names one.
    pub(super) fn resolve(
        &self,
        resolver: &Resolver,
        ask: &mut CredentialRequest,
    ) -> Result<(PluginSpec, Option<Arc<Context>>), Status> {
        loop {
            ask.permit = ask.permit.with(self.rights());
            let spec = resolver.resolve_in_context(ask.clone());
            if self.is_current(&ask.permit) {
                return spec.map_err(|error| status::unresolved(&error, &ask.source));
            }
        }
    }

    /// The rights of the peer, if it may do `verb` with anything.
    pub(super) fn need(&self, verb: Verb) -> Result<Arc<Rights>, Status> {
        let rights = self.rights();
        if rights.has(verb) { Ok(rights) } else { Err(status::verb_denied(verb)) }
    }

    /// Changes of the policy that [`rights`](Self::rights) does not know yet, and later ones.
    pub(super) fn changes(&self) -> Policies {
        self.current.load().0.clone()
    }

    /// Waits until the peer has no right at all. Each poll reads the rights, because a new policy is active slightly
    /// before its waiters are notified.
    pub(super) async fn lost_all(&self) {
        let mut policies = self.changes();
        let mut changes = pin!(async {
            while policies.changed().await.is_ok() {
                if self.rights().is_empty() {
                    return;
                }
            }
            // The broker ends, and the rights remain.
            pending::<()>().await;
        });
        poll_fn(|cx| if self.rights().is_empty() { Poll::Ready(()) } else { changes.as_mut().poll(cx) })
            .await;
    }

    /// Whether the peer may ask whether the broker works, under any rules: the broker's own user and root may.
    pub(super) fn may_ask_for_health(&self) -> bool {
        self.principal.is_owner && self.principal.uid.is_some()
    }

    /// Whether the peer is the broker's own user.
    pub(super) fn is_own(&self) -> bool {
        self.principal.uid == Some(geteuid().as_raw())
    }

    /// Whether no other user than `own` and root can get a credential of the provider now.
    pub(super) fn is_alone(&self, own: u32, provider: &str) -> bool {
        self.current.load().0.borrow().is_alone(own, provider)
    }

    pub(super) fn span(&self, rpc: &'static str) -> Span {
        debug_span!("request", rpc, uid = self.peer.uid, pid = self.peer.pid)
    }

    pub(super) fn origin(&self) -> Origin {
        self.principal.process.facts().origin
    }

    pub(super) fn denied(&self) -> Status {
        let cause = match self.principal.uid {
            None => status::UNMAPPED,
            Some(_) if self.current.load().0.borrow().has_rules() => status::UNLISTED,
            Some(_) => status::STRANGER,
        };
        status::peer_denied(self.peer.uid, cause)
    }
}

/// Takes a slot of the connection that `request` came on.
pub(super) fn watch_slot<T>(request: &Request<T>) -> Result<WatchSlot, Status> {
    let Some(slots) = request.extensions().get::<WatchSlots>() else { return Err(status::no_peer()) };
    slots.acquire().map_err(status::refusal)
}

#[cfg(test)]
mod tests;
