use kube::{core::Status, runtime::watcher};

use super::*;

fn refused(code: u16) -> HubError {
    let status = Status { code, message: "no".to_owned(), ..Status::default() };
    HubError::Watch(watcher::Error::InitialListFailed(kube::Error::Api(status.boxed())))
}

#[test]
fn only_a_401_is_unauthorized() {
    assert_eq!(refused(401).code(), Some(401));
    let begun = watcher::Error::WatchError(Status { code: 401, ..Status::default() }.boxed());
    assert_eq!(HubError::Watch(begun).code(), Some(401));
    for other in [refused(403), refused(410), refused(500), HubError::OtherPlugin] {
        assert_ne!(other.code(), Some(401), "{other:?}");
    }
}

#[test]
fn a_problem_is_one_short_line_with_each_cause_once() {
    let line = refused(403).line();
    assert!(line.starts_with("the ClusterProfiles cannot be read: "), "{line}");
    assert_eq!(line.matches("ApiError").count(), 1, "{line}");
    let message = format!("\u{1b}[31mred\nsecond {}", "x".repeat(1_000));
    let status = Status { code: 500, message, ..Status::default() };
    let line = HubError::Watch(watcher::Error::WatchFailed(kube::Error::Api(status.boxed()))).line();
    assert!(line.contains("U+001B[31mred second") && !line.contains(char::is_control), "{line}");
    assert_eq!(line.chars().count(), LONGEST);
}
