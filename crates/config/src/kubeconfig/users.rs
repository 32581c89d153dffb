//! Each user that runs a plugin becomes a provider of that name, and so does the user of the hub's context.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    path::PathBuf,
    sync::Arc,
};

use super::{
    brokered::{brokered, describes, digest, is_shim},
    clusters::{ContextClusters, cluster_of},
    files::{KubeFile, Kubeconfig, Mode, Named},
};
use crate::{
    problem::{Location, Problem, Report},
    provider::{Variables, stanza},
    schema::Cursor,
    table::exec as table,
};
use credbroker_credential::document::Node;
use credbroker_plugin::{Command, Definition, Environment, Globs, Issuer, Provider, identity_variables};
use credbroker_stanza::Prefix;

/// The kubeconfig of a hub.
#[derive(Clone, Debug, Default)]
pub struct HubKubeconfig {
    /// The file.
    pub path: PathBuf,
    /// The context; `None`: the current one.
    pub context: Option<String>,
    /// The server of the context. It distinguishes the hub from another one.
    pub server: Arc<str>,
    /// SHA-256 of the file.
    pub contents: Box<[u8]>,
    /// The plugin of the context's user, if it has one. The broker runs it like any other.
    pub plugin: Option<Box<Provider>>,
}

impl HubKubeconfig {
    pub(crate) fn is_alike(&self, newer: &Self) -> bool {
        let is_same_plugin = match (&self.plugin, &newer.plugin) {
            (Some(plugin), Some(newer)) => plugin.is_same_definition(newer),
            (plugin, newer) => plugin.is_none() && newer.is_none(),
        };
        let Self { path, context, server, contents, .. } = self;
        let is_same_context = (path, context) == (&newer.path, &newer.context);
        is_same_plugin && is_same_context && (server, contents) == (&newer.server, &newer.contents)
    }
}

/// The users of a kubeconfig that become providers.
#[derive(Debug)]
pub struct Definitions {
    /// Those that the broker can serve, by name, each with what identifies it.
    pub served: Vec<(String, Definition)>,
    /// What each of them runs, by its digest.
    pub commands: HashMap<String, Command>,
    /// Why other users do not become providers.
    pub warnings: Vec<Problem>,
}

/// The users of `kubeconfig` that become providers. Of several users of one name it is the first one, as client-go reads
/// the list.
pub fn definitions(kubeconfig: &Kubeconfig, env: &Environment) -> Definitions {
    let report = Report::default();
    let providers = kubeconfig.providers(&variables(env, Globs::default()), Mode::Ambient, &report);
    let first: HashSet<_> = kubeconfig.users().iter().map(|user| (user.name, user.identity)).collect();
    let (mut served, mut commands) = (Vec::new(), HashMap::new());
    for Provider { name, definition, command, .. } in providers {
        if let Some(definition) = definition.filter(|definition| first.contains(&(&*name, definition.file())))
        {
            commands.insert(definition.digest.to_string(), command);
            served.push((name.to_string(), definition));
        }
    }
    Definitions { served, commands, warnings: report.into_warnings() }
}

/// The environment of plugins from kubeconfigs: the broker's, except for what selects an identity, which comes from the
/// caller. That is the list of common variables, names that look like those of an account, and what the configuration names
/// besides (`more`).
pub(crate) fn variables(broker: &Environment, more: Globs) -> Variables<'_> {
    let (pass_env, caller_env) = (Globs::new(["*"]), identity_variables().and(more));
    Variables { broker, pass_env, caller_env, are_of_kubeconfig: true }
}

