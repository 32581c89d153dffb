//! `credbroker status`: the credentials that a running broker holds.

use std::io::Write;

use credbroker_client::admin::Selector;
use serde_json::json;

use super::{
    broker::{OutputFormat, SocketArg, TimeoutArg, ask, finish, write_json},
    configuration, credentials,
};
use crate::plugin::Environment;

/// Show the credentials that a running broker holds, without their secrets
///
/// The table shows when each credential expires, when it is renewed, how many watches it has, how often its plugin ran,
/// and why the last run failed. If an API server has rejected a credential, or seems to have, a line below the table
/// says how often, and what the broker did about it. If the files of the configuration have problems, these follow: then
/// the broker continues with an earlier version of the files.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StatusArgs {
    /// Show only the credentials of this provider
    provider: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    timeout: TimeoutArg,
}

const EXAMPLES: &str = "\
Examples:
  credbroker status
  credbroker status gke
  credbroker status -o json | jq -r '.credentials[] | select(.state == \"failed\") | .provider'";

pub(super) fn run(args: &StatusArgs, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let selector = args.provider.clone().map_or(Selector::All, Selector::Provider);
    let listed = ask(&args.socket, args.timeout.limit, environment, async |client| {
        let admin = client.admin();
        Ok((admin.credentials(&selector).await?, admin.broker_info().await?.configuration))
    })?;
    finish(listed, out, |(states, configuration), out| match args.output {
        OutputFormat::Table => {
            credentials::print(&states, args.output, out)?;
            let text = configuration.as_ref().map(configuration::text).unwrap_or_default();
            if text.is_empty() { Ok(()) } else { write!(out, "\n{text}") }
        }
        OutputFormat::Json => {
            let configuration = configuration.as_ref().map(configuration::json);
            let credentials = credentials::json(&states);
            write_json(&json!({"configuration": configuration, "credentials": credentials}), out)
        }
    })
}
