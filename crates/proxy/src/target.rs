//! The clusters and contexts that the broker knows, and how to reach them.
//!
//! A target that is used has one followed credential and one set of connections, which all callers share. Both go some
//! minutes after the last use, so the broker stops to refresh the credential.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use credbroker_client::{Broker, ClusterProfileRef, Clusters, CredentialRef, CredentialSource, tls::Drain};
use credbroker_kube::{EndpointRouter, Upstream};
use http::StatusCode;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{path::TargetName, request_body::RequestBody, status::Refused, usage::Traffic};

/// How long a request waits for what the broker knows.
const KNOWLEDGE: Duration = Duration::from_secs(10);
/// A broker that starts, or starts again, answers within this time.
const SILENCE: Duration = Duration::from_secs(5);
/// Between two looks at which targets are idle.
pub(crate) const SWEEP: Duration = Duration::from_secs(60);
/// After so many looks without a use, a target is dropped.
const IDLE_SWEEPS: u32 = 5;
/// Targets that have a credential and connections at a time.
const USED: usize = 2_000;
/// Connections of one target that are kept without a request.
const KEPT: usize = 64;
/// Digits of a context's digest that are in a path. The digest is over its file and all that the context means.
const DIGITS: usize = 12;

/// A target that the broker knows.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum KnownTarget {
    /// A `ClusterProfile`.
    Cluster {
        /// Its name.
        profile: ClusterProfileRef,
        /// The provider that issues its credential. `None`: it has none.
        provider: Option<String>,
    },
    /// A context of a kubeconfig.
    Context {
        /// Its name.
        name: String,
        /// The digest of the file and of all that the context means.
        digest: String,
        /// The provider of its user. `None`: the user has a token or a client certificate.
        provider: Option<String>,
    },
}

impl KnownTarget {
    /// The credential for it.
    pub fn reference(&self) -> CredentialRef {
        match self {
            Self::Cluster { profile, .. } => profile.clone().into(),
            Self::Context { name, digest, .. } => CredentialRef::context(name, digest),
        }
    }

    /// The path of its requests: `/clusters/NAMESPACE/NAME` or `/contexts/SLUG-DIGEST`.
    pub fn path(&self) -> String {
        match self {
            Self::Cluster { profile, .. } => format!("/clusters/{profile}"),
            Self::Context { name, digest, .. } => {
                let digits = digest.get(..DIGITS).unwrap_or(digest);
                format!("/contexts/{}-{digits}", slug(name))
            }
        }
    }
}

impl KnownTarget {
    /// `NAMESPACE/NAME` of a `ClusterProfile`, or the name of a context.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Cluster { profile, .. } => profile.to_string(),
            Self::Context { name, .. } => name.clone(),
        }
    }

    /// As the records of the broker name it.
    pub(crate) fn in_records(&self) -> String {
        match self {
            Self::Cluster { profile, .. } => format!("clusterprofile/{profile}"),
            Self::Context { name, .. } => format!("context/{name}"),
        }
    }
}

/// For messages: `cluster fleet/paris` or `context prod`.
impl fmt::Display for KnownTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { profile, .. } => write!(f, "cluster {profile}"),
            Self::Context { name, .. } => write!(f, "context {name}"),
        }
    }
}