impl Kubeconfig {
    /// A provider for each user with an `exec` stanza, of which the shim is taken away. Two files may define users of one
    /// name: each definition is a provider. Its plugin gets `variables`, and the list that the definition is from as
    /// `KUBECONFIG`.
    pub(crate) fn providers(&self, variables: &Variables<'_>, mode: Mode, report: &Report) -> Vec<Provider> {
        let mut clusters = ContextClusters::of(self, mode);
        let (mut providers, mut first) = (Vec::new(), HashMap::new());
        for user in self.files.iter().flat_map(|file| file.items("users")) {
            let first = *first.entry(user.name).or_insert(user.identity);
            let definition = Definition::new(user.identity.to_owned(), user.name, "");
            let mut read = || {
                let provider = import(&user, variables, report)?;
                Some(Provider { clusters: clusters.of_user(&user, report), ..provider })
            };
            let is_needed = mode == Mode::Named || report.runs(&definition);
            if let Some(mut provider) = if is_needed { read() } else { report.as_warnings(read) } {
                // In the whole list another definition would hide that of a later file.
                let own = [user.file.to_owned()];
                let is_first = first == user.identity && !self.list.is_empty();
                with_kubeconfig(&mut provider, if is_first { &self.list } else { &own });
                providers.push(provider);
            }
        }
        providers
    }

    /// Warns of variables of the broker's own environment that may select an identity and are on no list.
    pub(crate) fn warn_of_unlisted(&self, variables: &Variables<'_>, report: &Report) {
        let names = variables.unlisted();
        let has_plugins =
            |file: &KubeFile| file.items("users").any(|user| plugin(&user, &Report::default()).is_some());
        if let Some(file) = self.files.iter().find(|file| !names.is_empty() && has_plugins(file)) {
            let list = names.join(", ");
            report.warning(Location::whole(&file.path), format!("the plugins of every caller receive these variables of the broker's own environment: [{list}]. If they select an identity, add `callerEnv: [{list}]` to the broker's configuration, beside `kubeconfigs`, and set CREDBROKER_CALLER_ENV={} for callers; otherwise unset them for the broker", names.join(",")));
        }
    }

    /// The hub that `hub` names by its file and context, whose plugin is a provider called `name`. Where the context leads
    /// nowhere, a problem is reported at `at`. The broker itself is the caller, so the plugin has the broker's environment.
    pub(crate) fn hub(
        &self,
        hub: HubKubeconfig,
        name: &str,
        env: &Environment,
        at: &Cursor<'_>,
    ) -> HubKubeconfig {
        let Some((file, context)) = self.hub_context(hub.context.as_deref(), at) else { return hub };
        let (cluster, user) = (context.text("cluster"), context.text("user"));
        let found = self.cluster(cluster);
        let found_user = self.users().into_iter().find(|found| found.name == user);
        let wanted = context.name;
        if cluster.is_empty() && found.is_none() {
            at.problem(format!("context `{wanted}` names no cluster"));
        } else if found.is_none() {
            at.problem(format!("context `{wanted}` names cluster `{cluster}`, which does not exist"));
        }
        if found_user.is_none() && !user.is_empty() {
            at.problem(format!("context `{wanted}` names user `{user}`, which does not exist"));
        }
        // Also without a plugin: then nothing else looks at the certificate authorities here.
        let known = found.and_then(|found| cluster_of(&found, &mut HashMap::new(), at.report));
        let plugin = found_user.and_then(|user| self.hub_plugin(&user, name, env, at));
        let plugin = plugin.map(|plugin| Provider { clusters: known.into_iter().collect(), ..plugin });
        HubKubeconfig {
            server: found.map(|found| found.text("server")).unwrap_or_default().into(),
            contents: file.digest.clone(),
            plugin: plugin.map(Box::new),
            ..hub
        }
    }

    fn hub_context(&self, context: Option<&str>, at: &Cursor<'_>) -> Option<(&KubeFile, Named<'_>)> {
        let Some(file) = self.files.first() else {
            if at.report.problems() == 0 {
                at.problem("the kubeconfig does not exist");
            }
            return None;
        };
        let Some(wanted) = context.or(self.current_context()) else {
            return at.reject("the kubeconfig has no current context; name one in `clusterProfiles.context`");
        };
        let found = self.contexts().into_iter().find(|context| context.name == wanted);
        let found = found.or_else(|| at.reject(format!("the kubeconfig has no context `{wanted}`")));
        Some((file, found?))
    }

