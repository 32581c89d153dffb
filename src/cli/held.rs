//! `credbroker status`, `refresh` and `evict`: what a running broker holds.

use std::{
    fmt::{self, Write as _},
    io::{self, Write},
    time::{Duration, SystemTime},
};

use credbroker_client::Selector;
use credbroker_exec::Failure;
use credbroker_proto::v1::{
    CredentialState,
    credential_state::{Rejections, State, Verdict},
};
use prost_types::Timestamp;
use serde_json::{Value, json};

use super::{
    broker::{Output, Patience, Place, ask, refused},
    clusters::failure,
    fleet::one_line,
    get::expires,
    progress::explained,
    table,
};
use crate::{
    clock::{Clock as _, SystemClock},
    plugin::Environment,
};

/// Show what a running broker holds: no secrets
///
/// If an API server is known or suspected to have rejected a credential, a line below the table has what
/// the broker did about it.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Only of this provider
    provider: Option<String>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    patience: Patience,
}

/// Run a provider's plugin now, for everything that the broker holds of it
///
/// What was held is served meanwhile, and stays if the run fails. The broker runs a few plugins at a time, so many
/// credentials take long; the runs go on when this command ends before them.
#[derive(Debug, clap::Args)]
pub(super) struct RefreshArgs {
    #[command(flatten)]
    which: Which,
    /// How to print the outcome
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    #[command(flatten)]
    place: Place,
}

/// Make the broker forget and wipe what it holds: after you changed account
///
/// The next ask runs the plugin.
#[derive(Debug, clap::Args)]
pub(super) struct EvictArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    patience: Patience,
}

/// Which credentials of the cache.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The credentials of this provider
    provider: Option<String>,
    /// The credential with this key, as `credbroker status` prints it
    #[arg(long)]
    key: Option<String>,
    /// All credentials
    #[arg(long)]
    all: bool,
}

impl Which {
    fn selector(&self) -> Selector {
        match (&self.provider, &self.key) {
            (Some(provider), _) => Selector::Provider(provider.clone()),
            (None, Some(key)) => Selector::Key(key.clone()),
            (None, None) => Selector::All,
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.provider, &self.key) {
            (Some(provider), _) => f.write_str(provider),
            (None, Some(key)) => write!(f, "key {key}"),
            (None, None) => f.write_str("all providers"),
        }
    }
}

pub(super) fn status(
    args: &StatusArgs,
    environment: &Environment,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let selector = args.provider.clone().map_or(Selector::All, Selector::Provider);
    let limit = args.patience.limit();
    let listed = ask(&args.place, limit, environment, async |mut client| client.list(selector).await)?;
    said(listed, out, |states, out| print(&states, args.output, out))
}

pub(super) fn refresh(
    args: &RefreshArgs,
    environment: &Environment,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let refreshed = ask(&args.place, Duration::from_secs(args.timeout), environment, async |mut client| {
        let what = format!("credbroker: waiting for the plugin runs of {} ...", args.which);
        explained(&what, client.refresh(args.which.selector())).await
    })?;
    let failed =
        refreshed.as_ref().is_ok_and(|states| states.iter().any(|state| state.last_failure.is_some()));
    let code = said(refreshed, out, |states, out| print(&states, args.output, out))?;
    Ok(if failed { 1 } else { code })
}

pub(super) fn evict(args: &EvictArgs, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let selector = args.which.selector();
    let limit = args.patience.limit();
    let evicted = ask(&args.place, limit, environment, async |mut client| client.evict(selector).await)?;
    said(evicted, out, |count, out| {
        let credentials = if count == 1 { "credential" } else { "credentials" };
        writeln!(out, "{count} {credentials} forgotten")
    })
}

