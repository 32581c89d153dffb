mod configuration;
mod credentials;

use std::time::Duration;

use credbroker_proto::{Reason, v1, v1alpha1, v1alpha1::credential_state::State};
use prost_types::Timestamp;

use super::*;

const NOW: i64 = 1_800_000_000;

pub(in crate::cli) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.cast_unsigned())
}

fn after(seconds: i64) -> Timestamp {
    Timestamp { seconds: NOW + seconds, nanos: 5 }
}

fn failure(reason: Reason, message: &str) -> v1::Failure {
    v1::Failure { reason: reason.into(), message: message.into(), ..v1::Failure::default() }
}

/// A broker with a credential in each state, and providers without one.
pub(in crate::cli) fn overview() -> Overview {
    let held = |provider: &str, key: &str, state: State, expires: i64, next: i64| v1alpha1::CredentialState {
        provider: provider.into(),
        id: key.into(),
        state: state.into(),
        generation: Some("e-1".into()),
        expiration_time: Some(after(expires)).filter(|_| expires > 0),
        next_refresh_time: Some(after(next)).filter(|_| next > 0),
        watches: 2,
        runs: 12,
        ..v1alpha1::CredentialState::default()
    };
    let mut failed = held("azure", "a2b3c4d5e6f7", State::Failed, 0, 0);
    let message = "provider `azure`: the plugin `/usr/local/bin/kubelogin` exited with code 1: Error: AADSTS700082: \
                   The refresh token has expired\ndue to \x1b[31minactivity";
    failed.last_failure = Some(failure(Reason::PluginExit, message));
    let provider = |name: &str, failure| v1alpha1::ProviderState {
        name: name.into(),
        command: "/usr/bin/plugin".into(),
        failure,
        ..v1alpha1::ProviderState::default()
    };
    let missing = "provider `tsh`: the plugin `tsh` is not installed; install it";
    let configuration = v1alpha1::ConfigurationState {
        read_time: Some(after(-3600)),
        problems: vec![
            "/etc/credbroker/config.yaml:3:5: unknown key `tiemout`; did you mean `timeout`?".into(),
        ],
        problems_since_time: Some(after(-60)),
        ..v1alpha1::ConfigurationState::default()
    };
    let broker = v1alpha1::GetBrokerInfoResponse {
        version: "0.1.0".into(),
        commit: Some("3f2a9c1d00".into()),
        start_time: Some(after(-3 * 3600)),
        config_files: vec!["/etc/credbroker/config.yaml".into(), "/home/me/.kube/config".into()],
        sockets: vec!["/run/credbroker/credbroker.sock".into()],
        hub: Some(v1::HubState { synced: true, failure: None, since_time: Some(after(-600)) }),
        configuration: Some(configuration),
    };
    let cluster = "arn:aws:eks:eu-central-1:123456789012:cluster/production";
    Overview {
        broker: broker.into(),
        providers: vec![
            provider("azure", None).into(),
            provider(cluster, None).into(),
            provider("gke", None).into(),
            provider("oci", None).into(),
            provider("tsh", Some(failure(Reason::PluginNotFound, missing))).into(),
        ],
        credentials: vec![
            held(cluster, "0123456789ab", State::Valid, 840, 420).into(),
            failed.into(),
            held("gke", "b2b3c4d5e6f7", State::Refreshing, 90, 0).into(),
        ],
    }
}

fn at(width: usize) -> String {
    text(&overview(), Screen { size: Some((width, 24)), colors: false }, now())
}

#[test]
fn the_text_fits_terminals_of_80_and_40_columns() {
    for width in [40, 80] {
        let text = at(width);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        insta::assert_snapshot!(format!("{width}_columns"), text);
    }
}

#[test]
fn the_text_for_a_pipe_is_whole() {
    insta::assert_snapshot!(text(&overview(), Screen::default(), now()));
}

#[test]
fn colours_change_no_text() {
    let colored = text(&overview(), Screen { size: Some((80, 24)), colors: true }, now());
    assert!(
        colored.contains("\x1b[31mfailed\x1b[0m") && colored.contains("\x1b[32mvalid\x1b[0m"),
        "{colored:?}"
    );
    let plain = ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"];
    assert_eq!(plain.iter().fold(colored, |text, code| text.replace(code, "")), at(80));
}

#[test]
fn json_has_everything_and_one_format_of_times() {
    insta::assert_snapshot!(format!("{:#}", document(&overview())));
}

#[test]
fn what_has_failed_is_noticed() {
    assert!(overview().has_failed());
    let mut good = overview();
    good.credentials.retain(|held| held.provider != "azure");
    good.providers.retain(|provider| provider.name != "tsh");
    good.broker.configuration = None;
    assert!(!good.has_failed());
    let hub =
        v1::HubState { synced: true, failure: Some(failure(Reason::HubUnavailable, "no")), since_time: None };
    let with_hub =
        v1alpha1::GetBrokerInfoResponse { hub: Some(hub), ..v1alpha1::GetBrokerInfoResponse::default() };
    assert!(Overview { broker: with_hub.into(), ..good }.has_failed());
}
