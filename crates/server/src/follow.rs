//! Watches of credentials: one message per rotation.

use std::{fmt, pin::Pin, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, stream::unfold};
use tokio::sync::watch;
use tonic::{Request, Status};

use super::{
    access::{Access, Policies},
    audit_record::Asked,
    status::{self, Subject},
};
use credbroker_cache::{CacheError, Caller, CredentialCache, CredentialWatch, Failed};
use credbroker_fleet::resolver::{CredentialRequest, Resolver};
use credbroker_observe::{audit::Audit, trace};
use credbroker_plugin::{PluginSpec, access::Verb};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::{WatchSlot, WatchSlots};

/// The framed messages of one watch. A message is made when the peer can take it, so a slow reader gets only the latest
/// and does not delay other readers.
pub(super) type CredentialMessages = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// Takes a slot of the connection that `request` came on.
pub(super) fn watch_slot<T>(request: &Request<T>) -> Result<WatchSlot, Status> {
    let Some(slots) = request.extensions().get::<WatchSlots>() else { return Err(status::no_peer()) };
    slots.acquire().map_err(status::refusal)
}

/// An open watch: the request, and the run that it currently leads to.
pub(super) struct CredentialStream<R> {
    cache: CredentialCache<R>,
    resolver: Arc<Resolver>,
    ask: CredentialRequest,
    access: Arc<Access>,
    audit: Audit,
    /// Notified when the access rules change.
    policies: Policies,
    caller: Caller,
    subject: Subject,
    watch: CredentialWatch<R>,
    /// Notified when the ClusterProfile changes. `None`: the watch is not for a profile.
    profile: Option<watch::Receiver<u64>>,
    _slot: WatchSlot,
}

impl<R> fmt::Debug for CredentialStream<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialStream").field("subject", &self.subject).finish_non_exhaustive()
    }
}

impl<R: PluginRunner> CredentialStream<R> {
    pub(super) fn start(
        cache: CredentialCache<R>,
        resolver: Arc<Resolver>,
        mut ask: CredentialRequest,
        ((access, caller), audit): ((Arc<Access>, Caller), Audit),
        slot: WatchSlot,
    ) -> Result<Self, Status> {
        // Before the rights are read: a change in between is not lost.
        let policies = access.changes();
        let spec = access.resolve(&resolver, &mut ask);
        let spec = spec.map_err(|error| status::unresolved(&error, &ask.source))?;
        trace::names(&spec);
        let subject = Subject::of(&spec);
        let profile = resolver.follow(&spec);
        let watch = cache.watch(spec, caller).map_err(|failed| status::failed(&subject, &failed))?;
        Ok(Self {
            cache,
            resolver,
            ask,
            access,
            audit,
            policies,
            caller,
            subject,
            watch,
            profile,
            _slot: slot,
        })
    }

    pub(super) fn messages(self) -> CredentialMessages {
        Box::pin(unfold(Some(self), async |following| {
            let mut following = following?;
            match following.next().await {
                Ok(message) => Some((Ok(message), Some(following))),
                Err(status) => Some((Err(status), None)),
            }
        }))
    }

    async fn next(&mut self) -> Result<Bytes, Status> {
        loop {
            let news = tokio::select! {
                biased;
                Ok(()) = self.policies.changed() => {
                    self.keep_right()?;
                    continue;
                }
                () = changed(self.profile.as_mut()) => {
                    self.move_with_profile()?;
                    continue;
                }
                news = self.watch.next() => news,
            };
            match news {
                Ok(issued) => return Ok(issued.encoded.frame.clone()),
                Err(failed) => return Err(status::failed(&self.subject, &failed)),
            }
        }
    }

    /// Ends the watch if the new access rules do not allow it.
    fn keep_right(&mut self) -> Result<(), Status> {
        self.ask.permit = self.ask.permit.with(self.access.rights());
        let CredentialRequest { source, permit, .. } = &self.ask;
        let allowed = source.check(permit, self.subject.provider(), self.subject.profile());
        if allowed.is_ok() {
            return Ok(());
        }
        let asked = Asked::credential(&self.audit, &self.access, Verb::Watch, source);
        asked.decided(allowed.map_err(|error| status::unresolved(&error, source)))
    }

    /// Follows the profile to another endpoint or provider, which has another key. If the profile no longer leads to a
    /// run, the watch ends: its credential is for another cluster. So it does if the provider has another definition.
    fn move_with_profile(&mut self) -> Result<(), Status> {
        if let Some(why) = self.watch.retirement() {
            return Err(status::failed(&self.subject, &CacheError::Retired(why).into()));
        }
        let spec = self.access.resolve(&self.resolver, &mut self.ask);
        let spec = spec.map_err(|error| status::unresolved(&error, &self.ask.source))?;
        self.move_to(spec).map_err(|failed| status::failed(&self.subject, &failed))
    }

    /// Replaces the watch even if the key is the same. A profile that is deleted and created again at once keeps its
    /// key, but the cache has dropped the entry that the old watch follows.
    fn move_to(&mut self, spec: PluginSpec) -> Result<(), Failed> {
        let profile = self.resolver.follow(&spec);
        let subject = Subject::of(&spec);
        let mut watch = self.cache.watch(spec, self.caller)?;
        watch.succeeds(&self.watch);
        (self.watch, self.profile, self.subject) = (watch, profile, subject);
        Ok(())
    }
}

/// Waits until the profile changes or is deleted; without end if there is no profile.
async fn changed(profile: Option<&mut watch::Receiver<u64>>) {
    match profile {
        // An error means that the profile was deleted, which is also a change.
        Some(profile) => drop(profile.changed().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
