use super::hub::*;
use super::*;
use serde_json::json;

fn sent(name: &str) -> Value {
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "metadata": {"name": name},
        "spec": {"clusterManager": {"name": "m"}}, "status": {"version": {"kubernetes": "1"}},
    })
}

#[tokio::test]
async fn the_status_is_written_by_its_subresource_alone() {
    let server = hub();
    let (status, created) = ask(&server, "POST", OF_FLEET, &sent("a")).await;
    assert_eq!((status, created.get("status")), (201, None));
    assert_eq!(created["metadata"]["generation"], 1);
    let (one, its_status) = (format!("{OF_FLEET}/a"), format!("{OF_FLEET}/a/status"));

    let patch = json!({"spec": {"displayName": "x"}, "status": {"version": {"kubernetes": "2"}}});
    let (_, reported) = ask(&server, "PATCH", &its_status, &patch).await;
    assert_eq!(reported["status"]["version"]["kubernetes"], "2");
    assert_eq!(reported["spec"].get("displayName"), None);
    assert_eq!(reported["metadata"]["generation"], 1, "a status is not wanted but observed");

    let (_, wanted) =
        ask(&server, "PATCH", &one, &json!({"spec": {"displayName": "x"}, "status": null})).await;
    assert_eq!((&wanted["spec"]["displayName"], &wanted["metadata"]["generation"]), (&json!("x"), &json!(2)));
    assert_eq!(wanted["status"], reported["status"]);

    let mut put = wanted.clone();
    put["status"] = json!({"version": {"kubernetes": "3"}});
    put["spec"]["displayName"] = json!("y");
    let (_, put) = ask(&server, "PUT", &its_status, &put).await;
    assert_eq!(
        (&put["status"]["version"]["kubernetes"], &put["spec"]["displayName"]),
        (&json!("3"), &json!("x"))
    );
    for same in ["uid", "creationTimestamp"] {
        assert_eq!(put["metadata"][same], created["metadata"][same]);
    }
    assert_eq!(read(&server, &one).await.1, put);
    assert_eq!(server.object(Collection::ClusterProfiles, "fleet", "a"), Some(put));
}

#[tokio::test]
async fn an_update_loses_against_one_that_came_in_between() {
    let server = hub();
    let (_, created) = ask(&server, "POST", OF_FLEET, &sent("a")).await;
    let one = format!("{OF_FLEET}/a");
    assert_eq!(ask(&server, "PUT", &one, &created).await.0, 200);
    ask(&server, "PATCH", &one, &json!({"spec": {"displayName": "x"}})).await;
    let (status, conflict) = ask(&server, "PUT", &one, &created).await;
    assert_eq!((status, &conflict["reason"]), (409, &json!("Conflict")));
    assert_eq!(ask(&server, "PUT", &one, &sent("a")).await.0, 422, "without a version");
    let (status, exists) = ask(&server, "POST", OF_FLEET, &sent("a")).await;
    assert_eq!((status, &exists["reason"]), (409, &json!("AlreadyExists")));
}

#[tokio::test]
async fn a_deleted_object_comes_back_as_another() {
    let server = hub();
    let one = format!("{OF_FLEET}/a");
    let (_, first) = ask(&server, "POST", OF_FLEET, &sent("a")).await;
    let (status, deleted) = ask(&server, "DELETE", &one, &Value::Null).await;
    assert_eq!((status, &deleted["status"]), (200, &json!("Success")));
    let (status, gone) = read(&server, &one).await;
    assert_eq!((status, &gone["reason"], &gone["details"]["name"]), (404, &json!("NotFound"), &json!("a")));
    assert_eq!(ask(&server, "DELETE", &one, &Value::Null).await.0, 404);
    assert_eq!(ask(&server, "PATCH", &one, &json!({})).await.0, 404);
    let (_, second) = ask(&server, "POST", OF_FLEET, &sent("a")).await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
}

#[tokio::test]
async fn what_cannot_be_understood_is_a_bad_request() {
    let server = hub();
    let mut elsewhere = sent("a");
    elsewhere["metadata"]["namespace"] = json!("other");
    let mut kind = sent("a");
    kind["kind"] = json!("ConfigMap");
    let mut labels = sent("a");
    labels["metadata"]["labels"] = json!({"a": 1});
    for body in [json!([]), json!("x"), elsewhere, kind, labels] {
        assert_eq!(ask(&server, "POST", OF_FLEET, &body).await.0, 400, "{body}");
    }
    for (method, path) in
        [("POST", format!("{OF_FLEET}/a")), ("POST", PROFILES.to_owned()), ("PUT", OF_FLEET.to_owned())]
    {
        assert_eq!(ask(&server, method, &path, &sent("a")).await.0, 405, "{method} {path}");
    }
}
