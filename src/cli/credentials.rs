//! How `credbroker status` and `refresh` print the credentials that a broker holds.

use std::{
    fmt::Write as _,
    io::{self, Write},
    time::SystemTime,
};

use credbroker_client::admin::{CredentialState, Rejections, State, Verdict};
use prost_types::Timestamp;
use serde_json::{Value, json};

use super::{
    broker::{OutputFormat, write_json},
    clusters::{failure, reason},
    get::expires,
    table,
};
use crate::{
    clock::{Clock as _, SystemClock},
    text::one_line,
};

/// Prints `states` without secrets.
pub(super) fn print(states: &[CredentialState], format: OutputFormat, out: &mut dyn Write) -> io::Result<()> {
    match format {
        OutputFormat::Table => write!(out, "{}", as_table(states, SystemClock.now().wall)),
        OutputFormat::Json => write_json(&json!({"credentials": json(states)}), out),
    }
}

/// `states` for programs.
pub(super) fn json(states: &[CredentialState]) -> Vec<Value> {
    states.iter().map(as_json).collect()
}

fn as_table(states: &[CredentialState], now: SystemTime) -> String {
    let head = ["PROVIDER", "KEY", "STATE", "EXPIRES", "NEXT REFRESH", "WATCHES", "RUNS", "LAST FAILURE"];
    let time = |at: Option<SystemTime>| at.map_or_else(|| "-".to_owned(), |at| expires(at.into(), now));
    let rows: Vec<_> = states
        .iter()
        .map(|held| {
            let failure = held.last_failure.as_ref();
            [
                provider(held),
                held.key.clone(),
                name(held.state).to_owned(),
                time(held.expires_at),
                time(held.next_refresh),
                held.watchers.to_string(),
                held.runs.to_string(),
                failure.map_or_else(
                    || "-".to_owned(),
                    |failure| format!("{}: {}", reason(failure), one_line(&failure.message)),
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

/// `3 rejections, 2 verifications, the last: accepted; the next run for a rejection not before …`.
fn summary(rejections: &Rejections, now: SystemTime) -> String {
    let count = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut text = count(rejections.rejections, "rejection");
    if rejections.verifications > 0 {
        let verdict = verdict(rejections.last_verdict);
        let verifications = count(rejections.verifications, "verification");
        let _infallible = write!(text, ", {verifications}, the last: {verdict}");
    }
    if let Some(at) = rejections.next_run {
        let _infallible =
            write!(text, "; the next run for a rejection not before {}", expires(at.into(), now));
    }
    text
}

fn verdict(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        None => "none",
        Some(Verdict::Rejected) => "rejected",
        Some(Verdict::Accepted) => "accepted",
        Some(_) => "unverifiable",
    }
}

/// `gke`, or `gke (fleet/paris)` for a ClusterProfile.
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
        "state": name(held.state),
        "generation": held.generation,
        "expirationTime": time(held.expires_at),
        "nextRefreshTime": time(held.next_refresh),
        "watchers": held.watchers,
        "runs": held.runs,
        "lastFailure": held.last_failure.as_ref().map(failure),
        "failedAttempts": held.failed_attempts,
        "rejections": held.rejections.as_ref().map(|rejections| json!({
            "rejections": rejections.rejections,
            "verifications": rejections.verifications,
            "lastVerdict": verdict(rejections.last_verdict),
            "nextRunTime": time(rejections.next_run),
        })),
    })
}

fn name(state: State) -> &'static str {
    match state {
        State::Valid => "valid",
        State::Renewing => "renewing",
        State::Waiting => "waiting",
        State::Failed => "failed",
        State::Empty => "empty",
        _ => "unknown",
    }
}

/// A time in JSON.
fn time(at: Option<SystemTime>) -> Option<String> {
    at.map(|at| Timestamp::from(at).to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use credbroker_proto::{
        Reason,
        v1::{
            self, ClusterProfileRef, Failure,
            credential_state::{Rejections, State, Verdict},
        },
    };

    use super::{CredentialState, OutputFormat, SystemTime, Value, as_json, as_table, json, print, summary};

    fn held() -> CredentialState {
        message().into()
    }

    fn message() -> v1::CredentialState {
        let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        v1::CredentialState {
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
    fn the_summary_of_rejections_is_one_line() {
        let line = |rejections| {
            let held =
                CredentialState::from(v1::CredentialState { rejections: Some(rejections), ..message() });
            summary(&held.rejections.unwrap(), now())
        };
        let mut rejections = Rejections { rejections: 1, ..Rejections::default() };
        assert_eq!(line(rejections), "1 rejection");
        rejections.verifications = 1;
        rejections.last_verdict = Verdict::Unverifiable.into();
        assert_eq!(line(rejections), "1 rejection, 1 verification, the last: unverifiable");
    }

    #[test]
    fn a_failure_with_several_lines_is_one_row() {
        let mut failed = v1::CredentialState { rejections: None, ..message() };
        failed.last_failure.as_mut().unwrap().message = "plugin failed:\n  no \x1b[31msession\n".into();
        let text = as_table(&[failed.into()], now());
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.ends_with("plugin failed: no U+001B[31msession\n"), "{text}");
    }

    #[test]
    fn the_table_has_a_row_per_credential_and_rejections_below() {
        let empty = v1::CredentialState {
            provider: "x".into(),
            state: State::Empty.into(),
            ..v1::CredentialState::default()
        };
        insta::assert_snapshot!(as_table(&[held(), empty.into()], now()), @r"
        PROVIDER           KEY     STATE     EXPIRES                        NEXT REFRESH                   WATCHES  RUNS  LAST FAILURE
        gke (fleet/paris)  0a1b2c  renewing  2027-01-15T08:10:00Z (in 10m)  2027-01-15T08:01:00Z (in 60s)  2        9     PLUGIN_EXIT: no
        x                          empty     -                              -                              0        0     -

        gke (fleet/paris) 0a1b2c: 3 rejections, 2 verifications, the last: accepted; the next run for a rejection not before 2027-01-15T08:00:40Z (in 40s)
        ");
    }

    #[test]
    fn json_has_no_character_that_a_terminal_obeys_or_hides() {
        let mut failed = message();
        failed.provider = "a\u{9b}2J".into();
        failed.last_failure.as_mut().unwrap().message = "exe\u{202e}gpj\u{7f}".into();
        let mut out = Vec::new();
        print(&[failed.into()], OutputFormat::Json, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(r#""a\u009b2J""#) && text.contains(r#""exe\u202egpj\u007f""#), "{text}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["credentials"][0]["provider"], "a\u{9b}2J");
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
        let unsuspected = v1::CredentialState { rejections: None, ..message() };
        assert_eq!(as_json(&unsuspected.into())["rejections"], Value::Null);
    }
}