    fn hub_plugin(
        &self,
        user: &Named<'_>,
        name: &str,
        env: &Environment,
        at: &Cursor<'_>,
    ) -> Option<Provider> {
        if has_auth_provider(user) {
            return at.reject(format!("user `{}` of the kubeconfig has an `auth-provider`, which is not supported; use an exec plugin", user.name));
        }
        let exec = exec(user)?;
        let original = match brokered(exec) {
            Ok(Some(found)) => found.original,
            Ok(None) if !is_shim(exec) => exec.clone(),
            _ => return at.reject(format!("user `{}` of the kubeconfig runs credbroker's shim, which would call this broker; name a kubeconfig with the original command", user.name)),
        };
        let (pass_env, caller_env) = (Globs::new(["*"]), Globs::default());
        let variables = Variables { broker: env, pass_env, caller_env, are_of_kubeconfig: false };
        let mut provider = from_stanza(user, &original, name, &variables, at.report)?;
        with_kubeconfig(&mut provider, &self.list);
        Some(provider)
    }
}

/// The provider of `user`, without its clusters.
fn import(user: &Named<'_>, variables: &Variables<'_>, report: &Report) -> Option<Provider> {
    let before = report.problems();
    let (original, prefix) = plugin(user, report)?;
    report.provider(user.place(), user.name, true);
    let at = user.cursor(format!("user `{}`", user.name.escape_debug()), user.body, report);
    if user.name.is_empty() || user.name.chars().any(char::is_control) {
        at.problem("a name must not be empty or contain control characters");
    }
    if has_auth_provider(user) {
        at.problem("authProvider cannot be provided in combination with an exec plugin");
    }
    let provider =
        from_stanza(user, &original, user.name, variables, report).filter(|_| report.problems() == before)?;
    let digest = digest(&original, prefix.as_ref(), at.dir())?;
    let mut definition = Definition::new(user.identity.to_owned(), user.name, digest);
    if prefix.is_some_and(|prefix| !describes(&prefix, user.name, &original)) {
        definition.is_outdated = true;
    }
    // Users of the same name in two files can have different issuers, so each is its own.
    let issuer = format!("{} ({})", user.name, definition.shown_file());
    let issuer = Arc::new(Issuer { name: issuer.into(), ..(*provider.issuer).clone() });
    Some(Provider { issuer, definition: Some(definition), ..provider })
}

fn from_stanza(
    user: &Named<'_>,
    exec: &Node,
    name: &str,
    variables: &Variables<'_>,
    report: &Report,
) -> Option<Provider> {
    let fields = user.cursor(format!("user `{}`.exec", user.name.escape_debug()), exec, report);
    stanza(&fields.fields(table::SECTION.names)?, false, name, variables)
}

/// Gives the plugin the kubeconfigs of `list`, or its default if a path has a colon, which cannot be in such a list.
fn with_kubeconfig(provider: &mut Provider, list: &[PathBuf]) {
    const NAME: &str = "KUBECONFIG";
    let mut inherited = Environment::clone(&provider.inherited);
    match std::env::join_paths(list) {
        Ok(list) => inherited.0.insert(NAME.into(), list),
        Err(_) => inherited.0.remove(OsStr::new(NAME)),
    };
    provider.inherited = Arc::new(inherited);
}

fn has_auth_provider(user: &Named<'_>) -> bool {
    user.body.get("auth-provider").is_some_and(|value| !value.is_null())
}

fn exec<'a>(user: &Named<'a>) -> Option<&'a Node> {
    user.body.get("exec").filter(|exec| !exec.is_null())
}

/// The `exec` stanza of a user that runs a plugin, and the prefix of the shim in front of it.
fn plugin(user: &Named<'_>, report: &Report) -> Option<(Node, Option<Prefix>)> {
    let exec = exec(user)?;
    match brokered(exec) {
        Ok(Some(found)) => Some((found.original, Some(found.prefix))),
        Ok(None) => (!is_shim(exec)).then(|| (exec.clone(), None)),
        Err(error) => {
            let at = user.cursor(format!("user `{}`.exec", user.name.escape_debug()), exec, report);
            at.problem(format!("the arguments of credbroker-exec cannot be read: {error}"));
            None
        }
    }
}
