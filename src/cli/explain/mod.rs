//! `credbroker explain`: why credentials are two and not one, why they live as long as they do, and when their plugin runs
//! next.

mod differences;
mod json;
mod names;
mod view;

use std::io::Write;

use super::{
    broker::{OutputFormat, SocketArg, TimeoutArg, ask, finish, write_json},
    screen::Screen,
    selection::SelectionArgs,
};
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::Environment;

/// Explain credentials: why there are several, what limits their lifetime, and when and why the plugin runs next
///
/// A credential has a key, which is made of everything that can change what the plugin prints: the provider, its command
/// and arguments, each variable of the plugin's environment, and the cluster. For each part this command shows where it
/// comes from and a fingerprint of its value; the values stay in the broker. Parts that differ between the credentials of
/// a provider are marked with *. Fingerprints can be compared until the broker restarts.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Show beside each variable the value that it has in the environment of this process. The broker sends no values
    #[arg(long)]
    show_values: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    timeout: TimeoutArg,
}

const USAGE: &str =
    "credbroker explain [OPTIONS] <NAME|--cluster-profile <NAMESPACE/NAME>|--key <KEY>|--all>";

const EXAMPLES: &str = "\
Examples:
  credbroker explain eks
  credbroker explain eks --show-values
  credbroker explain --cluster-profile fleet/paris -o json";

pub(super) fn run(args: &ExplainArgs, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let selector = args.selection.selector();
    let explained = ask(&args.socket, args.timeout.limit, environment, async |client| {
        client.admin().explain(&selector).await
    })?;
    let own = Some(environment).filter(|_| args.show_values);
    finish(explained, out, |explained, out| match args.output {
        OutputFormat::Json => write_json(&json::document(&explained, own), out),
        OutputFormat::Table if explained.is_empty() => {
            let selected = &args.selection;
            writeln!(out, "the broker holds no credential of {selected}; the first request runs the plugin")
        }
        OutputFormat::Table => {
            let (screen, now) = (Screen::of_stdout(environment), SystemClock.now().wall);
            write!(out, "{}", view::text(&explained, own, screen, now))
        }
    })
}
