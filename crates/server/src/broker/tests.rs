use super::*;
use credbroker_fleet::Fleet;
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::{access::Policy, cluster_profile::EndpointRules};
use credbroker_runner::PluginRunner;

impl<R: PluginRunner> Broker<R> {
    /// A broker without rules and records.
    pub(crate) fn for_tests(cache: CredentialCache<R>, resolver: Arc<Resolver>) -> Arc<Self> {
        let clock = Arc::new(SystemClock);
        let started = clock.now().wall;
        let fleet = || Arc::new(Fleet::new(resolver.providers(), EndpointRules::default()));
        let fleet = resolver.fleet().unwrap_or_else(fleet);
        let clusters = Arc::new(Clusters::new(fleet, Arc::clone(&resolver), cache.clone(), clock));
        let configuration = ReloadState::started(Vec::new(), started);
        Arc::new(Self {
            cache,
            resolver,
            clusters,
            metrics: Arc::default(),
            audit: Audit::default(),
            policies: watch::Sender::new(Arc::new(Policy::new([]))).subscribe(),
            configuration: watch::Sender::new(Arc::new(configuration)).subscribe(),
            started,
            sockets: Vec::new(),
            stopping: CancellationToken::new(),
        })
    }
}
