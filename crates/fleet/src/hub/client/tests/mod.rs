mod bounds;

use super::*;
use secrecy::ExposeSecret as _;

#[test]
fn impersonation_is_kept_with_a_credential_of_the_plugin() {
    let of_file = AuthInfo {
        impersonate: Some("reader".into()),
        impersonate_groups: Some(vec!["fleet".into()]),
        token_file: Some("/elsewhere".into()),
        ..AuthInfo::default()
    };
    let issued = credbroker_credential::testing::with_token("t");
    let auth = auth_info(&issued, of_file);
    assert_eq!(auth.impersonate.as_deref(), Some("reader"));
    assert_eq!(auth.impersonate_groups, Some(vec!["fleet".to_owned()]));
    assert_eq!(auth.token.unwrap().expose_secret(), "t");
    assert!(auth.token_file.is_none(), "the credential is the plugin's alone");
}
