//! Resolves a request to one invocation of one plugin.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::{sync::watch, task::spawn_blocking, time::timeout};

use crate::fleet::Fleet;
use credbroker_credential::{Cluster, text::chain};
use credbroker_observe::clock::Beat;
use credbroker_plugin::{
    ClusterInfo, Context, ContextId, Entry, Origin, PluginKey, PluginSpec, ProfileName, ProviderProblem,
    ProviderRef, Providers, ResolveError, Route, Sent, Target,
    access::{CallTarget, Permit},
    difference,
};
use credbroker_runner::look_up_files;

/// How long a request waits for the outcome of an attempt to read a hub that was not read yet.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// Interval between look-ups of the plugins' files.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A caller's request for a credential.
#[derive(Clone, Default)]
pub struct CredentialRequest {
    /// The credential that a request names.
    pub source: Source,
    /// Cluster information that client-go sent to the caller, if any.
    pub cluster: Option<Box<Cluster>>,
    /// Variables of the caller's environment, as the caller sent them.
    pub env: BTreeMap<String, String>,
    /// The names of those that it sent only because these look like the name of an account, sorted.
    pub by_name: Vec<String>,
    /// Where the caller runs, which decides which variables it may send.
    pub origin: Origin,
    /// What the caller may request.
    pub permit: Permit,
}

/// Logs why variables of a caller do not reach a plugin.
fn warn(why: &ResolveError) {
    tracing::warn!("{}", chain(why));
}

/// The credential that a request names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// The credential of a provider.
    Provider(ProviderRef),
    /// The credential of a cluster, by the name of its ClusterProfile.
    ClusterProfile(ProfileName),
    /// The credential of a context of a kubeconfig.
    Context(ContextId),
}

impl Source {
    /// What access rules say about it. `None`: it is a context, whose user they are about.
    pub fn target(&self) -> Option<CallTarget<'_>> {
        match self {
            Self::Provider(provider) => Some(CallTarget::Provider(&provider.name)),
            Self::ClusterProfile(profile) => Some(CallTarget::Profile(profile, None)),
            Self::Context(_) => None,
        }
    }

    /// Checks whether `permit` allows the run of `provider`, and of `profile` if it is for one, to a caller that names
    /// this source.
    pub fn check(
        &self,
        permit: &Permit,
        provider: &str,
        profile: Option<&ProfileName>,
    ) -> Result<(), ResolveError> {
        let run = match (self, profile) {
            (Self::Provider(_) | Self::Context(_), Some(profile)) => CallTarget::Through(provider, profile),
            (Self::Provider(_) | Self::Context(_), None) => CallTarget::Provider(provider),
            (Self::ClusterProfile(profile), _) => CallTarget::Profile(profile, Some(provider)),
        };
        if permit.allows(run) { Ok(()) } else { Err(self.not_allowed()) }
    }

    /// The error for a caller that may not know whether it exists.
    pub fn not_allowed(&self) -> ResolveError {
        match self {
            Self::Provider(provider) => ResolveError::ProviderNotAllowed(provider.name.clone()),
            Self::ClusterProfile(profile) => ResolveError::ProfileNotAllowed(profile.clone()),
            Self::Context(context) => ResolveError::ContextNotAllowed(context.name.to_string()),
        }
    }
}

impl Default for Source {
    fn default() -> Self {
        Self::Provider(ProviderRef::default())
    }
}

impl fmt::Debug for CredentialRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CredentialRequest");
        shown.field("source", &self.source).field("cluster", &self.cluster.as_ref().map(|c| &c.server));
        shown.field("env", &self.env.keys()).field("by_name", &self.by_name).field("origin", &self.origin);
        shown.field("permit", &self.permit).finish()
    }
}

/// Resolves requests against the active configuration.
#[derive(Debug)]
pub struct Resolver {
    /// Read on each request, without a lock that a writer could hold.
    world: ArcSwap<World>,
    /// How often another configuration was activated.
    replaced: watch::Sender<u64>,
}

impl Resolver {
    /// A resolver for the configured providers, and for the fleet if one is read.
    pub fn new(providers: Arc<Providers>, fleet: Option<Arc<Fleet>>) -> Self {
        let world = ArcSwap::from_pointee(World { providers, fleet });
        Self { world, replaced: watch::Sender::default() }
    }

    /// Makes another configuration active as a whole. Requests that were resolved before continue with the earlier one.
    pub fn replace(&self, providers: Arc<Providers>, fleet: Option<Arc<Fleet>>) {
        self.world.store(Arc::new(World { providers, fleet }));
        self.replaced.send_modify(|count| *count += 1);
    }

    /// Notifies when another configuration is active. The value is how often that happened.
    pub fn replacements(&self) -> watch::Receiver<u64> {
        self.replaced.subscribe()
    }

    /// The configured providers.
    pub fn providers(&self) -> Arc<Providers> {
        Arc::clone(&self.world.load().providers)
    }

    /// The fleet, if one is read.
    pub fn fleet(&self) -> Option<Arc<Fleet>> {
        self.world.load().fleet.clone()
    }

