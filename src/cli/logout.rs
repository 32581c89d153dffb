//! `credbroker logout`: the broker forgets the credentials of a provider, and the person learns how the plugin does.

use std::{io::Write, path::Path};

use credbroker_client::admin::Selector;

use super::broker::{SocketArg, TimeoutArg, ask, finish};
use crate::{plugin::Environment, text::shown};

/// Make the broker forget the credentials of a provider, and show how to log out of the plugin itself
///
/// The broker overwrites the credentials in memory. Many plugins keep their own login on disk, which the broker does not
/// change: the next request would use it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct LogoutArgs {
    /// Provider to log out of
    #[arg(value_name = "NAME")]
    provider: String,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    timeout: TimeoutArg,
}

const EXAMPLES: &str = "\
Examples:
  credbroker logout azure";

pub(super) fn run(args: &LogoutArgs, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let name = &args.provider;
    let answer = ask(&args.socket, args.timeout.limit, environment, async |client| {
        let admin = client.admin();
        let evicted = admin.evict(&Selector::Provider(name.clone())).await?;
        let providers = admin.providers().await?.into_iter().filter(|known| known.name == *name);
        Ok((evicted, providers.map(|provider| provider.command).collect::<Vec<_>>()))
    })?;
    finish(answer, out, |(evicted, commands), out| {
        let credentials = if evicted == 1 { "credential" } else { "credentials" };
        writeln!(out, "evicted {evicted} {credentials} of provider {}", shown(name))?;
        if commands.is_empty() {
            writeln!(out, "no provider has this name; see `credbroker status`")?;
        }
        commands.iter().try_for_each(|command| writeln!(out, "{}", advice(command)))
    })
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
