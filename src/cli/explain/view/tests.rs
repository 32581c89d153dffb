use credbroker_proto::{
    Reason,
    v1::{self, credential_lifetime::Bound, credential_state::State, key_part, next_run::Cause},
};
use prost_types::Timestamp;

use super::*;
use crate::cli::explain::json::document;

const NOW: i64 = 1_800_000_000;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.cast_unsigned())
}

fn after(seconds: i64) -> Timestamp {
    Timestamp { seconds: NOW + seconds, nanos: 5 }
}

/// Kind, name, origin and fingerprint of a part.
type Part = (&'static str, &'static str, &'static str, &'static str);

fn part((kind, name, origin, fingerprint): Part) -> v1::KeyPart {
    let kind = match kind {
        "provider" => key_part::Kind::Provider,
        "arg" => key_part::Kind::Argument,
        "env" => key_part::Kind::Variable,
        "cluster" => key_part::Kind::Cluster,
        other => panic!("{other}"),
    };
    let origin = match origin {
        "stanza" => key_part::Origin::Stanza,
        "always" => key_part::Origin::Always,
        "passEnv" => key_part::Origin::PassEnv,
        "callerEnv" => key_part::Origin::CallerEnv,
        "caller" => key_part::Origin::Caller,
        other => panic!("{other}"),
    };
    let value = (kind == key_part::Kind::Provider).then(|| name.to_owned());
    let name = if value.is_some() { String::new() } else { name.to_owned() };
    v1::KeyPart { kind: kind.into(), name, origin: origin.into(), fingerprint: fingerprint.into(), value }
}

fn message(provider: &str, parts: &[Part]) -> v1::CredentialExplanation {
    let state = v1::CredentialState {
        provider: provider.into(),
        key: "3fa8c21b9e04".into(),
        state: State::Valid.into(),
        expiration_time: Some(after(2_520)),
        ..v1::CredentialState::default()
    };
    v1::CredentialExplanation {
        state: Some(state),
        key_parts: parts.iter().copied().map(part).collect(),
        lifetime: Some(v1::CredentialLifetime {
            fetch_time: Some(after(-1_080)),
            lifetime: Some(prost_types::Duration { seconds: 3_600, nanos: 0 }),
            bound: Bound::TokenExp.into(),
        }),
        next_run: Some(v1::NextRun { cause: Cause::RefreshPoint.into(), time: Some(after(1_900)) }),
    }
}

/// A credential of `provider` whose key has these parts.
pub(in crate::cli::explain) fn explained(provider: &str, parts: &[Part]) -> CredentialExplanation {
    message(provider, parts).into()
}

/// Two credentials of `eks`, for two profiles of callers, of which one has a variable more.
fn two() -> [CredentialExplanation; 2] {
    let equal = [
        ("provider", "eks", "stanza", "aaaaaaaaaaaaaaaa"),
        ("arg", "1", "stanza", "bbbbbbbbbbbbbbbb"),
        ("env", "PATH", "always", "cccccccccccccccc"),
    ];
    let prod = [&equal[..], &[("env", "AWS_PROFILE", "callerEnv", "1111111111111111")]].concat();
    let more = ("env", "AWS_REGION", "callerEnv", "2222222222222222");
    let test = [&equal[..], &[("env", "AWS_PROFILE", "callerEnv", "3333333333333333"), more]].concat();
    let mut failing = message("eks", &test);
    let state = failing.state.as_mut().unwrap();
    (state.key, state.state) = ("77aa00112233".into(), State::Failed.into());
    state.failed_attempts = 3;
    let message = "provider `eks`: the plugin `aws` failed with exit code 254: no session\x1b[31m";
    state.last_failure =
        Some(v1::Failure { reason: Reason::PluginExit.into(), message: message.into(), retry_after: None });
    state.rejections = Some(v1::credential_state::Rejections {
        rejections: 2,
        ..v1::credential_state::Rejections::default()
    });
    failing.lifetime = None;
    failing.next_run = Some(v1::NextRun { cause: Cause::NextRequest.into(), time: Some(after(12)) });
    [explained("eks", &prod), failing.into()]
}

#[test]
fn the_text_shows_first_what_differs() {
    insta::assert_snapshot!(text(&two(), None, Screen::default(), now()));
}

#[test]
fn the_text_fits_80_columns_and_has_the_values_of_this_process() {
    let own: Environment = [("AWS_PROFILE", "prod"), ("PATH", "/bin:/usr/bin")].into_iter().collect();
    let text = text(&two(), Some(&own), Screen { size: Some((80, 24)), colors: false }, now());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn one_credential_has_no_marks() {
    let parts =
        [("env", "PATH", "always", "cccccccccccccccc"), ("cluster", "server", "caller", "dddddddddddddddd")];
    insta::assert_snapshot!(text(&[explained("gke", &parts)], None, Screen::default(), now()));
}

#[test]
fn json_has_everything() {
    let own: Environment = [("AWS_PROFILE", "prod")].into_iter().collect();
    insta::assert_snapshot!(format!("{:#}", document(&two(), Some(&own))));
    let text = document(&two(), None).to_string();
    assert!(!text.contains("ownValue") && !text.contains("prod"), "{text}");
}

#[test]
fn each_cause_and_each_bound_has_a_text() {
    let mut lines = Vec::new();
    for cause in (1..=11).map(|cause| Cause::try_from(cause).unwrap()) {
        for time in [after(90), after(0)] {
            let next_run = Some(v1::NextRun { cause: cause.into(), time: Some(time) });
            let message = v1::CredentialExplanation { next_run, ..message("eks", &[]) };
            let line = next_run_line(&message.into());
            if lines.last() != Some(&line) {
                lines.push(line);
            }
        }
    }
    for bound in (1..=6).map(|bound| Bound::try_from(bound).unwrap()) {
        let mut message = message("eks", &[]);
        message.lifetime.as_mut().unwrap().bound = bound.into();
        lines.push(head(&message.into(), now()).swap_remove(1));
    }
    assert!(!lines.iter().any(|line| line.contains("this release")), "{lines:?}");
    insta::assert_snapshot!(lines.join("\n"));
}

fn next_run_line(explained: &CredentialExplanation) -> String {
    next_run(explained, now())
}
