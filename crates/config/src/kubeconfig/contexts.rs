//! The contexts of kubeconfigs: each is a cluster, and a user who runs a plugin or has a credential.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use bytes::Bytes;

use super::{
    clusters::{ByName, by_name, cluster_of},
    context_digest::ContextDigest,
    files::{Kubeconfig, Mode, Named},
    stored::{UserKind, kind, provider},
    users::variables,
};
use crate::problem::{Problem, Report};
use credbroker_credential::Cluster;
use credbroker_plugin::{Context, ContextId, ContextTarget, Environment, Globs, Provider};

/// The contexts of kubeconfigs, and the providers of those users who run no plugin.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    pub(crate) contexts: Vec<Context>,
    pub(crate) stored: Vec<Provider>,
}

impl Contexts {
    /// Whether one of them has a credential without a plugin.
    pub(crate) fn serve(&self) -> bool {
        !self.stored.is_empty()
    }
}

/// A kubeconfig, and the name of a user in it.
type Identity = (PathBuf, Arc<str>);

impl Kubeconfig {
    /// The contexts. `providers` are all of the configuration. A context has the user and the cluster of the same file,
    /// or the first ones of these names. A list that is used as one kubeconfig (`Mode::Ambient`) has one context of each
    /// name, which has the first ones in any case.
    ///
    /// What is wrong with a context is only the reason why it cannot be used.
    pub(crate) fn read_contexts(&self, providers: &[Provider], mode: Mode, report: &Report) -> Contexts {
        let mut reader = Reader::new(providers, report);
        let (users, clusters) = (by_name(self.users()), by_name(self.first_of_each("clusters")));
        let mut contexts = Vec::new();
        if mode == Mode::Ambient {
            contexts.extend(self.contexts().iter().map(|context| reader.context(context, &users, &clusters)));
        } else {
            for file in &self.files {
                let (mut users, mut clusters) = (users.clone(), clusters.clone());
                users.extend(by_name(file.items("users")));
                clusters.extend(by_name(file.items("clusters")));
                let read = file.items("contexts").map(|context| reader.context(&context, &users, &clusters));
                contexts.extend(read);
            }
        }
        Contexts { contexts, stored: reader.stored.into_values().collect() }
    }
}

/// The context of this name as a broker that reads `kubeconfig` serves it, if its user has a credential and no plugin.
pub fn stored_context(kubeconfig: &Kubeconfig, context: &str) -> Option<ContextId> {
    let found = kubeconfig.read_contexts(&[], Mode::Ambient, &Report::default());
    let mut contexts = found.contexts.into_iter();
    let is_it = |found: &Context| &*found.id.name == context && found.outcome.is_ok();
    contexts.find(is_it).map(|context| context.id)
}

/// A context as a kubeconfig has it, with the digest that it has for a broker that reads the same files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnContext {
    /// Its name and digest.
    pub id: ContextId,
    /// The namespace that it sets; empty: none.
    pub namespace: String,
    /// What it means wherever it is written: its cluster, and the digest of what its user runs. `None`: it cannot be used, or its
    /// user runs no plugin.
    pub meaning: Option<(Arc<Cluster>, Arc<str>)>,
}

/// The contexts of `kubeconfig`, in order. In a list that is used as one kubeconfig, each name is there once.
pub fn own_contexts(kubeconfig: &Kubeconfig, mode: Mode, env: &Environment) -> Vec<OwnContext> {
    let report = Report::default();
    let providers = kubeconfig.providers(&variables(env, Globs::default()), Mode::Ambient, &report);
    let definitions = providers.iter().filter_map(|provider| provider.definition.as_ref());
    let digests: HashMap<_, _> = definitions.map(|known| (&known.identity, &known.digest)).collect();
    let items = kubeconfig.files.iter().flat_map(|file| file.items("contexts"));
    let namespaces: HashMap<_, _> =
        items.map(|item| ((item.identity, item.name), item.text("namespace"))).collect();
    let own = |context: Context| {
        let namespace = namespaces.get(&(context.file(), &*context.id.name)).copied().unwrap_or_default();
        let meaning = context.outcome.as_ref().ok().and_then(|target| {
            let digest = digests.get(&target.user).filter(|_| target.has_plugin)?;
            Some((Arc::clone(&target.cluster), Arc::clone(digest)))
        });
        OwnContext { namespace: namespace.to_owned(), meaning, id: context.id }
    };
    kubeconfig.read_contexts(&providers, mode, &report).contexts.into_iter().map(own).collect()
}

