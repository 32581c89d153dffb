//! `credbroker explain`: why credentials are two and not one, why they live as long as they do, and when their plugin runs
//! next.

mod parts;
mod view;

use std::io::Write;

use credbroker_client::admin::{CredentialState, KeyPart};
use serde_json::{Value, json};

use self::parts::{differing, name};
use super::{
    broker::{OutputFormat, SocketArg, TimeoutArg, ask, finish, write_json},
    credentials::state_json,
    screen::Screen,
    selection::SelectionArgs,
};
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::Environment;

/// Explain credentials: why there are several, what limits their lifetime, and when and why the plugin runs next
///
/// A credential has a key, which is made of everything that can change what the plugin prints: the provider, its command
/// and arguments, each variable of the plugin's environment, and the cluster. For each part this command shows where it
/// comes from. Parts that differ between the credentials of a provider are marked with *, and have a number instead of
/// their value: credentials with equal values have equal numbers. The values stay in the broker.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    selection: SelectionArgs,
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
  credbroker explain --cluster-profile fleet/paris -o json";

pub(super) fn run(args: &ExplainArgs, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let selector = args.selection.selector();
    let pages = ask(&args.socket, args.timeout.limit, environment, async |client| {
        client.admin().explain(&selector).await
    })?;
    finish(pages, out, |pages, out| {
        // Numbers of values can be compared within a page.
        let groups = pages.iter().flat_map(|page| page.chunk_by(|one, other| one.provider == other.provider));
        let groups: Vec<_> = groups.collect();
        match args.output {
            OutputFormat::Json => write_json(&document(&groups), out),
            OutputFormat::Table if groups.is_empty() => {
                let selected = &args.selection;
                writeln!(
                    out,
                    "the broker holds no credential of {selected}; the first request runs the plugin"
                )
            }
            OutputFormat::Table => {
                let (screen, now) = (Screen::of_stdout(environment), SystemClock.now().wall);
                write!(out, "{}", view::text(&groups, screen, now))
            }
        }
    })
}

/// For programs. Each of `groups` has the credentials of one provider.
fn document(groups: &[&[CredentialState]]) -> Value {
    let mut credentials = Vec::new();
    for group in groups {
        let differing = differing(group);
        let part = |part: &KeyPart| {
            json!({
                "kind": part.kind,
                "name": part.name,
                "origin": part.origin,
                "valueNumber": part.value_number,
                "differs": differing.contains(&name(part)),
            })
        };
        credentials.extend(group.iter().map(|held| {
            let mut document = state_json(held);
            if let Value::Object(fields) = &mut document {
                fields.insert("keyParts".to_owned(), held.key_parts.iter().map(part).collect());
            }
            document
        }));
    }
    json!({ "credentials": credentials })
}
