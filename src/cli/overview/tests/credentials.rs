use std::time::Duration;

use credbroker_proto::{
    Reason,
    v1::{ClusterProfileRef, Failure},
    v1alpha1::{
        self, AccountVariable,
        credential_state::{Bound, Cause, Rejections, State, Verdict},
    },
};

use super::super::*;
use crate::cli::console::tests::console;
use credbroker_plugin::Environment;

fn held() -> CredentialState {
    message().into()
}

fn message() -> v1alpha1::CredentialState {
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    v1alpha1::CredentialState {
        provider: "gke".into(),
        id: "0a1b2c".into(),
        definition: None,
        server: Some("https://a".into()),
        caller_env: vec!["AWS_PROFILE".into()],
        state: State::Refreshing.into(),
        generation: Some("e-7".into()),
        expiration_time: at(1_800_000_600),
        next_refresh_time: at(1_800_000_060),
        watches: 2,
        runs: 9,
        last_failure: Some(Failure {
            reason: Reason::PluginExit.into(),
            message: "no".into(),
            ..Failure::default()
        }),
        failed_attempts: 1,
        cluster_profile: Some(ClusterProfileRef { namespace: "fleet".into(), name: "paris".into() }),
        rejections: Some(Rejections {
            rejections: 3,
            verifications: 2,
            last_verdict: Some(Verdict::Accepted.into()),
            next_run_time: at(1_800_000_040),
        }),
        fetch_time: at(1_799_999_000),
        bound: Some(Bound::MaxAge.into()),
        next_run_cause: Cause::BackOff.into(),
        next_run_time: at(1_800_000_060),
        id_parts: Vec::new(),
        account: vec![AccountVariable { name: "AWS_PROFILE".into(), value: "prod".into() }],
        definition_file: None,
        is_of_caller: true,
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

#[test]
fn the_summary_of_rejections_is_one_line() {
    let line = |rejections| {
        let held =
            CredentialState::from(v1alpha1::CredentialState { rejections: Some(rejections), ..message() });
        summary(&held.rejections.unwrap(), now())
    };
    let mut rejections = Rejections { rejections: 1, ..Rejections::default() };
    assert_eq!(line(rejections), "1 rejection");
    rejections.verifications = 1;
    rejections.last_verdict = Some(Verdict::Unverifiable.into());
    assert_eq!(line(rejections), "1 rejection, 1 verification, the last: unverifiable");
    rejections.last_verdict = Some(99);
    assert_eq!(line(rejections), "1 rejection, 1 verification, the last: unknown", "of a newer broker");
}

#[test]
fn a_failure_with_several_lines_is_one_line_below() {
    let mut failed = v1alpha1::CredentialState { rejections: None, ..message() };
    failed.last_failure.as_mut().unwrap().message = "plugin failed:\n  no \x1b[31msession\n".into();
    let text = table(&[CredentialRow::of(&failed.into(), &HashSet::new(), now())], Screen::default());
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(
        text.ends_with("\n\ngke (fleet/paris): PLUGIN_EXIT: plugin failed: no U+001B[31msession\n"),
        "{text}"
    );
}

#[test]
fn the_table_has_a_row_per_credential_and_rejections_below() {
    let empty = v1alpha1::CredentialState {
        provider: "x".into(),
        state: State::Empty.into(),
        ..v1alpha1::CredentialState::default()
    };
    let rows = [
        CredentialRow::of(&held(), &HashSet::new(), now()),
        CredentialRow::of(&empty.into(), &HashSet::new(), now()),
    ];
    insta::assert_snapshot!(table(&rows, Screen::default()), @r"
    PROVIDER           ACCOUNT             STATE       EXPIRES  NEXT RUN  RUNS  WATCHES  ID
    gke (fleet/paris)  * AWS_PROFILE=prod  refreshing  in 10m   in 60s    9     2        0a1b2c
    x                  -                   empty       -        -         0     0

    gke (fleet/paris): PLUGIN_EXIT: no
    gke (fleet/paris) 0a1b2c: 3 rejections, 2 verifications, the last: accepted; the next run for a rejection not before 2027-01-15T08:00:40Z (in 40s)
    ");
}

#[test]
fn accounts_and_files_tell_credentials_of_one_name_apart() {
    let of = |file: &str, account: &[(&str, &str)], is_of_caller| -> CredentialState {
        let variable =
            |(name, value): &(&str, &str)| AccountVariable { name: (*name).into(), value: (*value).into() };
        let state = v1alpha1::CredentialState {
            provider: "admin".into(),
            definition: Some("0".into()),
            definition_file: Some(file.into()),
            account: account.iter().map(variable).collect(),
            is_of_caller,
            ..v1alpha1::CredentialState::default()
        };
        state.into()
    };
    let profile = |name| [("AWS_PROFILE", name)];
    let shown = |states: &[CredentialState], size| {
        let files = states.iter().map(|held| (&*held.provider, held.definition_file.as_deref()));
        let repeated = repeated(files);
        let rows: Vec<_> = states.iter().map(|held| CredentialRow::of(held, &repeated, now())).collect();
        table(&rows, Screen { size, colors: false })
    };
    let mut states = vec![
        of("/home/me/.kube/a", &profile("dev"), false),
        of("/home/me/.kube/a", &[("AWS_PROFILE", "prod"), ("AWS_REGION", "eu-west-3\x1b[2J")], true),
        of("/home/me/.kube/b", &[], true),
    ];
    insta::assert_snapshot!(shown(&states, None), @r"
    PROVIDER                  ACCOUNT                                           STATE    EXPIRES  NEXT RUN  RUNS  WATCHES  ID
    admin (/home/me/.kube/a)  AWS_PROFILE=dev                                   unknown  -        -         0     0
    admin (/home/me/.kube/a)  * AWS_PROFILE=prod AWS_REGION=eu-west-3U+001B[2J  unknown  -        -         0     0
    admin (/home/me/.kube/b)  *                                                 unknown  -        -         0     0
    ");
    insta::assert_snapshot!(shown(&states, Some((80, 24))), @r"
    PROVIDER              ACCOUNT                                   STATE    EXPIRES
    admin (/ho…/.kube/a)  AWS_PROFILE=dev                           unknown  -
    admin (/ho…/.kube/a)  * AWS_PROFILE=prod A…=eu-west-3U+001B[2J  unknown  -
    admin (/ho…/.kube/b)  *                                         unknown  -
    ");
    states.pop();
    insta::assert_snapshot!(shown(&states, None), @r"
    PROVIDER  ACCOUNT                                           STATE    EXPIRES  NEXT RUN  RUNS  WATCHES  ID
    admin     AWS_PROFILE=dev                                   unknown  -        -         0     0
    admin     * AWS_PROFILE=prod AWS_REGION=eu-west-3U+001B[2J  unknown  -        -         0     0
    ");
}

#[test]
fn json_has_no_character_that_a_terminal_obeys_or_hides() {
    let mut failed = message();
    failed.provider = "a\u{9b}2J".into();
    failed.last_failure.as_mut().unwrap().message = "exe\u{202e}gpj\u{7f}".into();
    let mut out = Vec::new();
    let (environment, mut err) = (Environment::default(), Vec::new());
    print(&[failed.into()], OutputFormat::Json, &mut console(&environment, &mut out, &mut err)).unwrap();
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
        "id": "0a1b2c",
        "server": "https://a",
        "callerEnv": ["AWS_PROFILE"],
        "state": "refreshing",
        "generation": "e-7",
        "expirationTime": "2027-01-15T08:10:00Z",
        "nextRefreshTime": "2027-01-15T08:01:00Z",
        "watches": 2,
        "runs": 9,
        "lastFailure": {"reason": "PLUGIN_EXIT", "message": "no"},
        "failedAttempts": 1,
        "rejections": {
            "rejections": 3,
            "verifications": 2,
            "lastVerdict": "accepted",
            "nextRunTime": "2027-01-15T08:00:40Z",
        },
        "lifetime": {"fetchTime": "2027-01-15T07:43:20Z", "seconds": 1600, "bound": "maxAge"},
        "nextRun": {"cause": "backOff", "time": "2027-01-15T08:01:00Z"},
        "account": {"AWS_PROFILE": "prod"},
        "definitionFile": null,
        "isOfCaller": true,
    });
    assert_eq!(state_json(&held()), expected);
    let unverified = v1alpha1::CredentialState { rejections: Some(Rejections::default()), ..message() };
    assert_eq!(state_json(&unverified.into())["rejections"]["lastVerdict"], Value::Null);
    let unsuspected = v1alpha1::CredentialState { rejections: None, ..message() };
    assert_eq!(state_json(&unsuspected.into())["rejections"], Value::Null);
}