/// Reads each cluster, each user and each file of authorities once.
struct Reader<'a> {
    /// The users that are providers.
    users: HashMap<&'a Identity, &'a Provider>,
    /// The names of the providers that the configuration itself defines. A rule for such a name allows nothing else.
    configured: HashSet<&'a str>,
    report: &'a Report,
    clusters: HashMap<Identity, Result<Arc<Cluster>, String>>,
    authorities: HashMap<PathBuf, Bytes>,
    stored: BTreeMap<Identity, Provider>,
}

impl<'a> Reader<'a> {
    fn new(providers: &'a [Provider], report: &'a Report) -> Self {
        let identity = |provider: &'a Provider| Some((&provider.definition.as_ref()?.identity, provider));
        let configured = providers.iter().filter(|provider| provider.definition.is_none());
        Self {
            users: providers.iter().filter_map(identity).collect(),
            configured: configured.map(|provider| &*provider.name).collect(),
            report,
            clusters: HashMap::new(),
            authorities: HashMap::new(),
            stored: BTreeMap::new(),
        }
    }

    fn context(&mut self, context: &Named<'_>, users: &ByName<'_>, clusters: &ByName<'_>) -> Context {
        let mut digest = ContextDigest::new();
        digest.definition(context);
        let cluster = clusters.get(context.text("cluster")).map(|named| {
            digest.definition(named);
            self.cluster(named)
        });
        let cluster = cluster.unwrap_or_else(|| Err(absent("cluster", context.text("cluster"))));
        if let Ok(cluster) = &cluster {
            digest.cluster(cluster);
        }
        let user = users.get(context.text("user")).map(|named| {
            digest.definition(named);
            self.user(named)
        });
        let user = user.unwrap_or_else(|| Err(absent("user", context.text("user"))));
        let outcome = cluster.and_then(|cluster| {
            let provider = user?;
            // A provider of a user has a definition.
            let definition = provider.definition.as_ref().ok_or_else(String::new)?;
            digest.text(&definition.digest);
            let user = definition.identity.clone();
            let (has_plugin, gives_cluster) = (provider.stored.is_none(), provider.provide_cluster_info);
            Ok(ContextTarget { cluster, user, has_plugin, gives_cluster })
        });
        if let Ok(target) = &outcome
            && let Some(stored) = self.stored.get_mut(&target.user)
            && !stored.clusters.contains(&target.cluster)
        {
            stored.clusters.push(Cluster::clone(&target.cluster));
        }
        let id = ContextId { name: context.name.into(), digest: digest.finish().into() };
        Context::new(id, context.identity.to_owned(), context.text("user"), outcome.map_err(Arc::from))
    }

    fn cluster(&mut self, named: &Named<'_>) -> Result<Arc<Cluster>, String> {
        let Self { report, authorities, clusters, .. } = self;
        let read = clusters.entry(identity(named)).or_insert_with(|| {
            let (read, problems) = report.aside(|aside| cluster_of(named, authorities, aside));
            read.map(Arc::new).ok_or_else(|| messages(&problems))
        });
        read.clone()
    }

    fn user(&mut self, named: &Named<'_>) -> Result<Provider, String> {
        let name = named.name.escape_debug();
        let (identity, kind) = (identity(named), kind(named)?);
        let credential = match kind {
            UserKind::Plugin => {
                let unread = || {
                    format!(
                        "its user `{name}` does not become a provider; the log of the broker has the reason"
                    )
                };
                let provider = self.users.get(&identity).ok_or_else(unread)?;
                if provider.definition.as_ref().is_some_and(|definition| definition.is_outdated) {
                    return Err(format!(
                        "the stanza of its user `{name}` was edited, and the arguments of its credbroker-exec do not describe it; run `credbroker kubeconfig inject`"
                    ));
                }
                return Ok(Provider::clone(provider));
            }
            UserKind::Stored(credential) => credential,
        };
        if self.configured.contains(named.name) {
            return Err(format!(
                "its user has the name of the provider `{name}` in the configuration; rename one of them"
            ));
        }
        if named.name.is_empty() || named.name.chars().any(char::is_control) {
            return Err("the name of its user is empty or has control characters".to_owned());
        }
        let provider = self.stored.entry(identity).or_insert_with(|| provider(credential, named));
        Ok(provider.clone())
    }
}

fn identity(named: &Named<'_>) -> Identity {
    (named.identity.to_owned(), named.name.into())
}

fn absent(what: &str, name: &str) -> String {
    if name.is_empty() {
        format!("it names no {what}")
    } else {
        format!("it names the {what} `{}`, which does not exist", name.escape_debug())
    }
}

fn messages(problems: &[Problem]) -> String {
    problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
