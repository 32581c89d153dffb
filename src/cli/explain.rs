//! `credbroker explain`: why credentials are several, what bounds their lifetime, and when a plugin runs next.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

use credbroker_client::{
    Client,
    admin::{CredentialState, IdPart},
};
use serde_json::{Value, json};

use super::{
    broker::{self, BrokerArgs, SelectionArgs, admin},
    console::{Console, OutputFormat},
    overview::{account, described, extended, lifetime, provider, state_json, summary},
    screen::{Screen, Tone, dated, fitted, span, wrapped},
};
use credbroker_credential::text::{one_line, quoted, shown};
use credbroker_observe::clock::{Clock as _, SystemClock};

/// Explain credentials: why there are several, what limits their lifetime, and when and why the plugin runs next
///
/// Each credential has an id. The parts of the id are everything that can change what the plugin prints: the provider, its
/// command and arguments, each variable of the plugin's environment, and the cluster. This command shows where each part
/// comes from. A * marks the parts that differ between the credentials of a provider. They have a number instead of their
/// value, and credentials with equal values have equal numbers. The broker sends no values, except the values of variables
/// that select the account.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker explain
  credbroker explain eks
  credbroker explain --cluster-profile fleet/paris -o json")]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) fn run(args: &ExplainArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let environment = console.environment;
    let explained = args.selection.resolve(console, |selected, _| {
        let explain = async |client: Client| admin(&client, environment).explain(&selected.selector).await;
        let pages = args.broker.start_and_ask(environment, explain)?;
        Ok(pages.map(|pages| (pages, selected.to_string())))
    })?;
    let (pages, of) = explained?;
    // Numbers of values can be compared within a page.
    let groups = pages.iter().flat_map(|page| page.chunk_by(|one, other| one.provider == other.provider));
    let groups: Vec<_> = groups.collect();
    let table = || {
        if groups.is_empty() {
            return format!("the broker holds no credential of {of}; the first request runs the plugin\n");
        }
        text(&groups, Screen::of_stdout(environment), SystemClock.now().wall)
    };
    console.print(args.output, table, || document(&groups))?;
    Ok(0)
}

fn document(groups: &[&[CredentialState]]) -> Value {
    let mut credentials = Vec::new();
    for group in groups {
        let differing = differing(group);
        let part = |part: &IdPart| extended(json!(part), json!({"differs": differing.contains(&name(part))}));
        credentials.extend(group.iter().map(|held| {
            let parts: Vec<_> = held.id_parts.iter().map(part).collect();
            extended(state_json(held), json!({ "keyParts": parts }))
        }));
    }
    json!({ "credentials": credentials })
}

type PartName<'a> = (&'a str, &'a str);

fn name(part: &IdPart) -> PartName<'_> {
    (&part.kind, &part.name)
}

fn find<'a>(held: &'a CredentialState, part: PartName<'_>) -> Option<&'a IdPart> {
    held.id_parts.iter().find(|found| name(found) == part)
}

/// The parts that not all of `group` have, or whose values or origins differ between them.
fn differing(group: &[CredentialState]) -> Vec<PartName<'_>> {
    let mut seen = HashSet::new();
    let names = group.iter().flat_map(|held| &held.id_parts).map(name).filter(|part| seen.insert(*part));
    let differs = |part: &PartName<'_>| {
        group.windows(2).any(|pair| matches!(pair, [one, other] if find(one, *part) != find(other, *part)))
    };
    names.filter(differs).collect()
}

fn text(groups: &[&[CredentialState]], screen: Screen, now: SystemTime) -> String {
    groups.iter().map(|group| of_provider(group, screen, now)).collect::<Vec<_>>().join("\n")
}

/// What differs in each of the credentials, and then what is equal in all.
fn of_provider(group: &[CredentialState], screen: Screen, now: SystemTime) -> String {
    let differing = differing(group);
    let mut text = String::new();
    for held in group {
        text.extend(head(held, now).iter().map(|line| wrapped(line, 12, screen.width())));
        if !differing.is_empty() {
            text.push_str(&table("VALUE", differing.iter().map(|part| row("*", *part, held)), screen));
        }
        text.push('\n');
    }
    let title = match (group.len(), differing.len()) {
        (1, _) => "The id is made of these parts:".to_owned(),
        (count, 0) => format!("These parts are equal in all {count} ids:"),
        (count, differing) => {
            let parts = if differing == 1 { "part".to_owned() } else { format!("{differing} parts") };
            format!("The ids of these {count} credentials differ in the {parts} marked with *. Equal in all:")
        }
    };
    text.push_str(&wrapped(&title, 0, screen.width()));
    let equal = group.iter().take(1).flat_map(|first| {
        let parts = first.id_parts.iter().map(name).filter(|part| !differing.contains(part));
        parts.map(|part| row(" ", part, first))
    });
    text + &table("", equal.map(|[part, origin, _]| [part, origin, String::new()]), screen)
}

