//! Contexts as names of credentials: which one kubectl would request with a context.

use std::{ffi::OsString, path::Path};

use credbroker_client::{Cluster, Reason, safety::shell_word};
use credbroker_exec::{Failure, Source, requested};

use super::{broker::SourceArgs, console::Console, get::message, kubeconfig::goes_through};
use credbroker_config::{
    self as config, ConfigError,
    kubeconfig::{Kubeconfig, Mode, Named, is_shim},
};
use credbroker_credential::{
    document::Node,
    text::{listed_all, shown, shown_path},
};
use credbroker_plugin::Environment;

/// A credential that a command is about.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) source: Source,
    /// The cluster of a context whose plugin receives it.
    pub(super) cluster: Option<Cluster>,
}

/// The arguments name no credential.
#[derive(Debug, thiserror::Error)]
#[error(
    "no credential is named, and there is no current context; name a provider or a context, or use --cluster-profile NAMESPACE/NAME"
)]
pub(super) struct Unnamed;

/// Calls `call` with the credential that `args` name. A name is that of a provider, or if the broker has none, that of a
/// context. Without a name it is `context`, or the current one, of the kubeconfig `file`, or of those of the environment.
pub(super) fn resolve<T>(
    args: &SourceArgs,
    (context, file): (Option<&str>, Option<&Path>),
    console: &mut Console<'_>,
    mut call: impl FnMut(&Target, &mut Console<'_>) -> anyhow::Result<Result<T, Failure>>,
) -> anyhow::Result<(Target, Result<T, Failure>)> {
    let environment = console.environment;
    let read = || {
        let (paths, mode) = Kubeconfig::chosen(file, environment);
        config::read_kubeconfig(&paths, mode)
    };
    let (target, said) = if let Some(source) = args.source() {
        let target = Target { source, cluster: None };
        let answer = call(&target, console)?;
        let Some(other) = instead(&target.source, &answer, read, console)? else {
            return Ok((target, answer));
        };
        other
    } else {
        let kubeconfig = read()?;
        let context = context.or_else(|| kubeconfig.current_context()).ok_or(Unnamed)?;
        of_context(&kubeconfig, context, environment)?
    };
    writeln!(console.err, "credbroker: {said}")?;
    let answer = call(&target, console)?;
    Ok((target, answer))
}

/// What a name means that the broker does not know, or knows several times; and a line that says so.
fn instead<T>(
    source: &Source,
    answer: &Result<T, Failure>,
    read: impl FnOnce() -> Result<Kubeconfig, ConfigError>,
    console: &mut Console<'_>,
) -> anyhow::Result<Option<(Target, String)>> {
    let (Source::Provider { name, definition: None }, Err(Failure::Broker(error))) = (source, answer) else {
        return Ok(None);
    };
    let is_ambiguous = error.reason() == Some(Reason::AmbiguousProvider);
    // With access rules, a provider that is not there looks like one that this process may not use.
    if !is_ambiguous && !matches!(error.reason(), Some(Reason::UnknownProvider | Reason::PeerDenied)) {
        return Ok(None);
    }
    let Ok(kubeconfig) = read() else { return Ok(None) };
    if kubeconfig.context_names().contains(name) {
        return of_context(&kubeconfig, name, console.environment).map(Some);
    }
    if !is_ambiguous {
        return Ok(None);
    }
    let alone = |path: &Path| config::read_kubeconfig(&[path.to_owned()], Mode::Ambient).ok();
    let files: Vec<_> = kubeconfig.files.iter().filter_map(|file| alone(&file.path)).collect();
    let defining: Vec<_> = files.iter().filter_map(|file| Some((file, user(file, name)?))).collect();
    if let [(file, user)] = *defining {
        let said = format!("user `{}` of {}", shown(name), shown_path(user.file));
        return Ok(source_of(file, &user, console.environment)
            .map(|source| (Target { source, cluster: None }, said)));
    }
    let mut contexts = Vec::new();
    for (file, user) in defining {
        let leads = |context: &&String| file.user_of(context).is_some_and(|user| user.name == name);
        for context in file.context_names().iter().filter(leads) {
            let is_meant = kubeconfig.user_of(context).is_some_and(|found| found.identity == user.identity);
            let with = if is_meant { "of " } else { "with KUBECONFIG=" };
            contexts.push(format!("`{}` {with}{}", shown(context), shell_word(user.file)));
        }
    }
    if !contexts.is_empty() {
        writeln!(console.err, "credbroker: name a context: {}", listed_all(contexts.into_iter()))?;
    }
    Ok(None)
}

/// What kubectl requests with `context`, and a line that says so.
fn of_context(
    kubeconfig: &Kubeconfig,
    context: &str,
    environment: &Environment,
) -> anyhow::Result<(Target, String)> {
    let said = format!("context `{}`", shown(context));
    // A context that is not there is its error too.
    let cluster = kubeconfig.cluster_of(context);
    let Some(user) = kubeconfig.user_of(context) else {
        cluster?;
        anyhow::bail!("{said} has no user; name a provider, or another context");
    };
    if user.body.get("exec").is_some_and(goes_through) {
        anyhow::bail!(
            "{said} goes through the proxy, which keeps its credential; name a provider, or set KUBECONFIG to a kubeconfig that does not"
        );
    }
    let source = source_of(kubeconfig, &user, environment).or_else(|| {
        // The broker has the credential itself, and computes the same digest.
        let id = config::stored_context(kubeconfig, context)?;
        Some(Source::Context { name: id.name.to_string(), digest: id.digest.to_string() })
    });
    let Some(source) = source else {
        anyhow::bail!(
            "{said}: user `{}` runs no plugin, and has no token or client certificate that the broker can serve; name another context",
            shown(user.name)
        );
    };
    let is_sent = user.body.get("exec").and_then(|exec| exec.get("provideClusterInfo"));
    let is_sent = is_sent.and_then(Node::as_bool) == Some(true);
    let cluster = cluster.ok().filter(|_| is_sent).map(message);
    let said = match &source {
        Source::Provider { name, .. } => format!("{said}: user `{}`", shown(name)),
        Source::ClusterProfile(_) => format!("{said}: {source}"),
        Source::Context { .. } => said,
    };
    Ok((Target { source, cluster }, said))
}

fn user<'a>(kubeconfig: &'a Kubeconfig, name: &str) -> Option<Named<'a>> {
    kubeconfig.users().into_iter().find(|user| user.name == name)
}

/// What the shim requests for `user`, or would if it were in front of its plugin. `None`: there is no plugin.
fn source_of(kubeconfig: &Kubeconfig, user: &Named<'_>, environment: &Environment) -> Option<Source> {
    let exec = user.body.get("exec")?;
    if !is_shim(exec) {
        let mut served = config::definitions(kubeconfig, environment).served.into_iter();
        let (name, definition) = served.find(|(name, _)| name == user.name)?;
        return Some(Source::Provider { name, definition: Some(definition.digest.to_string()) });
    }
    let items = |key| exec.get(key).and_then(Node::as_sequence).unwrap_or_default().iter();
    let text = |item: &Node, key| Some(OsString::from(item.get(key)?.as_str()?));
    let args = items("args").filter_map(Node::as_str).skip_while(|arg| *arg == "shim").map(OsString::from);
    let set = items("env").filter_map(|item| Some((text(item, "name")?, text(item, "value")?)));
    let own = environment.0.iter().map(|(name, value)| (name.clone(), value.clone()));
    requested(args, &own.chain(set).collect())
}
