use std::time::Duration;

use std::ffi::OsStr;

use credbroker_client::{Error as ClientError, Failure as BrokerFailure, Socket, SocketSources};
use credbroker_proto::Reason;

use super::*;

fn gke() -> Source {
    Source::Provider { name: "gke".into(), definition: None }
}

#[test]
fn a_failed_plugin_is_one_line_with_provider_cause_reason_and_when_to_try_again() {
    let message = "plugin `gke` failed (exit code 3):\n  \x1b[31mno session\x1b[0m\r\n";
    let mut answer = BrokerFailure::new(Code::Unavailable, message);
    answer.reason = Some(Reason::PluginExit);
    answer.retry_after = Some(Duration::from_secs(4));
    let failure = Failure::from(ClientError::from(answer));
    assert_eq!(
        failure.line(Some(&gke())),
        "provider gke: plugin `gke` failed (exit code 3): [31mno session [0m (PLUGIN_EXIT); try again in 4 s"
    );
    assert_eq!(failure.exit_code(), 1);
}

#[test]
fn a_name_that_hides_or_reorders_text_is_made_visible() {
    let source = Source::Provider { name: "gke\u{202e}\u{200b}".into(), definition: None };
    let failure =
        Failure::from(ClientError::from(BrokerFailure::new(Code::NotFound, "no\u{2066} such provider")));
    assert_eq!(failure.line(Some(&source)), "provider gke\u{fffd}\u{fffd}: no\u{fffd} such provider");
}

#[test]
fn a_provider_that_the_broker_names_is_named_once() {
    let said = |message: &str| {
        let failure = ClientError::from(BrokerFailure::new(Code::Unavailable, message));
        Failure::from(failure).line(Some(&gke()))
    };
    assert_eq!(said("provider `gke`: it failed"), "provider `gke`: it failed");
    let login = "run `credbroker login gke`: provider `gke`: it failed";
    assert_eq!(said(login), login);
    assert_eq!(said("provider `gke2`: it failed"), "provider gke: provider `gke2`: it failed");
}

#[test]
fn a_request_that_is_too_large_says_what_is_in_it() {
    let failure = Failure::from(ClientError::from(BrokerFailure::new(Code::OutOfRange, "too large")));
    let line = failure.line(Some(&gke()));
    assert!(line.starts_with("provider gke: too large; the cluster's data and the variables"), "{line}");
}

#[test]
fn no_broker_says_where_it_was_looked_for_and_how_to_start_it() {
    let failure = Failure::from(ClientError::Unreachable {
        socket: Socket::at("/run/x.sock"),
        source: Arc::new(io::Error::from_raw_os_error(2)),
    });
    let line = failure.line(Some(&gke()));
    assert!(
        line.starts_with(
            "provider gke: no broker answers on /run/x.sock: No such file or directory (os error 2); start"
        ),
        "{line}"
    );
    assert!(
        line.contains("credbroker serve") && line.contains("credbroker setup") && line.contains("--socket")
    );
    assert_eq!(failure.exit_code(), 69);
}

#[test]
fn a_wrong_socket_is_usage_from_a_flag_and_configuration_from_a_variable() {
    let value = Some(OsStr::new("tcp://x"));
    let code = |sources: SocketSources<'_>| Failure::from(Socket::locate(&sources).unwrap_err()).exit_code();
    let sources = SocketSources::new();
    assert_eq!((code(sources.flag(value)), code(sources.variable(value))), (2, 78));
}