/// The readable part of a context's path: letters and digits of its name in lower case, and `-` for the rest.
fn slug(name: &str) -> String {
    const LONGEST: usize = 40;
    let mut slug = String::new();
    for character in name.chars().filter(char::is_ascii) {
        if slug.len() >= LONGEST {
            break;
        }
        if character.is_ascii_alphanumeric() {
            slug.push(character.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "context".to_owned() } else { slug.to_owned() }
}

/// All targets.
#[derive(Debug)]
pub(crate) struct Targets {
    broker: Broker,
    clusters: Clusters,
    /// How long it may take to make a connection.
    connect: Duration,
    used: Mutex<HashMap<KnownTarget, Arc<UsedTarget>>>,
}

/// A target with a followed credential and connections.
pub(crate) struct UsedTarget {
    pub(crate) known: Arc<KnownTarget>,
    pub(crate) source: CredentialSource,
    pub(crate) requests: EndpointRouter<RequestBody>,
    /// Each of its connections serves one request, which may become a tunnel.
    pub(crate) tunnels: EndpointRouter<RequestBody>,
    pub(crate) traffic: Arc<Traffic>,
    /// Looks since the last use.
    idle: AtomicU32,
    /// Cancelled with the last use: all connections end.
    ends: CancellationToken,
}

impl Targets {
    /// Follows what the broker knows. Needs a tokio runtime.
    pub(crate) fn new(broker: Broker, connect: Duration) -> Self {
        let clusters = broker.clusters_and_contexts();
        Self { broker, clusters, connect, used: Mutex::default() }
    }

    /// The target of that name, if `may_use` allows it. One that it forbids looks like one that is not known, also while the
    /// broker does not know all of its clusters.
    pub(crate) async fn find(
        &self,
        name: &TargetName,
        may_use: impl Fn(&KnownTarget) -> bool,
    ) -> Result<Arc<KnownTarget>, Refused> {
        let get = || self.get(name).filter(|known| may_use(known));
        if let Some(known) = get() {
            return Ok(known);
        }
        if !self.clusters.may_be_incomplete() {
            return Err(Refused::target());
        }
        let mut clusters = self.clusters.clone();
        let found = async {
            loop {
                if let Some(known) = get() {
                    return Ok(known);
                }
                if !clusters.may_be_incomplete() {
                    return Err(Refused::target());
                }
                clusters.changed().await;
            }
        };
        match timeout(KNOWLEDGE, found).await {
            Ok(found) => found,
            Err(_elapsed) => Err(self.unknown()),
        }
    }

    /// All targets, for kubeconfigs. Who asks while the broker starts would get a part, so this waits until the broker has said
    /// what it knows, but not for a broker or a hub that is silent.
    pub(crate) async fn known(&self) -> Vec<KnownTarget> {
        let mut clusters = self.clusters.clone();
        let all = async {
            while clusters.may_be_incomplete() {
                clusters.changed().await;
            }
        };
        drop(timeout(SILENCE, all).await);
        let clusters = self.clusters.current();
        let clusters = clusters.iter().map(|cluster| KnownTarget::Cluster {
            profile: cluster.profile.clone(),
            provider: cluster.provider.clone(),
        });
        let contexts = self.clusters.contexts();
        let contexts = contexts.values().map(|context| KnownTarget::Context {
            name: context.name.clone(),
            digest: context.digest.clone(),
            provider: context.provider.clone(),
        });
        clusters.chain(contexts).collect()
    }

    fn get(&self, name: &TargetName) -> Option<Arc<KnownTarget>> {
        let known = match name {
            TargetName::Cluster { namespace, name } => {
                let cluster = self.clusters.get(&ClusterProfileRef::new(namespace, name))?;
                KnownTarget::Cluster { profile: cluster.profile.clone(), provider: cluster.provider.clone() }
            }
            TargetName::Context { slug: readable, digest } => {
                let contexts = self.clusters.contexts();
                let mut found = contexts
                    .range(digest.clone()..)
                    .take_while(|(known, _)| known.starts_with(&**digest))
                    .map(|(_, context)| context);
                // With two, either could be the wrong one.
                let context = found.next().filter(|_| found.next().is_none())?;
                // Who reads the path of a request sees the right name.
                if slug(&context.name) != *readable {
                    return None;
                }
                let (name, digest) = (context.name.clone(), context.digest.clone());
                KnownTarget::Context { name, digest, provider: context.provider.clone() }
            }
        };
        Some(Arc::new(known))
    }

    /// Whether this is still a target.
    pub(crate) fn is_known(&self, known: &KnownTarget) -> bool {
        match known {
            KnownTarget::Cluster { profile, provider } => {
                self.clusters.get(profile).is_some_and(|cluster| cluster.provider == *provider)
            }
            KnownTarget::Context { digest, .. } => self.clusters.contexts().contains_key(digest),
        }
    }

    /// Waits until a target may have been removed.
    pub(crate) fn changes(&self) -> Clusters {
        self.clusters.clone()
    }

    /// Logs when the broker does not answer, and when it answers again. Never ends.
    pub(crate) async fn log_the_broker(&self) {
        let mut broker = self.changes();
        loop {
            failure(&mut broker, true).await;
            if timeout(SILENCE, failure(&mut broker, false)).await.is_ok() {
                continue;
            }
            let Some(error) = broker.failure() else { continue };
            warn!(
                error = &error as &dyn std::error::Error,
                "the proxy cannot ask the broker, and goes on with what it knows"
            );
            failure(&mut broker, false).await;
            info!("the broker answers the proxy again");
        }
    }

    /// Why it is not known whether there is such a target: nothing about the target itself.
    fn unknown(&self) -> Refused {
        let refused = |why: String| {
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, why).retry_after(Duration::from_secs(1))
        };
        match self.clusters.failure() {
            Some(error) => {
                let refused = refused(format!("the proxy cannot ask the broker: {error}"));
                match error.reason() {
                    Some(reason) => refused.because(reason.name()),
                    None => refused,
                }
            }
            None => refused("the broker does not know all of its clusters yet".to_owned()),
        }
    }

    /// The target with its credential and connections. `is_used` says whether it has an open request; `begin` is called
    /// if it was not used before.
    pub(crate) fn open(
        &self,
        known: &Arc<KnownTarget>,
        is_used: impl Fn(&KnownTarget) -> bool,
        begin: impl FnOnce(&UsedTarget),
    ) -> Result<Arc<UsedTarget>, Refused> {
        let mut used = self.used();
        if let Some(target) = used.get(&**known) {
            target.idle.store(0, Ordering::Relaxed);
            return Ok(Arc::clone(target));
        }
        if used.len() >= USED {
            let idle = used.values().filter(|target| !is_used(&target.known));
            let oldest = idle.max_by_key(|target| target.idle.load(Ordering::Relaxed));
            let Some(oldest) = oldest.map(|target| Arc::clone(&target.known)) else {
                let message = format!("{USED} targets are in use");
                return Err(
                    Refused::new(StatusCode::TOO_MANY_REQUESTS, message).retry_after(Duration::from_secs(1))
                );
            };
            used.remove(&*oldest);
        }
        let target = Arc::new(UsedTarget::new(&self.broker, known, self.connect)?);
        begin(&target);
        used.insert((**known).clone(), Arc::clone(&target));
        Ok(target)
    }

    /// The targets that have a credential and connections.
    pub(crate) fn in_use(&self) -> Vec<Arc<UsedTarget>> {
        self.used().values().map(Arc::clone).collect()
    }

    /// Drops the targets that were not used for some minutes. Called every [`SWEEP`].
    pub(crate) fn sweep(&self, is_used: impl Fn(&KnownTarget) -> bool) {
        self.used().retain(|_, target| {
            is_used(&target.known) || target.idle.fetch_add(1, Ordering::Relaxed) < IDLE_SWEEPS
        });
    }

    /// Forgets targets that no longer exist, and returns them. Their connections end when their requests have.
    pub(crate) fn forget_removed(&self) -> Vec<Arc<KnownTarget>> {
        let gone = self.used().extract_if(|known, _| !self.is_known(known)).collect::<Vec<_>>();
        gone.into_iter().map(|(_, target)| Arc::clone(&target.known)).collect()
    }

    fn used(&self) -> MutexGuard<'_, HashMap<KnownTarget, Arc<UsedTarget>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until there is a failure, or none.
async fn failure(broker: &mut Clusters, is_there: bool) {
    while broker.failure().is_some() != is_there {
        broker.changed().await;
    }
}

impl UsedTarget {
    fn new(broker: &Broker, known: &Arc<KnownTarget>, connect: Duration) -> Result<Self, Refused> {
        let source = broker.source(known.reference());
        let ends = CancellationToken::new();
        let upstream = |idle| Upstream { drain: Drain::Natural, connect, idle, ends: ends.clone() };
        let router = |idle| {
            let router = upstream(idle).to(source.clone());
            router.map_err(|error| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
        };
        let (requests, tunnels) = (router(KEPT)?, router(0)?);
        let (known, traffic) = (Arc::clone(known), Arc::default());
        Ok(Self { known, source, requests, tunnels, traffic, idle: AtomicU32::new(0), ends })
    }
}

impl Drop for UsedTarget {
    fn drop(&mut self) {
        // Each open request has the target, so these connections are idle.
        self.ends.cancel();
    }
}

impl fmt::Debug for UsedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsedTarget").field("known", &self.known).finish_non_exhaustive()
    }
}
