//! Contexts of kubeconfigs as targets.

use http::{Request, StatusCode};
use http_body_util::Full;

use crate::{
    broker::issued,
    setting::{Setting, cluster},
};

const DIGEST: &str = "0123456789abcdef0123456789abcdef01234567";

#[tokio::test]
async fn a_context_is_found_by_its_name_and_the_beginning_of_its_digest() {
    let setting = Setting::with_token();
    setting.broker.enlist_context(
        "Prod_EU",
        DIGEST,
        issued("1", None, Some("token-1")),
        cluster(&setting.api),
    );
    let get = async |path: &str| {
        let request = Request::get(format!("/contexts/{path}/version")).header("host", "127.0.0.1");
        setting.send(request.body(Full::default()).unwrap()).await.status()
    };
    assert_eq!(get("prod-eu-0123456789ab").await, StatusCode::OK);
    assert_eq!(get("dev-0123456789ab").await, StatusCode::FORBIDDEN, "the name of another one");
    assert_eq!(get("prod-eu-0123456789ac").await, StatusCode::FORBIDDEN);
    let targets = setting.proxy.targets(&setting.caller).await;
    let targets: Vec<_> = targets.iter().map(credbroker_proxy::KnownTarget::path).collect();
    assert_eq!(targets, ["/clusters/fleet/paris", "/contexts/prod-eu-0123456789ab"]);
    // Another context with the same beginning: no guess.
    let twin = format!("{}{}", &DIGEST[..39], 'f');
    setting.broker.enlist_context(
        "Prod_EU",
        &twin,
        issued("1", None, Some("token-1")),
        cluster(&setting.api),
    );
    let refused = async { while get("prod-eu-0123456789ab").await != StatusCode::FORBIDDEN {} };
    tokio::time::timeout(crate::setting::SOON, refused).await.unwrap();
}
