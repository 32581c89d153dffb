//! What goes through the proxy: the user's contexts that the broker knows, and the clusters of the fleet.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use credbroker_client::{ClusterList, ClusterState, ContextState};
use credbroker_config::{
    self as config, ConfigError, OwnContext,
    kubeconfig::{Kubeconfig, Mode},
};
use credbroker_credential::text::one_line;
use credbroker_plugin::Environment;
use credbroker_proxy::KnownTarget;

use super::document::is_ours;
use crate::cli::{
    broker::reason,
    clusters::problem,
    files::joined,
    kubeconfig::{broker_config::BrokerConfig, fleet::endpoint},
};

/// A context of the kubeconfig that is written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Route {
    pub(super) name: String,
    /// Empty: none.
    pub(super) namespace: String,
    /// The path of the target at the proxy.
    pub(super) path: String,
}

/// What the user's files have.
#[derive(Debug)]
pub(super) struct Own {
    /// That of kubectl, or the one that was named.
    pub(super) kubeconfig: Kubeconfig,
    contexts: Vec<OwnContext>,
    /// Contexts of the files that the broker's configuration names. They have the meaning that they have for the broker.
    of_broker: Vec<OwnContext>,
    /// Whether contexts of these files are written too.
    has_all: bool,
    /// The files that were named, whether they are there or not.
    paths: Vec<PathBuf>,
    /// The files that must not be overwritten.
    pub(super) inputs: Vec<PathBuf>,
}

impl Own {
    /// Reads the kubeconfig at `named`, else those of the environment, and those that the broker's configuration names.
    /// Kubeconfigs that this command wrote lead to the proxy already, and are left out.
    pub(super) fn read(
        named: Option<&Path>,
        config: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let (paths, mode) = Kubeconfig::chosen(named, environment);
        let read = |paths: &[PathBuf], mode| {
            let mut kubeconfig = config::read_kubeconfig(paths, mode)?;
            kubeconfig.files.retain(|file| !is_ours(&file.root));
            Ok(kubeconfig)
        };
        let kubeconfig = read(&paths, mode)?;
        let contexts = config::own_contexts(&kubeconfig, Mode::Ambient, environment);
        let of_config = BrokerConfig::find(config, environment).and_then(|config| config.named());
        // The user need not be able to read what the broker reads.
        let of_config = read(&of_config.unwrap_or_default(), Mode::Ambient).ok();
        let of_broker = of_config.as_ref().map(|of| config::own_contexts(of, Mode::Named, environment));
        let files = kubeconfig.files.iter().chain(of_config.iter().flat_map(|of| &of.files));
        let inputs = files.map(|file| file.path.clone()).collect();
        let of_broker = of_broker.unwrap_or_default();
        Ok(Self { kubeconfig, contexts, of_broker, has_all: named.is_none(), paths, inputs })
    }

    /// Why no context is there, if all files of the user are kubeconfigs of the proxy.
    pub(super) fn only_ours(&self) -> Option<String> {
        let is_it = self.kubeconfig.files.is_empty() && self.paths.iter().any(|path| path.exists());
        is_it.then(|| {
            let list = joined(&self.paths, ":");
            format!(
                "the contexts of {list} use the proxy already; run the command with `env -u KUBECONFIG`, or name your kubeconfig with --kubeconfig"
            )
        })
    }

    pub(super) fn nothing(&self) -> String {
        if let Some(why) = self.only_ours() {
            return why;
        }
        let list = joined(&self.paths, ":");
        format!(
            "no context of {list} is known to the broker, and no cluster; see `credbroker clusters --contexts`"
        )
    }
}

/// What can be written, and what cannot.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// Contexts in the order of the kubeconfigs, then clusters.
    pub(super) found: Vec<Route>,
    /// Names, and why not.
    pub(super) skipped: Vec<(String, String)>,
    /// How many contexts the broker does not know.
    unknown: usize,
}

impl Routes {
    pub(super) fn of(own: &Own, known: &[ContextState], fleet: &ClusterList) -> Self {
        let known: HashMap<_, _> = known.iter().map(|state| (state.digest.as_str(), state)).collect();
        let mut routes = Self::default();
        let mut names = HashSet::new();
        for context in &own.contexts {
            names.insert(context.id.name.to_string());
            let is_copied = |other: &&OwnContext| {
                other.id.name == context.id.name
                    && context.meaning.is_some()
                    && other.meaning == context.meaning
                    && known.contains_key(&*other.id.digest)
            };
            // A copy of `credbroker kubeconfig wrap` is another file with the same context.
            let original = || own.of_broker.iter().find(is_copied);
            let is_known = known.contains_key(&*context.id.digest);
            let meant = if is_known { Some(context) } else { original() };
            let found = meant.and_then(|meant| Some((meant, *known.get(&*meant.id.digest)?)));
            if let Some((meant, state)) = found {
                routes.context(state, &meant.id.digest, &context.namespace);
            } else {
                routes.unknown += 1;
                routes.skip(&context.id.name, UNKNOWN);
            }
        }
        for context in own.of_broker.iter().filter(|_| own.has_all) {
            if let Some(state) = known.get(&*context.id.digest)
                && names.insert(context.id.name.to_string())
            {
                routes.context(state, &context.id.digest, &context.namespace);
            }
        }
        for state in &fleet.clusters {
            routes.cluster(state, &names);
        }
        routes
    }

    /// What to do about contexts that the broker does not know. `None`: there are none.
    pub(super) fn advice(&self) -> Option<String> {
        let whose = match self.unknown {
            0 => return None,
            1 => "kubeconfig of 1 context; name it".to_owned(),
            count => format!("kubeconfigs of {count} contexts; name them"),
        };
        let remedy = "in `kubeconfigs` of its configuration, or with --kubeconfig the one that it reads";
        Some(format!("the broker does not read the {whose} {remedy}"))
    }

    fn context(&mut self, state: &ContextState, digest: &str, namespace: &str) {
        if state.cluster.is_none() {
            let why = state.failure.as_ref().map(|failure| {
                let message = one_line(&failure.message);
                if message.is_empty() { reason(failure).to_owned() } else { message }
            });
            return self.skip(&state.name, why.as_deref().unwrap_or("the broker cannot use it"));
        }
        let ContextState { name, provider, .. } = state.clone();
        let target = KnownTarget::Context { name: name.clone(), digest: digest.to_owned(), provider };
        self.found.push(Route { name, namespace: namespace.to_owned(), path: target.path() });
    }

    fn cluster(&mut self, state: &ClusterState, taken: &HashSet<String>) {
        let name = state.profile.to_string();
        if endpoint(state).is_none() {
            let why = problem(state).unwrap_or_else(|| "its ClusterProfile names no server".to_owned());
            return self.skip(&name, &why);
        }
        if taken.contains(&name) {
            return self.skip(&name, "a context has the same name");
        }
        let target =
            KnownTarget::Cluster { profile: state.profile.clone(), provider: state.provider.clone() };
        self.found.push(Route { name, namespace: String::new(), path: target.path() });
    }

    fn skip(&mut self, name: &str, why: &str) {
        self.skipped.push((name.to_owned(), why.to_owned()));
    }
}

const UNKNOWN: &str = "the broker does not know it";