    /// The key of the run that `ask` leads to, to look up its credential. Reads memory only, copies no part of the
    /// request, and hashes only the parts that the plugin would receive.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve), which checks more. The cache has no entry for a request that it refuses.
    pub fn key(&self, ask: &CredentialRequest) -> Result<PluginKey, ResolveError> {
        self.key_in_context(ask).map(|(key, _)| key)
    }

    /// As [`key`](Self::key), with the context that the request names, if it names one.
    pub fn key_in_context(
        &self,
        ask: &CredentialRequest,
    ) -> Result<(PluginKey, Option<Arc<Context>>), ResolveError> {
        let (world, cluster) = (self.world.load(), ask.cluster.as_deref());
        let sent = Sent { env: &ask.env, by_name: &ask.by_name, origin: ask.origin };
        let (route, context) = world.permitted(&ask.source, cluster, &ask.permit)?;
        route.check(sent, warn)?;
        Ok((route.key(sent), context.map(Arc::clone)))
    }

    /// Resolves a request to one invocation. Reads memory only; the run looks up the plugin's file.
    ///
    /// # Errors
    ///
    /// The request leads to no run until the configuration or the fleet changes.
    pub fn resolve(&self, ask: CredentialRequest) -> Result<PluginSpec, ResolveError> {
        self.resolve_in_context(ask).map(|(spec, _)| spec)
    }

    /// As [`resolve`](Self::resolve), with the context that the request names, if it names one.
    pub fn resolve_in_context(
        &self,
        ask: CredentialRequest,
    ) -> Result<(PluginSpec, Option<Arc<Context>>), ResolveError> {
        let CredentialRequest { source, cluster, env, by_name, origin, permit } = ask;
        let (world, sent) = (self.world.load(), Sent { env: &env, by_name: &by_name, origin });
        let (route, context) = world.permitted(&source, cluster.as_deref(), &permit)?;
        route.check(sent, warn)?;
        Ok((route.spec(sent)?, context.map(Arc::clone)))
    }

    /// If the request depends on a hub that was not read yet, waits for the outcome of the attempt to read it that is in
    /// progress, or of the next one. Waits for one outcome only, and at most five seconds; if the next attempt begins
    /// later than that, not at all.
    pub async fn settled(&self, ask: &CredentialRequest) {
        let mut reads = {
            let world = self.world.load();
            let Some(fleet) = world.fleet.as_ref() else { return };
            // Before the state of the hub is read: no outcome is missed.
            let reads = fleet.reads();
            if fleet.hub().synced {
                return;
            }
            if ask.source.target().is_none_or(|target| !ask.permit.allows(target)) {
                return; // a wait would show that the provider exists, and no context depends on the hub
            }
            let needs_fleet = match &ask.source {
                Source::ClusterProfile(profile) => fleet.get(profile).is_none(),
                Source::Provider(provider) => {
                    let entry = world.providers.entry(provider).ok().filter(|_| ask.cluster.is_some());
                    entry.is_some_and(|entry| entry.provider.cluster_info == ClusterInfo::Match)
                }
                Source::Context(_) => false,
            };
            if !needs_fleet || fleet.pause() > FIRST_LOOK {
                return;
            }
            reads
        };
        // Ignores a timeout: the answer then uses what is known.
        drop(timeout(FIRST_LOOK, reads.changed()).await);
    }

    /// Notified when the profile of `spec` changes, closed when it is deleted. `None`: `spec` has no profile.
    pub fn follow(&self, spec: &PluginSpec) -> Option<watch::Receiver<u64>> {
        Some(self.world.load().fleet.as_ref()?.follow(spec.target.as_ref()?))
    }

    /// Looks up the plugins' files now, and then every two seconds. Runs until the future is dropped.
    pub async fn keep_looking(&self, beat: Beat) {
        loop {
            let providers = self.providers();
            // Not waited for: a mount that hangs holds this thread, and the next look leaves its file out.
            drop(spawn_blocking(move || look_up_files(&providers)));
            beat.next(LOOK_EVERY).await;
        }
    }
}

#[derive(Debug)]
struct World {
    providers: Arc<Providers>,
    fleet: Option<Arc<Fleet>>,
}

