//! `credbroker logout`: the broker forgets the credentials of a provider, and the person learns how the plugin does.

use std::{io::Write, path::Path};

use credbroker_client::{
    Client, ClusterProfileRef, Error,
    admin::{ProviderState, Selector},
};

use super::broker::{BrokerArgs, DefinitionArg};
use credbroker_credential::text::shown;
use credbroker_plugin::Environment;

/// Make the broker forget the credentials of a provider, and show how to log out of the plugin itself
///
/// The broker overwrites the credentials in memory. Many plugins keep their own login on disk, which the broker does not
/// change: the next request would use it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(super) struct LogoutArgs {
    /// Provider to log out of
    #[arg(
        value_name = "NAME",
        required_unless_present = "cluster_profile",
        conflicts_with = "cluster_profile"
    )]
    provider: Option<String>,
    #[command(flatten)]
    definition: DefinitionArg,
    /// Forget only the credentials for this cluster, as `credbroker clusters` lists it
    #[arg(long, value_name = "NAMESPACE/NAME")]
    cluster_profile: Option<ClusterProfileRef>,
    #[command(flatten)]
    broker: BrokerArgs,
}

const USAGE: &str = "credbroker logout [OPTIONS] <NAME|--cluster-profile <NAMESPACE/NAME>>";

const EXAMPLES: &str = "\
Examples:
  credbroker logout azure
  credbroker logout --cluster-profile fleet/paris";

pub(super) fn run(args: &LogoutArgs, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let (evicted, commands) = args.broker.ask(environment, async |client| log_out(args, &client).await)?;
    let credentials = if evicted == 1 { "credential" } else { "credentials" };
    let what = match (&args.provider, &args.cluster_profile) {
        (Some(name), _) => format!("provider {}", shown(name)),
        (None, Some(profile)) => format!("cluster {}", shown(&profile.to_string())),
        (None, None) => String::new(), // clap requires one of them
    };
    writeln!(out, "evicted {evicted} {credentials} of {what}")?;
    if commands.is_empty() {
        writeln!(out, "no provider serves it; see `credbroker status`")?;
    }
    commands.iter().try_for_each(|command| writeln!(out, "{}", advice(command)))?;
    Ok(0)
}

/// Evicts the credentials; returns their number, and the commands of the plugins.
async fn log_out(args: &LogoutArgs, client: &Client) -> Result<(u32, Vec<String>), Error> {
    let admin = client.admin();
    let (selector, name) = match (&args.provider, &args.cluster_profile) {
        (Some(name), _) => (args.definition.selector(name), Some(name.clone())),
        (None, Some(profile)) => {
            let clusters = client.clusters(Some(&profile.namespace)).await?.clusters;
            let cluster = clusters.into_iter().find(|cluster| cluster.profile == *profile);
            (Selector::ClusterProfile(profile.clone()), cluster.and_then(|cluster| cluster.provider))
        }
        (None, None) => return Ok((0, Vec::new())), // clap requires one of them
    };
    let evicted = admin.evict(&selector).await?;
    let definition = &args.definition.definition;
    let is_meant = |known: &ProviderState| {
        Some(&known.name) == name.as_ref() && (definition.is_none() || known.definition == *definition)
    };
    let mut commands: Vec<_> =
        admin.providers().await?.into_iter().filter(is_meant).map(|known| known.command).collect();
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
