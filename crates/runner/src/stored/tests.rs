use std::{fs, os::unix::fs::PermissionsExt as _};

use credbroker_credential::{LifetimeBound, PairError};
use credbroker_test_support::{Accepts, ApiServer, private_directory, private_file};

use super::*;

fn token(value: StoredValue) -> StoredCredential {
    StoredCredential { token: Some(value), pair: None }
}

fn inline(text: &str) -> StoredValue {
    StoredValue::Inline(text.into())
}

fn read_token(value: StoredValue) -> Result<String, StoredError> {
    Ok(decoded(&token(value))?.material.token().unwrap().to_owned())
}

#[test]
fn a_token_is_the_text_in_the_kubeconfig_or_in_its_file_without_white_space() {
    let dir = private_directory();
    let path = dir.path().join("token");
    private_file(&path, "  abc\n");
    assert_eq!(read_token(StoredValue::File(path.clone())).unwrap(), "abc");
    private_file(&path, "def");
    assert_eq!(read_token(StoredValue::File(path.clone())).unwrap(), "def", "it is read again");
    assert_eq!(read_token(inline("ghi")).unwrap(), "ghi");
    let blank = read_token(inline("ghi\n")).unwrap_err();
    assert!(matches!(blank, StoredError::Invalid(DecodeError::TokenBlank(_))), "{blank}");
    private_file(&path, " \n");
    assert!(matches!(read_token(StoredValue::File(path)).unwrap_err(), StoredError::Empty(_)));
}

#[test]
fn a_file_that_others_can_change_or_that_cannot_be_read_is_refused() {
    let dir = private_directory();
    let path = dir.path().join("token");
    let of = |path: &Path| read_token(StoredValue::File(path.to_owned())).unwrap_err();
    assert!(matches!(of(&path), StoredError::Unreadable(..)), "it does not exist");
    assert!(matches!(of(dir.path()), StoredError::Unreadable(..)), "a directory");
    private_file(&path, "abc");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let error = of(&path);
    assert!(matches!(error, StoredError::Untrusted(..)), "{error}");
    let shown = error.to_string().replace(&dir.path().display().to_string(), "DIR");
    insta::assert_snapshot!(shown);
    private_file(&path, &"a".repeat(1 + (1 << 20)));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(of(&path), StoredError::Unreadable(..)), "too large");
}

#[test]
fn a_certificate_needs_its_own_key() {
    let server = ApiServer::start(Accepts::Either);
    let pair = |name| server.issue_client_certificate(name, Duration::from_secs(3600));
    let ((chain, key), (_, other)) = (pair("one"), pair("two"));
    let of = |key: &str| StoredCredential {
        token: Some(inline("abc")),
        pair: Some([inline(&chain), inline(key)]),
    };
    let found = decoded(&of(&key)).unwrap();
    assert_eq!(found.material.token(), Some("abc"));
    assert_eq!(found.material.pem().unwrap()[1], key.as_bytes());
    let error = decoded(&of(&other)).unwrap_err();
    assert!(matches!(error, StoredError::Invalid(DecodeError::Pair(PairError::KeyMismatch))), "{error}");
    let limits = credbroker_credential::LifetimeLimits { max_age: None, unknown_expiry_max_age: READ };
    let lifetime = credbroker_credential::lifetime(
        &found,
        limits,
        credbroker_observe::clock::Clock::now(&credbroker_observe::clock::SystemClock).wall,
    )
    .unwrap();
    assert_eq!(lifetime.bound, LifetimeBound::NotAfter);
}
