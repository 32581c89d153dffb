//! Which calls are served, before their requests are read.

use std::sync::{Arc, atomic::Ordering};

use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use super::{Exchanges, REFLECTION};
use crate::{audit_record, connection::ConnectionRefusal, response_body::Loss, status};

/// Prefix of the methods that report whether the broker works.
const HEALTH: &str = "/grpc.health.v1.Health/";
/// A connection of a peer without any right ends after so many calls.
const DENIALS: usize = 16;
/// Path of a streaming method that this module counts as a watch. The broker's own services count theirs.
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

impl Exchanges {
    /// Whether the request is a stream of messages, and the watch slot that its answer takes.
    pub(super) fn admit(&self, path: &str) -> Result<(bool, Option<OwnedSemaphorePermit>), Status> {
        match &self.refusal {
            None => {}
            Some(ConnectionRefusal::Denied) => return Err(self.denied(path)),
            Some(ConnectionRefusal::Descendant(run)) => {
                run.refused();
                return Err(self.refused(path, status::descendant()));
            }
            Some(ConnectionRefusal::Full(full)) => return Err(status::too_many_connections(*full)),
        }
        // The services check more: which verb, and for which credential.
        if self.access.rights().is_empty() && !self.is_for_owners(path) {
            return Err(self.denied(path));
        }
        self.traffic.check_bytes().map_err(status::too_many_bytes)?;
        let streams = path.starts_with(REFLECTION);
        let counts = streams || path == HEALTH_WATCH;
        Ok((streams, if counts { Some(self.watches.acquire()?) } else { None }))
    }

    /// Whether the peer may call this without a right.
    fn is_for_owners(&self, path: &str) -> bool {
        path.starts_with(HEALTH) && self.access.may_ask_for_health()
    }

    /// Ends a stream that this module counts as a watch when the peer loses all rights. `None`: it needs none.
    pub(super) fn loss(&self, path: &str) -> Option<Loss> {
        if self.is_for_owners(path) {
            return None;
        }
        let (access, audit, path) =
            (Arc::clone(&self.access), self.connections.services.audit.clone(), path.to_owned());
        Some(Box::pin(async move {
            access.lost_all().await;
            let status = status::peer_denied(access.peer.uid, access.no_rights());
            audit_record::refused(&audit, &access, &path, &status);
            status
        }))
    }

    fn denied(&self, path: &str) -> Status {
        if self.denials.fetch_add(1, Ordering::Relaxed) + 1 == DENIALS {
            self.traffic.give_way();
        }
        self.refused(path, status::peer_denied(self.access.peer.uid, self.access.no_rights()))
    }

    /// Records that the call is denied.
    fn refused(&self, path: &str, status: Status) -> Status {
        audit_record::refused(&self.connections.services.audit, &self.access, path, &status);
        status
    }
}
