//! Requests and their answers.

use http::StatusCode;

use crate::setting::Setting;

#[tokio::test]
async fn a_request_is_forwarded_with_the_credential_of_its_target() {
    let setting = Setting::with_token();
    let answer = setting.get("/version").await;
    assert_eq!(answer.status(), StatusCode::OK, "{answer:?}");
    let seen = setting.api.requests().pop().unwrap();
    assert_eq!((seen.token.as_deref(), &*seen.path), (Some("token-1"), "/version"));
}
