//! The watch of one credential: it follows the access rules and the ClusterProfile to the run that they lead to now.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use tonic::Status;

use super::{
    access::{Access, Policies},
    audit_record::Asked,
    broker::Broker,
    convert::named,
    credentials::in_context,
    preencoded::Follow,
    status::{self, Subject},
};
use credbroker_cache::{CacheError, CredentialWatch};
use credbroker_fleet::resolver::CredentialRequest;
use credbroker_observe::trace;
use credbroker_plugin::{Context, ResolveError, access::Verb};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::WatchSlot;

/// An open watch: the request, and the run that it currently leads to.
pub(super) struct ReferenceWatch<R> {
    broker: Arc<Broker<R>>,
    ask: CredentialRequest,
    access: Arc<Access>,
    policies: Policies,
    subject: Subject,
    watch: CredentialWatch<R>,
    /// The context that the request names. `None`: it names none.
    context: Option<Arc<Context>>,
    /// Notified when the ClusterProfile changes. `None`: the watch is not for a profile.
    profile: Option<watch::Receiver<u64>>,
}

impl<R: PluginRunner> ReferenceWatch<R> {
    /// Waits until the hub is read, if the answer depends on it. Records the decision.
    pub(super) async fn start(
        broker: Arc<Broker<R>>,
        ask: CredentialRequest,
        access: Arc<Access>,
    ) -> Result<Self, Status> {
        let asked_at = Arc::clone(&broker);
        let asked =
            Asked::credential((&asked_at.audit, &asked_at.resolver), &access, Verb::Watch, &ask.source);
        broker.resolver.settled(&ask).await;
        asked.decided(Self::of(broker, ask, access))
    }

    fn of(broker: Arc<Broker<R>>, mut ask: CredentialRequest, access: Arc<Access>) -> Result<Self, Status> {
        // Before the rights are read: a change in between is not lost.
        let policies = access.changes();
        let Broker { cache, resolver, .. } = &*broker;
        let (spec, context) = access.resolve(resolver, &mut ask)?;
        trace::names(|| Some(&spec));
        let subject = Subject::of(&spec);
        let profile = resolver.follow(&spec);
        let watch = cache.watch(spec, named(&access.peer, ""));
        let watch = watch.map_err(|failed| status::failed(&subject, &failed))?;
        Ok(Self { broker, ask, access, policies, subject, watch, context, profile })
    }

    /// Waits for a credential that differs from the one that was returned last, and returns the framed answer with it. An
    /// error ends the watch.
    pub(super) async fn next(&mut self) -> Result<Bytes, Status> {
        loop {
            tokio::select! {
                biased;
                Ok(()) = self.policies.changed() => self.keep_right()?,
                () = changed(self.profile.as_mut()) => self.move_with_profile()?,
                () = ended(self.context.as_deref()) => return Err(self.without_context()),
                news = self.watch.next() => {
                    let issued = news.map_err(|failed| status::failed(&self.subject, &failed))?;
                    return Ok(in_context(&issued, self.context.as_deref()));
                }
            }
        }
    }

    /// Why the watch ends: its context has ended. A context of that name now has another digest, and may be another cluster.
    fn without_context(&self) -> Status {
        if let Some(why) = self.watch.retirement() {
            return status::failed(&self.subject, &CacheError::Retired(why).into());
        }
        let name = self.context.as_ref().map(|context| context.id.name.to_string()).unwrap_or_default();
        status::unresolved(&ResolveError::UnknownContext(name), &self.ask.source)
    }

    /// Fails if the new access rules do not allow the watch.
    fn keep_right(&mut self) -> Result<(), Status> {
        self.ask.permit = self.ask.permit.with(self.access.rights());
        let CredentialRequest { source, permit, .. } = &self.ask;
        let allowed = source.check(permit, &self.subject.provider, self.subject.profile.as_ref());
        if allowed.is_ok() {
            return Ok(());
        }
        let asked =
            Asked::credential((&self.broker.audit, &self.broker.resolver), &self.access, Verb::Watch, source);
        asked.decided(allowed.map_err(|error| status::unresolved(&error, source)))
    }

    /// Follows the profile to another endpoint or provider, which has another key. If the profile no longer leads to a
    /// run, the watch ends: its credential is for another cluster. So it does if the provider has another definition.
    fn move_with_profile(&mut self) -> Result<(), Status> {
        if let Some(why) = self.watch.retirement() {
            return Err(status::failed(&self.subject, &CacheError::Retired(why).into()));
        }
        let Broker { cache, resolver, .. } = &*self.broker;
        let (spec, _) = self.access.resolve(resolver, &mut self.ask)?;
        let (profile, subject) = (resolver.follow(&spec), Subject::of(&spec));
        // Replaced even if the key is the same. A profile that is deleted and created again at once keeps its key, but the
        // cache has dropped the entry that the old watch follows.
        let watch = cache.watch(spec, named(&self.access.peer, ""));
        let mut watch = watch.map_err(|failed| status::failed(&self.subject, &failed))?;
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

/// Waits until the context has ended; without end if there is none.
async fn ended(context: Option<&Context>) {
    match context {
        Some(context) => context.ended().await,
        None => std::future::pending().await,
    }
}

/// The messages of `WatchCredential`.
pub(super) struct CredentialStream<R> {
    pub(super) watch: ReferenceWatch<R>,
    pub(super) _slot: WatchSlot,
}

impl<R: PluginRunner> Follow for CredentialStream<R> {
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        Some(self.watch.next().await)
    }
}

#[cfg(test)]
pub(crate) mod tests;