fn row(mark: &str, part: PartName<'_>, held: &CredentialState) -> [String; 3] {
    let ((kind, name), found) = (part, find(held, part));
    let name = if name.is_empty() { String::new() } else { format!(" {}", shown(name)) };
    let origin = found.map_or("-", |part| &part.origin).to_owned();
    let number = found.map_or_else(|| "absent".to_owned(), |part| format!("#{}", part.value_number));
    let digest = held.definition.as_deref().filter(|_| found.is_some() && kind == "definition");
    [format!("{mark} {kind}{name}"), origin, digest.map_or(number, one_line)]
}

fn table(value: &str, rows: impl Iterator<Item = [String; 3]>, screen: Screen) -> String {
    let rows: Vec<_> = rows.map(|cells| (Tone::Plain, cells)).collect();
    fitted(["  PART", "FROM", value], &rows, (1, &[]), screen)
}

fn head(held: &CredentialState, now: SystemTime) -> Vec<String> {
    let mut lines = vec![format!("{} {}: {}", provider(held), held.id, broker::name(held.state))];
    let mut add = |label: &str, text: &str| lines.push(format!("  {label:<8}  {text}"));
    if !held.account.is_empty() {
        add("account", &account(held));
    }
    if let Some(bound) = &held.bound {
        add("lifetime", &bounded(held, bound, now));
    }
    add("next run", &next_run(held, now));
    if let Some(failure) = &held.last_failure {
        let attempts = held.failed_attempts;
        add("failure", &described(&format!("{attempts} in a row, the last one"), failure));
    }
    if let Some(rejections) = &held.rejections {
        add("rejected", &summary(rejections, now));
    }
    lines
}

fn bounded(held: &CredentialState, bound: &str, now: SystemTime) -> String {
    let bound = match bound {
        "expirationTimestamp" => "the expirationTimestamp that the plugin printed",
        "certificateNotAfter" => "NotAfter of the client certificate",
        "tokenExp" => "exp claim of the token, a JWT",
        "maxAge" => "maxAge of the provider",
        "unknownExpiryMaxAge" => {
            "unknownExpiryMaxAge of the provider, because the credential names no expiry"
        }
        "clockSkew" => "the credential had expired when it arrived; check the clock of this machine",
        _ => "a bound that this release does not know",
    };
    let lasts = lifetime(held).map(|lasts| format!("{}, ", span(lasts))).unwrap_or_default();
    let until = held.expires_at.map(|at| format!("until {}", dated(at, now, "expired"))).unwrap_or_default();
    format!("{lasts}{until}: {bound}")
}

fn next_run(held: &CredentialState, now: SystemTime) -> String {
    let at = held.next_run.filter(|at| at.duration_since(now).unwrap_or_default() >= Duration::from_secs(1));
    let when = at.map_or_else(|| "now".to_owned(), |at| dated(at, now, "now"));
    let why = match (held.next_run_cause.as_str(), at) {
        ("refreshPoint", _) => "the credential is due for refresh",
        ("sameCredential", _) => "the plugin returned the same credential, and runs again",
        ("pluginChanged", _) => "the file of the plugin has changed",
        ("backOff", _) => "the last run failed, and the back-off ends then",
        ("issuerPaused", _) => "the issuer asked for fewer requests, and its pause ends then",
        ("watched", _) => "there is a watch, but no valid credential",
        ("inProgress", _) => return "a run is queued or in progress".to_owned(),
        ("userNeeded", _) => {
            return format!("with a request at a terminal, or `{}`: the plugin needs a user", login(held));
        }
        ("loginNeeded", _) => {
            return format!("only with `{}`: no user answered the last prompts", login(held));
        }
        ("notInUse", None) => return "with the next request: the credential is not in use".to_owned(),
        ("nextRequest", None) => return "with the next request: there is no valid credential".to_owned(),
        ("notInUse", Some(_)) => {
            return format!("with the first request after {when}: the credential will not be in use then");
        }
        ("nextRequest", Some(_)) => {
            return format!("with the first request after {when}: until then callers get the last failure");
        }
        _ => "a cause that this release does not know",
    };
    format!("{when}: {why}")
}

fn login(state: &CredentialState) -> String {
    match &state.cluster_profile {
        Some(profile) => one_line(&format!("credbroker login --cluster-profile {profile}")),
        None => format!("credbroker login {}", quoted(&state.provider)),
    }
}

#[cfg(test)]
mod tests;