fn said<T>(
    answer: Result<T, Failure>,
    out: &mut dyn Write,
    say: impl FnOnce(T, &mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<u8> {
    match answer {
        Ok(answer) => {
            say(answer, out)?;
            Ok(0)
        }
        Err(failure) => Ok(refused(&failure, &mut io::stderr())?),
    }
}

fn print(states: &[CredentialState], output: Output, out: &mut dyn Write) -> io::Result<()> {
    match output {
        Output::Table => write!(out, "{}", as_table(states, SystemClock.now().wall)),
        Output::Json => {
            let list: Vec<_> = states.iter().map(as_json).collect();
            writeln!(out, "{:#}", json!({"credentials": list}))
        }
    }
}

fn as_table(states: &[CredentialState], now: SystemTime) -> String {
    let head = ["PROVIDER", "KEY", "STATE", "EXPIRES", "NEXT REFRESH", "WATCHES", "RUNS", "LAST FAILURE"];
    let time = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), |at| expires(at, now));
    let rows: Vec<_> = states
        .iter()
        .map(|held| {
            let failure = held.last_failure.as_ref();
            [
                provider(held),
                held.key.clone(),
                name(held.state()).to_owned(),
                time(held.expiration_time),
                time(held.next_refresh_time),
                held.watchers.to_string(),
                held.runs.to_string(),
                failure.map_or_else(
                    || "-".to_owned(),
                    |failure| format!("{}: {}", failure.reason().name(), one_line(&failure.message)),
                ),
            ]
        })
        .collect();
    let mut text = table::text(head, &rows);
    let mut rejected = states.iter().filter_map(|held| Some((held, held.rejections.as_ref()?))).peekable();
    if rejected.peek().is_some() {
        text.push('\n');
    }
    for (held, rejections) in rejected {
        let _infallible = writeln!(text, "{} {}: {}", provider(held), held.key, summary(rejections, now));
    }
    text
}

/// `3 rejections, 2 verifications, the last one: accepted; the next rejection starts a run after …`.
fn summary(rejections: &Rejections, now: SystemTime) -> String {
    let count = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut text = count(rejections.rejections, "rejection");
    if rejections.verifications > 0 {
        let verdict = verdict(rejections.last_verdict());
        let verifications = count(rejections.verifications, "verification");
        let _infallible = write!(text, ", {verifications}, the last one: {verdict}");
    }
    if let Some(at) = rejections.next_run_time {
        let _infallible = write!(text, "; a rejection starts the next run after {}", expires(at, now));
    }
    text
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unspecified => "none",
        Verdict::Rejected => "rejected",
        Verdict::Accepted => "accepted",
        Verdict::Unverifiable => "unverifiable",
    }
}

/// `gke`, or `gke (fleet/paris)` of a ClusterProfile.
fn provider(held: &CredentialState) -> String {
    match &held.cluster_profile {
        Some(profile) => format!("{} ({}/{})", held.provider, profile.namespace, profile.name),
        None => held.provider.clone(),
    }
}

fn as_json(held: &CredentialState) -> Value {
    json!({
        "provider": held.provider,
        "definition": held.definition,
        "clusterProfile": held.cluster_profile.as_ref().map(|profile| json!({
            "namespace": profile.namespace,
            "name": profile.name,
        })),
        "key": held.key,
        "server": held.server,
        "callerEnv": held.caller_env,
        "state": name(held.state()),
        "generation": held.generation,
        "expirationTime": held.expiration_time.map(|at| at.to_string()),
        "nextRefreshTime": held.next_refresh_time.map(|at| at.to_string()),
        "watchers": held.watchers,
        "runs": held.runs,
        "lastFailure": held.last_failure.as_ref().map(failure),
        "failedAttempts": held.failed_attempts,
        "rejections": held.rejections.as_ref().map(|rejections| json!({
            "rejections": rejections.rejections,
            "verifications": rejections.verifications,
            "lastVerdict": verdict(rejections.last_verdict()),
            "nextRunTime": rejections.next_run_time.map(|at| at.to_string()),
        })),
    })
}

