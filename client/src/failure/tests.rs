use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use super::*;

fn decoded(details: ErrorDetails) -> (Failure, bool) {
    let status = Status::with_error_details(tonic::Code::Unavailable, "m", details);
    Failure::decode(Code::Unavailable, "m", status.details())
}

fn plain() -> Failure {
    Failure::new(Code::Unavailable, "m")
}

#[test]
fn reason_metadata_and_retry_time_are_read_among_other_details() {
    let mut details = ErrorDetails::with_debug_info(["x".to_owned()], "y");
    let metadata = [(PROVIDER, "p"), (CLUSTER, "c/p"), (ID, "k"), (LIMIT, "l")];
    let metadata = metadata.map(|(name, value)| (name.to_owned(), value.to_owned()));
    details.set_error_info("PLUGIN_EXIT", DOMAIN, HashMap::from(metadata));
    details.set_retry_info(Some(Duration::from_millis(1500)));
    let retry_after = Some(Duration::from_millis(1500));
    let reason = Some(Reason::PluginExit);
    let text = |text: &str| Some(text.to_owned());
    let (provider, cluster_profile) = (text("p"), text("c/p"));
    let (id, limit) = (text("k"), text("l"));
    let expected = Failure { reason, retry_after, provider, cluster_profile, id, limit, ..plain() };
    assert_eq!(decoded(details), (expected, true));
}

#[test]
fn an_unknown_reason_is_ours_and_one_of_another_domain_is_not() {
    let with = |reason, domain| decoded(ErrorDetails::with_error_info(reason, domain, HashMap::new()));
    assert_eq!(with("A_LATER_REASON", DOMAIN), (plain(), true));
    assert_eq!(with("PLUGIN_EXIT", "example.com"), (plain(), false));
}

#[test]
fn other_bytes_are_ignored() {
    for bytes in [&b""[..], b"\xff\xff\xff", b"\x1a\x03abc"] {
        assert_eq!(Failure::decode(Code::Unavailable, "m", bytes), (plain(), false));
    }
}
