//! Commands that change what the broker holds: `credbroker refresh`, `evict`, and `logout`.

use std::path::Path;

use credbroker_client::{
    Client, Error,
    admin::{CredentialState, ProviderState},
};
use credbroker_exec::{Failure, Source, request_patiently};

use super::{
    broker::{BrokerArgs, Selection, SelectionArgs, SourceArgs, admin, held_of},
    console::{Console, OutputFormat},
    context::{Target, resolve},
    get::noticed,
    overview,
    screen::{counted, explained},
};
use credbroker_credential::text::shown;

/// Run plugins now
///
/// The broker runs the plugin for each selected credential that it holds. If it holds no credential for a provider or a
/// cluster, it gets one, and uses the variables of this process that select an identity. Callers get the old credentials
/// during the run, and after a run that fails. The broker runs only a few plugins at a time, so it takes a while to refresh
/// many credentials. If this command stops waiting, the runs continue. `credbroker status` shows their results. Exits with
/// 1 if a run failed.
#[derive(Debug, clap::Args)]
#[command(mut_arg("timeout", |arg| arg.help(TIMEOUT).default_value("1h").display_order(4)), after_help = "\
Examples:
  credbroker refresh gke
  credbroker refresh --cluster-profile fleet/paris
  credbroker refresh gke --timeout 30s")]
pub(super) struct RefreshArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    #[command(flatten)]
    broker: BrokerArgs,
}

const TIMEOUT: &str = "Longest time to wait for the runs, such as 500ms, 10s or 1h30m";

pub(super) fn refresh(args: &RefreshArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let states =
        match args.selection.resolve(console, |selected, console| refreshed(args, selected, console))? {
            Err(failure @ Failure::Broker(Error::Timeout { .. })) => {
                let remedy = "see `credbroker status`, or wait longer with --timeout";
                writeln!(console.err, "credbroker: {failure}; the plugin runs continue: {remedy}")?;
                return Ok(failure.exit_code());
            }
            refreshed => refreshed?,
        };
    overview::print(&states, args.output, console)?;
    Ok(u8::from(states.iter().any(|state| state.last_failure.is_some())))
}

fn refreshed(
    args: &RefreshArgs,
    selected: &Selection,
    console: &mut Console<'_>,
) -> anyhow::Result<Result<Vec<CredentialState>, Failure>> {
    let (selector, environment) = (&selected.selector, console.environment);
    let held = args.broker.start_and_ask(environment, async |client| {
        let what = format!("credbroker: waiting for the plugin runs of {selected} ...");
        let admin = admin(&client, environment);
        explained(&what, admin.refresh(selector)).await?;
        admin.credentials(selector).await
    })?;
    let (true, Some(target)) = (held.as_ref().is_ok_and(Vec::is_empty), &selected.target) else {
        return Ok(held);
    };
    let first = first_run(args, target, console);
    let held = args
        .broker
        .try_ask(environment, async |client| admin(&client, environment).credentials(selector).await)?;
    Ok(held.and_then(|held| if held.is_empty() { first.map(|()| held) } else { Ok(held) }))
}

fn first_run(args: &RefreshArgs, target: &Target, console: &mut Console<'_>) -> Result<(), Failure> {
    let (socket, total) = (&args.broker.socket, Some(args.broker.timeout));
    noticed("credbroker refresh", socket, target, console, |socket, request, start, notice| {
        let is_terminal = notice.is_some();
        request_patiently(socket, request, (start, total), is_terminal, notice).map(drop)
    })
}

/// Make the broker evict credentials, for example after a change of account
///
/// The broker overwrites the credentials in memory. The next request for one of them runs the plugin.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker evict gke
  credbroker evict --cluster-profile fleet/paris
  credbroker evict --all")]
pub(super) struct EvictArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) fn evict(args: &EvictArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let evicted = args.selection.resolve(console, |selected, console| {
        let evict = async |client: Client| client.admin().evict(&selected.selector).await;
        args.broker.try_ask(console.environment, evict)
    })?;
    let count = evicted?;
    writeln!(console.out, "evicted {}", counted(count.into(), "credential"))?;
    Ok(0)
}

