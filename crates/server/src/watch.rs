//! The watch of one credential: it follows the access rules and the ClusterProfile to the run that serves the request now.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use tonic::{Code, Status};

use super::{
    access::{Access, Policies},
    audit_record::Asked,
    broker::Broker,
    convert::{WatchedReference, named},
    credentials::in_context,
    preencoded::Follow,
    status::{self, Subject},
};
use credbroker_cache::{CacheError, CredentialWatch};
use credbroker_fleet::resolver::{CredentialRequest, Source};
use credbroker_observe::trace;
use credbroker_plugin::{
    Context, Retirement,
    access::{CallTarget, Verb},
};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::WatchSlot;

/// An open watch: the request, and the run that serves it now. Its owner looks at the access rules when they change, with
/// [`keeps_right`].
pub(super) struct ReferenceWatch<R> {
    broker: Arc<Broker<R>>,
    reference: WatchedReference,
    access: Arc<Access>,
    watch: CredentialWatch<R>,
    /// The context that the request names. `None`: it names none.
    context: Option<Arc<Context>>,
    /// Notified when the ClusterProfile changes. `None`: the watch is not for a profile.
    profile: Option<watch::Receiver<u64>>,
}

/// Fails if the access rules no longer allow a watch of `reference`.
pub(super) fn keeps_right<R: PluginRunner>(
    broker: &Broker<R>,
    reference: &WatchedReference,
    access: &Arc<Access>,
) -> Result<(), Status> {
    let mut ask = reference.ask(access)?;
    match access.resolve(&broker.resolver, &mut ask) {
        // Rules make what was removed look like what they forbid.
        Err(status) if status.code() == Code::PermissionDenied && is_forbidden(broker, &ask, access) => {
            Asked::credential((&broker.audit, &broker.resolver), access, Verb::Watch, &ask.source)
                .decided(Err(status))
        }
        // Other errors are for the watch itself to notice: its credential may go on.
        _ => Ok(()),
    }
}

/// Whether a rule is missing for what `ask` names, or may be: what a ClusterProfile or a cluster leads to needs rules too.
fn is_forbidden<R>(broker: &Broker<R>, ask: &CredentialRequest, access: &Access) -> bool {
    let may_watch = |name: &str| access.rights().allows(Verb::Watch, CallTarget::Provider(name));
    let providers = broker.resolver.providers();
    match &ask.source {
        Source::Provider(provider) => providers.find(&provider.name).is_ok() || !may_watch(&provider.name),
        Source::Context(id) => providers.context(id).is_ok_and(|context| !may_watch(&context.user)),
        Source::ClusterProfile(_) => true,
    }
}

impl<R: PluginRunner> ReferenceWatch<R> {
    /// Waits until the hub is read, if the answer depends on it. Records the decision.
    pub(super) async fn start(
        broker: Arc<Broker<R>>,
        reference: WatchedReference,
        access: Arc<Access>,
    ) -> Result<Self, Status> {
        let mut ask = reference.ask(&access)?;
        let asked_at = Arc::clone(&broker);
        let asked =
            Asked::credential((&asked_at.audit, &asked_at.resolver), &access, Verb::Watch, &ask.source);
        broker.resolver.settled(&ask).await;
        asked.decided(Self::of(broker, reference, &mut ask, access))
    }

    fn of(
        broker: Arc<Broker<R>>,
        reference: WatchedReference,
        ask: &mut CredentialRequest,
        access: Arc<Access>,
    ) -> Result<Self, Status> {
        let Broker { cache, resolver, .. } = &*broker;
        let (spec, context) = access.resolve(resolver, ask)?;
        trace::names(|| Some(&spec));
        let (profile, subject) = (resolver.follow(&spec), Subject::of(&spec, context.as_deref()));
        let watch = cache.watch(spec, named(&access.peer, ""));
        let watch = watch.map_err(|failed| status::failed(&subject, &failed))?;
        Ok(Self { broker, reference, access, watch, context, profile })
    }

