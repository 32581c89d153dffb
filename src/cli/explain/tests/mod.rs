mod parts;

use credbroker_proto::{
    Reason, v1, v1alpha1,
    v1alpha1::{
        credential_state::{Bound, Cause, State},
        id_part::{Kind, Origin},
    },
};
use prost_types::Timestamp;

use super::*;
use crate::cli::explain::document;

const NOW: i64 = 1_800_000_000;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.cast_unsigned())
}

fn after(seconds: i64) -> Timestamp {
    Timestamp { seconds: NOW + seconds, nanos: 5 }
}

/// Kind, name, origin and number of the value of a part.
type Part = (Kind, &'static str, Origin, u32);

fn message(provider: &str, parts: &[Part]) -> v1alpha1::CredentialState {
    let part = |(kind, name, origin, value_number): &Part| v1alpha1::IdPart {
        kind: (*kind).into(),
        name: Some((*name).to_owned()).filter(|name| !name.is_empty()),
        origin: (*origin).into(),
        value_number: *value_number,
    };
    v1alpha1::CredentialState {
        provider: provider.into(),
        id: "3fa8c21b9e04".into(),
        state: State::Valid.into(),
        expiration_time: Some(after(2_520)),
        fetch_time: Some(after(-1_080)),
        bound: Some(Bound::TokenExp.into()),
        next_run_cause: Cause::RefreshPoint.into(),
        next_run_time: Some(after(1_900)),
        id_parts: parts.iter().map(part).collect(),
        ..v1alpha1::CredentialState::default()
    }
}

/// A credential of `provider` whose key has these parts.
pub(in crate::cli::explain) fn held(provider: &str, parts: &[Part]) -> CredentialState {
    message(provider, parts).into()
}

/// Two credentials of `eks`, for two profiles of callers, of which one has a variable more.
fn two() -> [CredentialState; 2] {
    let equal = [
        (Kind::Provider, "", Origin::Stanza, 1),
        (Kind::Argument, "1", Origin::Stanza, 1),
        (Kind::Variable, "PATH", Origin::Always, 1),
    ];
    let prod = [&equal[..], &[(Kind::Variable, "AWS_PROFILE", Origin::CallerEnv, 1)]].concat();
    let more = (Kind::Variable, "AWS_REGION", Origin::CallerEnv, 1);
    let test = [&equal[..], &[(Kind::Variable, "AWS_PROFILE", Origin::CallerEnv, 2), more]].concat();
    let message = "provider `eks`: the plugin `aws` failed with exit code 254: no session\x1b[31m";
    let failing = v1alpha1::CredentialState {
        id: "77aa00112233".into(),
        state: State::Failed.into(),
        expiration_time: None,
        bound: None,
        last_failure: Some(v1::Failure {
            reason: Reason::PluginExit.into(),
            message: message.into(),
            ..v1::Failure::default()
        }),
        failed_attempts: 3,
        rejections: Some(v1alpha1::credential_state::Rejections { rejections: 2, ..Default::default() }),
        next_run_cause: Cause::NextRequest.into(),
        next_run_time: Some(after(12)),
        ..self::message("eks", &test)
    };
    [held("eks", &prod), failing.into()]
}

#[test]
fn the_text_shows_first_what_differs() {
    insta::assert_snapshot!(text(&[&two()], Screen::default(), now()));
}

#[test]
fn the_text_fits_80_columns() {
    let text = text(&[&two()], Screen { size: Some((80, 24)), colors: false }, now());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn one_credential_has_no_marks() {
    let parts = [(Kind::Variable, "PATH", Origin::Always, 1), (Kind::Cluster, "server", Origin::Caller, 1)];
    insta::assert_snapshot!(text(&[&[held("gke", &parts)]], Screen::default(), now()));
}

#[test]
fn a_definition_that_differs_has_its_digest() {
    let held = |digest: &str, number| -> CredentialState {
        let message = message("rel", &[(Kind::Definition, "", Origin::Stanza, number)]);
        v1alpha1::CredentialState { definition: Some(digest.into()), ..message }.into()
    };
    let text = text(&[&[held("0a1b", 1), held("2c3d", 2)]], Screen::default(), now());
    assert!(
        text.contains("* definition  stanza  0a1b\n") && text.contains("* definition  stanza  2c3d\n"),
        "{text}"
    );
}

#[test]
fn json_has_everything() {
    insta::assert_snapshot!(format!("{:#}", document(&[&two()])));
}

#[test]
fn each_cause_and_each_bound_has_a_text() {
    let mut lines = Vec::new();
    for cause in (1..).map_while(|cause| Cause::try_from(cause).ok()) {
        for time in [after(90), after(0)] {
            let (next_run_cause, next_run_time) = (cause.into(), Some(time));
            let message = v1alpha1::CredentialState { next_run_cause, next_run_time, ..message("eks", &[]) };
            let line = next_run(&message.into(), now());
            if lines.last() != Some(&line) {
                lines.push(line);
            }
        }
    }
    for bound in (1..).map_while(|bound| Bound::try_from(bound).ok()) {
        let message = v1alpha1::CredentialState { bound: Some(bound.into()), ..message("eks", &[]) };
        lines.push(head(&message.into(), now()).swap_remove(1));
    }
    assert!(!lines.iter().any(|line| line.contains("this release")), "{lines:?}");
    insta::assert_snapshot!(lines.join("\n"));
}