/// Make the broker evict the credentials of a provider, and show how to log out of the plugin itself
///
/// The broker overwrites the credentials in memory. Many plugins keep their own login on disk. The broker does not change
/// this login, so the next request would use it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker logout
  credbroker logout azure
  credbroker logout --cluster-profile fleet/paris")]
#[command(mut_arg("provider", |arg| arg.help("Provider to log out of, or a context that uses it [default: the current context]")))]
#[command(mut_arg("cluster_profile", |arg| arg.help("Evict only the credentials for this cluster, as `credbroker clusters` lists it")))]
pub(super) struct LogoutArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) fn log_out(args: &LogoutArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let (Target { source, .. }, forgotten) =
        resolve(&args.source, (None, None), console, |target, console| {
            args.broker.try_ask(console.environment, async |client| forget(&target.source, &client).await)
        })?;
    let (evicted, commands) = forgotten?;
    let what = match &source {
        Source::Provider { name, .. } => format!("provider {}", shown(name)),
        Source::ClusterProfile(profile) => format!("cluster {}", shown(&profile.to_string())),
        Source::Context { name, .. } => format!("context {}", shown(name)),
    };
    writeln!(console.out, "evicted {} of {what}", counted(evicted.into(), "credential"))?;
    if commands.is_empty() {
        writeln!(console.out, "no provider serves it; see `credbroker status`")?;
    }
    commands.iter().try_for_each(|command| writeln!(console.out, "{}", advice(command)))?;
    Ok(0)
}

/// Evicts the credentials; returns their number, and the commands of the plugins.
async fn forget(source: &Source, client: &Client) -> Result<(u32, Vec<String>), Error> {
    let (name, definition) = match source {
        Source::Provider { name, definition } => (Some(name.clone()), definition.as_ref()),
        Source::ClusterProfile(profile) => {
            let clusters = client.clusters(Some(&profile.namespace)).await?.clusters;
            let cluster = clusters.into_iter().find(|cluster| cluster.profile == *profile);
            (cluster.and_then(|cluster| cluster.provider), None)
        }
        // No plugin keeps a credential of it.
        Source::Context { .. } => (None, None),
    };
    let evicted = client.admin().evict(&held_of(source.clone())).await?;
    let is_meant = |known: &ProviderState| {
        Some(&known.name) == name.as_ref()
            && (definition.is_none() || known.definition.as_ref() == definition)
    };
    let known = client.admin().providers().await?.into_iter().filter(is_meant);
    let mut commands: Vec<_> = known.map(|known| known.command).collect();
    commands.dedup();
    Ok((evicted, commands))
}

const PLUGINS: [(&str, &str); 6] = [
    ("aws", "`aws sso logout`"),
    ("gcloud", "`gcloud auth revoke`"),
    ("gke-gcloud-auth-plugin", "`gcloud auth revoke`"),
    ("kubectl-oidc_login", "`kubectl oidc-login clean`"),
    ("kubelogin", "`kubelogin remove-tokens` (Azure), or `kubelogin clean` (OIDC)"),
    ("tsh", "`tsh logout`"),
];

fn advice(command: &str) -> String {
    let name = Path::new(command).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some((_, logout)) = PLUGINS.iter().find(|(plugin, _)| *plugin == name) {
        return format!("the plugin keeps its own login; to end it, run {logout}");
    }
    let command = shown(command);
    format!("the plugin `{command}` may keep its own login; its documentation says how to end it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_that_of_the_plugin() {
        for (command, expected) in [
            ("/usr/bin/tsh", "the plugin keeps its own login; to end it, run `tsh logout`"),
            ("aws", "the plugin keeps its own login; to end it, run `aws sso logout`"),
            (
                "/opt/own\u{1b}",
                "the plugin `/opt/own\\u{1b}` may keep its own login; its documentation says how to end it",
            ),
        ] {
            assert_eq!(advice(command), expected);
        }
    }
}