impl World {
    /// The run that a caller with `permit` may have. If access rules limit the caller, what does not exist gives the same
    /// error as what they forbid, and the rules are asked before anything is looked up.
    fn permitted<'a>(
        &'a self,
        source: &Source,
        sent: Option<&'a Cluster>,
        permit: &Permit,
    ) -> Result<(Route<'a>, Option<&'a Arc<Context>>), ResolveError> {
        if let Source::Context(id) = source {
            let (route, context) = self.in_context(id, sent, permit)?;
            return Ok((route, Some(context)));
        }
        if source.target().is_some_and(|target| !permit.allows(target)) {
            return Err(source.not_allowed());
        }
        let route = self.route(source, sent, permit).map(|route| (route, None));
        route.map_err(|error| match error {
            ResolveError::UnknownProvider(..) | ResolveError::UnknownProfile(_) if permit.hides_unknown() => {
                source.not_allowed()
            }
            // Without a known definition there is no provider of that name.
            ResolveError::UnknownDefinition(.., known) if permit.hides_unknown() && known.is_empty() => {
                source.not_allowed()
            }
            ResolveError::Profile(profile, error) => {
                let shows = |name: &str| permit.allows(CallTarget::Provider(name));
                ResolveError::Profile(profile, error.without_configured(shows))
            }
            other => other,
        })
    }

    fn route<'a>(
        &'a self,
        source: &Source,
        sent: Option<&'a Cluster>,
        permit: &Permit,
    ) -> Result<Route<'a>, ResolveError> {
        match source {
            Source::Provider(provider) => {
                let entry = self.providers.entry(provider)?;
                match sent {
                    Some(sent) if entry.provider.cluster_info == ClusterInfo::Match => {
                        self.matched(entry, sent, permit)
                    }
                    sent => entry.of_provider(sent),
                }
            }
            Source::ClusterProfile(profile) => {
                let target = self.target(profile)?;
                source.check(permit, &target.provider.name, None)?;
                if let Some(difference) = sent.and_then(|sent| difference(sent, &target.endpoint)) {
                    let profile = Some(profile.clone());
                    let mismatch = ProviderProblem::ClusterMismatch(profile, difference);
                    return Err(target.provider.error(mismatch));
                }
                self.providers.configured(&target.provider.name)?.of_target(target)
            }
            Source::Context(id) => self.in_context(id, sent, permit).map(|(route, _)| route),
        }
    }

    /// The run of the user of a context for its cluster. The plugin receives the broker's value, which is a part of the key
    /// only if the plugin receives it: a context and its user have one credential.
    fn in_context<'a>(
        &'a self,
        id: &ContextId,
        sent: Option<&Cluster>,
        permit: &Permit,
    ) -> Result<(Route<'a>, &'a Arc<Context>), ResolveError> {
        let not_allowed = || ResolveError::ContextNotAllowed(id.name.to_string());
        let context = match self.providers.context(id) {
            Err(_) if permit.hides_unknown() => return Err(not_allowed()),
            context => context?,
        };
        if !permit.allows(CallTarget::Provider(&context.user)) {
            return Err(not_allowed());
        }
        let entry = self.providers.entry_of(context)?;
        let cluster = &context.target()?.cluster;
        if let Some(difference) = sent.and_then(|sent| difference(sent, cluster)) {
            return Err(ResolveError::ContextMismatch(id.name.to_string(), difference));
        }
        Ok((entry.of_provider(Some(cluster))?, context))
    }

    fn target(&self, profile: &ProfileName) -> Result<Arc<Target>, ResolveError> {
        let fleet = self.fleet.as_ref().ok_or_else(|| ResolveError::NoHub(profile.clone()))?;
        let Some(known) = fleet.get(profile) else {
            return Err(match fleet.unread() {
                None => ResolveError::UnknownProfile(profile.clone()),
                Some((problem, retry_after)) => {
                    ResolveError::ProfileUnread(profile.clone(), problem, retry_after)
                }
            });
        };
        known.outcome.clone().map_err(|error| ResolveError::Profile(profile.clone(), error))
    }

    /// Finds a known cluster that matches the one that the caller sent. The plugin receives the broker's value.
    fn matched<'a>(
        &'a self,
        entry: &'a Entry,
        sent: &Cluster,
        permit: &Permit,
    ) -> Result<Route<'a>, ResolveError> {
        let provider = &entry.provider;
        let mismatch = |difference| provider.error(ProviderProblem::ClusterMismatch(None, difference));
        let mut fitting = provider.clusters.iter().filter(|known| difference(sent, known).is_none());
        if let Some(known) = fitting.next() {
            if provider.provide_cluster_info && fitting.next().is_some() {
                return Err(mismatch(
                    "it matches several known clusters that the plugin would distinguish; send the cluster's exec extension too",
                ));
            }
            return entry.of_provider(Some(known));
        }
        let mut differs = None;
        let at_server = self.fleet.as_ref().map(|fleet| fleet.at(&provider.name, &sent.server));
        let mut same = at_server.unwrap_or_default();
        same.retain(|target| permit.allows(CallTarget::Through(&provider.name, &target.profile)));
        same.retain(|target| {
            let difference = difference(sent, &target.endpoint);
            differs = difference.or(differs);
            difference.is_none()
        });
        let mut same = same.into_iter();
        let Some(target) = same.next() else {
            return Err(match self.fleet.as_ref().and_then(|fleet| fleet.unread()) {
                // The first read of the hub may still find it.
                Some((problem, retry_after)) => {
                    provider.error(ProviderProblem::ClusterUnread(problem, retry_after))
                }
                None => mismatch(differs.unwrap_or("no known cluster has its server")),
            });
        };
        if same.any(|other| !target.is_same_run(&other)) {
            return Err(mismatch(
                "several ClusterProfiles have this cluster, but cause different plugin runs; select one with --cluster-profile NAMESPACE/NAME",
            ));
        }
        entry.of_target(target)
    }
}

#[cfg(test)]
mod tests;