    /// Waits for a credential that differs from the one that was returned last, and returns the framed answer with it. An
    /// error ends the watch.
    pub(super) async fn next(&mut self) -> Result<Bytes, Status> {
        loop {
            tokio::select! {
                biased;
                () = changed(self.profile.as_mut()) => self.move_with_profile()?,
                () = ended(self.context.as_deref()) => return Err(self.without_context()),
                news = self.watch.next() => {
                    let issued = news.map_err(|failed| status::failed(&self.subject(), &failed))?;
                    return Ok(in_context(&issued, self.context.as_deref()));
                }
            }
        }
    }

    /// Why the watch ends: its context has ended. A context of that name now has another digest, and may be another cluster,
    /// so clients must not use the credential further.
    fn without_context(&self) -> Status {
        let why = self.watch.retirement().unwrap_or(Retirement::Changed);
        status::failed(&self.subject(), &CacheError::Retired(why).into())
    }

    fn subject(&self) -> Subject {
        Subject::of(self.watch.spec(), self.context.as_deref())
    }

    /// Follows the profile to another endpoint or provider, which has another key. If the profile no longer leads to a
    /// run, the watch ends: its credential is for another cluster. So it does if the provider has another definition.
    fn move_with_profile(&mut self) -> Result<(), Status> {
        if let Some(why) = self.watch.retirement() {
            return Err(status::failed(&self.subject(), &CacheError::Retired(why).into()));
        }
        // The watch that replaces this one knows nothing of evictions before it.
        if self.watch.is_evicted() {
            return Err(status::failed(&self.subject(), &CacheError::Evicted.into()));
        }
        let Broker { cache, resolver, .. } = &*self.broker;
        let (spec, _) = self.access.resolve(resolver, &mut self.reference.ask(&self.access)?)?;
        let profile = resolver.follow(&spec);
        // Replaced even if the key is the same. A profile that is deleted and created again immediately keeps its key, but the
        // cache has dropped the entry that the old watch follows.
        let watch = cache.watch(spec, named(&self.access.peer, ""));
        let mut watch = watch.map_err(|failed| status::failed(&self.subject(), &failed))?;
        watch.succeeds(&self.watch);
        (self.watch, self.profile) = (watch, profile);
        Ok(())
    }
}

/// Waits until the profile changes or is deleted; without end if there is no profile.
async fn changed(profile: Option<&mut watch::Receiver<u64>>) {
    match profile {
        // An error means that the profile was deleted, which is also a change.
        // Boxed, because most watches are for no profile.
        Some(profile) => drop(Box::pin(profile.changed()).await),
        None => std::future::pending().await,
    }
}

/// Waits until the context has ended; without end if there is none.
async fn ended(context: Option<&Context>) {
    match context {
        // Boxed, as above.
        Some(context) => Box::pin(context.ended()).await,
        None => std::future::pending().await,
    }
}

/// The messages of `WatchCredential`.
pub(super) struct CredentialStream<R> {
    broker: Arc<Broker<R>>,
    reference: WatchedReference,
    access: Arc<Access>,
    policies: Policies,
    watch: ReferenceWatch<R>,
    _slot: WatchSlot,
}

impl<R: PluginRunner> CredentialStream<R> {
    pub(super) async fn start(
        broker: Arc<Broker<R>>,
        reference: WatchedReference,
        access: Arc<Access>,
        slot: WatchSlot,
    ) -> Result<Self, Status> {
        // Before the rights are read: a change in between is not lost.
        let policies = access.changes();
        let watch =
            ReferenceWatch::start(Arc::clone(&broker), reference.clone(), Arc::clone(&access)).await?;
        Ok(Self { broker, reference, access, policies, watch, _slot: slot })
    }
}

impl<R: PluginRunner> Follow for CredentialStream<R> {
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            tokio::select! {
                biased;
                Ok(()) = self.policies.changed() => {
                    if let Err(status) = keeps_right(&self.broker, &self.reference, &self.access) {
                        return Some(Err(status));
                    }
                }
                news = self.watch.next() => {
                    return Some(news);
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
