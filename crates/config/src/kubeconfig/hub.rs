//! A kubeconfig as the way to the hub: is its context whole, and does its user run a plugin?

use super::{
    Kubeconfig, Mode, Named,
    cluster::ContextClusters,
    import::{exec, is_shim, with_kubeconfig},
};
use crate::{
    HubSource,
    problem::Report,
    provider::{Variables, provider},
    reader::{Cursor, Dialect},
    stanza::{StanzaRules, stanza},
};
use credbroker_credential::document::Node;
use credbroker_plugin::{Environment, Globs, Provider};
use std::path::Path;

impl Kubeconfig {
    /// The plugin of the user of `context` (`None`: the current one) as a provider called `name`, if that user has one.
    /// Where the context leads nowhere, a problem is reported at `at`. What distinguishes this hub from another one is written to
    /// `source`.
    ///
    /// The broker itself is the caller, so the plugin has the broker's environment.
    pub(crate) fn hub_plugin(
        &self,
        context: Option<&str>,
        name: &str,
        env: &Environment,
        at: &Cursor<'_>,
        source: &mut HubSource,
        report: &mut Report,
    ) -> Option<Provider> {
        let Some(file) = self.files().first() else {
            if report.problems.is_empty() {
                at.problem(report, "the kubeconfig does not exist");
            }
            return None;
        };
        let current = file.root.get("current-context").and_then(Node::as_str).filter(|name| !name.is_empty());
        let Some(wanted) = context.or(current) else {
            at.problem(
                report,
                "the kubeconfig has no current context; name one in `clusterProfiles.context`",
            );
            return None;
        };
        let Some(context) = self.contexts().into_iter().find(|context| context.name == wanted) else {
            at.problem(report, format!("the kubeconfig has no context `{wanted}`"));
            return None;
        };
        let text = |key: &str| context.body.get(key).and_then(Node::as_str).unwrap_or_default();
        let cluster = self.clusters().into_iter().find(|cluster| cluster.name == text("cluster"));
        let user = self.users().into_iter().find(|user| user.name == text("user"));
        for (kind, is_there) in [("cluster", cluster.is_some()), ("user", user.is_some())] {
            let problem = match text(kind) {
                "" if kind == "user" => continue, // anonymous
                "" => format!("context `{wanted}` names no {kind}"),
                name => format!("context `{wanted}` names {kind} `{name}`, which is not there"),
            };
            if !is_there {
                at.problem(report, problem);
            }
        }
        source.server =
            cluster.and_then(|cluster| cluster.body.get("server")?.as_str()).unwrap_or_default().into();
        source.contents.clone_from(&file.digest);
        // Also without a plugin: then nothing else looks at the certificate authorities here.
        let known = ContextClusters::of(self, Mode::Named).named(text("cluster"), report).ok().flatten();
        let user = user?;
        if user.body.get("auth-provider").is_some_and(|value| !value.is_null()) {
            at.problem(report, format!("user `{}` of the kubeconfig has an `auth-provider`, which is not supported; use an exec plugin", user.name));
            return None;
        }
        let exec = exec(&user)?;
        if is_shim(exec) {
            at.problem(report, format!("user `{}` of the kubeconfig runs credbroker's shim, which would ask this very broker; name the original kubeconfig", user.name));
            return None;
        }
        let stanza = stanza(&cursor(&user, exec), rules(&user), report)?;
        let variables = Variables { broker: env, pass_env: Globs::new(["*"]), caller_env: Globs::default() };
        let mut provider = provider(name, stanza, &variables);
        with_kubeconfig(&mut provider, &self.list);
        provider.clusters.extend(known);
        Some(provider)
    }
}

fn cursor<'a>(user: &Named<'a>, exec: &'a Node) -> Cursor<'a> {
    let whole = Cursor::new(user.file, Dialect::Kubeconfig, exec);
    whole.below(format!("user `{}`.exec", user.name.escape_debug()), exec)
}

fn rules<'a>(user: &Named<'a>) -> StanzaRules<'a> {
    let dir = user.file.parent().unwrap_or(Path::new("/"));
    StanzaRules { dir, accept_v1alpha1: false, never_interactive: false }
}
