//! `credbroker status`: what a running broker is, and the credentials that it holds.

mod proxy;
mod watch;

use credbroker_client::{ClusterProfileRef, admin::Selector};
use serde_json::json;

use super::{
    broker::{BrokerArgs, ON_DEMAND, admin},
    console::{Console, OutputFormat},
    doctor::users::{few, not_brokered},
    overview::{Overview, document, extended, text},
    screen::{Screen, wrapped},
};
use credbroker_observe::clock::{Clock as _, SystemClock};
use proxy::RunningProxy;

/// Show a running broker, its providers and its credentials, without their secrets
///
/// The table has a line for each credential, and for each provider without a credential:
///
///   valid       the broker holds a valid credential
///   refreshing  the broker holds a valid credential; the run for the next one is in progress or failed
///   waiting     no credential; the plugin is running or queued
///   failed      no credential, because the last run failed
///   empty       no credential; the next request runs the plugin
///   idle        no request for the provider yet
///   unusable    the plugin is not installed, or may not run
///
/// ACCOUNT shows the variables that select the account, but only to the broker's own user. A * marks
/// the credential that a client in this shell gets.
///
/// The lines below the table show the last failures, rejections by API servers, and problems of the
/// configuration. If a proxy runs, its connections and the targets in use follow, with their requests,
/// open streams and bytes, but not with NAME, --cluster-profile or --watch. A narrow terminal hides columns.
/// -o json prints everything.
#[derive(Debug, clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  credbroker status
  credbroker status gke --exit-code
  credbroker status --watch
  credbroker status -o json | jq -r '.credentials[] | select(.state == \"failed\") | .provider'"
)]
pub(super) struct StatusArgs {
    /// Show only this provider
    #[arg(value_name = "NAME", conflicts_with = "cluster_profile")]
    provider: Option<String>,
    /// Show only the credentials for this cluster, as `credbroker clusters` lists it
    #[arg(long, value_name = "NAMESPACE/NAME")]
    cluster_profile: Option<ClusterProfileRef>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    /// Exit with 1 if a plugin run, a plugin, the hub or the configuration has failed
    #[arg(long)]
    exit_code: bool,
    /// Refresh the view every second until Ctrl-C, sorted by expiry
    #[arg(short, long, conflicts_with_all = ["output", "exit_code"])]
    watch: bool,
    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) fn run(args: &StatusArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let screen = Screen::of_stdout(console.environment);
    let selector = match (&args.provider, &args.cluster_profile) {
        (Some(name), _) => Selector::Provider(name.clone()),
        (None, Some(profile)) => Selector::ClusterProfile(profile.clone()),
        (None, None) => Selector::All,
    };
    if args.watch {
        if screen.size.is_none() {
            let remedy = "run this command at a terminal, or use `credbroker status -o json`";
            writeln!(console.err, "credbroker: --watch needs a terminal as standard output; {remedy}")?;
            return Ok(2);
        }
        return watch::run(&args.broker, &selector, console);
    }
    let read = async |client| Overview::read(&admin(&client, console.environment), &selector).await;
    let overview = match args.broker.try_ask(console.environment, read)? {
        Err(failure) if args.broker.starts_on_demand(&failure, console.environment) => {
            let none = || json!({"broker": null, "startsOnDemand": true, "providers": [], "credentials": []});
            console.print(args.output, || format!("{ON_DEMAND}\n"), none)?;
            return Ok(0);
        }
        overview => overview?,
    };
    let plain = if selector == Selector::All { not_brokered(console.environment) } else { Vec::new() };
    let proxy = if selector == Selector::All { RunningProxy::find(console.environment) } else { None };
    let table = || {
        let of_proxy = proxy.as_ref().map(|proxy| format!("\n{}", proxy.text(screen)));
        [text(&overview, screen, SystemClock.now().wall), of_proxy.unwrap_or_default(), note(&plain, screen)]
            .concat()
    };
    let of_proxy = || proxy.as_ref().map(RunningProxy::document);
    let document = || extended(document(&overview), json!({"notBrokered": plain, "proxy": of_proxy()}));
    console.print(args.output, table, document)?;
    Ok(u8::from(args.exit_code && overview.has_failed()))
}

fn note(plain: &[String], screen: Screen) -> String {
    if plain.is_empty() {
        return String::new();
    }
    let line = format!(
        "Users that run their plugin themselves: {}; run `credbroker kubeconfig inject`.",
        few(plain.to_vec())
    );
    format!("\n{}", wrapped(&line, 2, screen.width()))
}
