//! `credbroker logout`: the broker forgets the credentials of a provider, and the person learns how the plugin does.

use std::path::Path;

use anyhow::Context as _;
use clap::ArgGroup;
use credbroker_client::{Client, Error, admin::ProviderState};
use credbroker_exec::Source;

use super::{
    broker::BrokerArgs,
    console::Console,
    screen::counted,
    selection::{HELD_DEFINITION, SourceArgs, held_of},
};
use credbroker_credential::text::shown;

/// Make the broker forget the credentials of a provider, and show how to log out of the plugin itself
///
/// The broker overwrites the credentials in memory. Many plugins keep their own login on disk, which the broker does not
/// change: the next request would use it.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("source").args(["provider", "cluster_profile"]).required(true), after_help = "\
Examples:
  credbroker logout azure
  credbroker logout --cluster-profile fleet/paris")]
#[command(mut_arg("provider", |arg| arg.help("Provider to log out of")))]
#[command(mut_arg("definition", |arg| arg.help(HELD_DEFINITION)))]
#[command(mut_arg("cluster_profile", |arg| arg.help("Forget only the credentials for this cluster, as `credbroker clusters` lists it")))]
pub(super) struct LogoutArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) fn run(args: &LogoutArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let source = args.source.source().context("no provider is named")?; // clap requires one
    let log_out = async |client| log_out(&source, &client).await;
    let (evicted, commands) = args.broker.ask(console.environment, log_out)?;
    let what = match &source {
        Source::Provider { name, .. } => format!("provider {}", shown(name)),
        Source::ClusterProfile(profile) => format!("cluster {}", shown(&profile.to_string())),
    };
    writeln!(console.out, "evicted {} of {what}", counted(evicted.into(), "credential"))?;
    if commands.is_empty() {
        writeln!(console.out, "no provider serves it; see `credbroker status`")?;
    }
    commands.iter().try_for_each(|command| writeln!(console.out, "{}", advice(command)))?;
    Ok(0)
}

/// Evicts the credentials; returns their number, and the commands of the plugins.
async fn log_out(source: &Source, client: &Client) -> Result<(u32, Vec<String>), Error> {
    let (name, definition) = match source {
        Source::Provider { name, definition } => (Some(name.clone()), definition.as_ref()),
        Source::ClusterProfile(profile) => {
            let clusters = client.clusters(Some(&profile.namespace)).await?.clusters;
            let cluster = clusters.into_iter().find(|cluster| cluster.profile == *profile);
            (cluster.and_then(|cluster| cluster.provider), None)
        }
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

/// How to log out of the plugins that keep their own login.
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