fn name(state: State) -> &'static str {
    match state {
        State::Unspecified => "unknown",
        State::Valid => "valid",
        State::Renewing => "renewing",
        State::Waiting => "waiting",
        State::Failed => "failed",
        State::Empty => "empty",
    }
}

#[cfg(test)]
mod tests {
    use credbroker_proto::{
        Reason,
        v1::{ClusterProfileRef, Failure},
    };

    use super::*;

    fn held() -> CredentialState {
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        CredentialState {
            provider: "gke".into(),
            key: "0a1b2c".into(),
            definition: None,
            server: Some("https://a".into()),
            caller_env: vec!["AWS_PROFILE".into()],
            state: State::Renewing.into(),
            generation: Some("e-7".into()),
            expiration_time: at(1_800_000_600),
            next_refresh_time: at(1_800_000_060),
            watchers: 2,
            runs: 9,
            last_failure: Some(Failure {
                reason: Reason::PluginExit.into(),
                message: "no".into(),
                retry_after: None,
            }),
            failed_attempts: 1,
            cluster_profile: Some(ClusterProfileRef { namespace: "fleet".into(), name: "paris".into() }),
            rejections: Some(Rejections {
                rejections: 3,
                verifications: 2,
                last_verdict: Verdict::Accepted.into(),
                next_run_time: at(1_800_000_040),
            }),
        }
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[test]
    fn what_is_known_of_rejections_is_one_line() {
        let said = |rejections| summary(&rejections, now());
        let mut rejections = Rejections { rejections: 1, ..Rejections::default() };
        assert_eq!(said(rejections), "1 rejection");
        rejections.verifications = 1;
        rejections.last_verdict = Verdict::Unverifiable.into();
        assert_eq!(said(rejections), "1 rejection, 1 verification, the last one: unverifiable");
    }

    #[test]
    fn a_failure_of_many_lines_is_one_row() {
        let mut failed = held();
        failed.last_failure.as_mut().unwrap().message = "plugin failed:\n  no \x1b[31msession\n".into();
        let text = as_table(&[CredentialState { rejections: None, ..failed }], now());
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.ends_with("plugin failed: no U+001B[31msession\n"), "{text}");
    }

    #[test]
    fn the_table_is_for_people() {
        let empty = CredentialState {
            provider: "x".into(),
            state: State::Empty.into(),
            ..CredentialState::default()
        };
        insta::assert_snapshot!(as_table(&[held(), empty], now()), @r"
        PROVIDER           KEY     STATE     EXPIRES                        NEXT REFRESH                   WATCHES  RUNS  LAST FAILURE
        gke (fleet/paris)  0a1b2c  renewing  2027-01-15T08:10:00Z (in 10m)  2027-01-15T08:01:00Z (in 60s)  2        9     PLUGIN_EXIT: no
        x                          empty     -                              -                              0        0     -

        gke (fleet/paris) 0a1b2c: 3 rejections, 2 verifications, the last one: accepted; a rejection starts the next run after 2027-01-15T08:00:40Z (in 40s)
        ");
    }

    #[test]
    fn json_has_every_field() {
        let expected = json!({
            "provider": "gke",
            "definition": null,
            "clusterProfile": {"namespace": "fleet", "name": "paris"},
            "key": "0a1b2c",
            "server": "https://a",
            "callerEnv": ["AWS_PROFILE"],
            "state": "renewing",
            "generation": "e-7",
            "expirationTime": "2027-01-15T08:10:00Z",
            "nextRefreshTime": "2027-01-15T08:01:00Z",
            "watchers": 2,
            "runs": 9,
            "lastFailure": {"reason": "PLUGIN_EXIT", "message": "no"},
            "failedAttempts": 1,
            "rejections": {
                "rejections": 3,
                "verifications": 2,
                "lastVerdict": "accepted",
                "nextRunTime": "2027-01-15T08:00:40Z",
            },
        });
        assert_eq!(as_json(&held()), expected);
        assert_eq!(as_json(&CredentialState { rejections: None, ..held() })["rejections"], Value::Null);
    }
}
