use super::hub::*;
use super::*;
use serde_json::json;

/// A profile whose only provider has this cluster.
fn with_cluster(cluster: &Value) -> Value {
    let mut profile = profile("p");
    profile["status"] = json!({"accessProviders": [{"name": "p", "cluster": cluster}]});
    profile
}

fn with_extension(extension: &Value) -> Value {
    with_cluster(&json!({"server": "https://x", "extensions": [{"name": "e", "extension": extension}]}))
}

/// Sends spec and status as a client does, by two requests, and returns the answer to the status.
async fn report(server: &ApiServer, body: &Value) -> (u16, Value) {
    if server.object(Collection::ClusterProfiles, "fleet", "p").is_none() {
        let mut created = body.clone();
        created["metadata"] = json!({"name": "p"});
        let (status, refused) = ask(server, "POST", OF_FLEET, &created).await;
        if status != 201 {
            return (status, refused);
        }
    }
    ask(server, "PATCH", &format!("{OF_FLEET}/p/status"), &json!({"status": body["status"]})).await
}

#[tokio::test]
async fn what_the_schema_forbids_is_invalid() {
    let server = hub();
    let access = "status.accessProviders[0]";
    let condition = json!({
        "type": "Joined", "status": "Maybe", "reason": "", "message": "m", "lastTransitionTime": "yesterday",
    });
    let table = [
        (json!({}), vec!["spec".to_owned()]),
        (json!({"spec": {}}), vec!["spec.clusterManager".to_owned()]),
        (json!({"spec": {"clusterManager": {"name": 1}}}), vec!["spec.clusterManager.name".to_owned()]),
        (json!({"spec": null}), vec!["spec".to_owned()]),
        (with_extension(&json!(["a"])), vec![format!("{access}.cluster.extensions[0].extension")]),
        (with_extension(&json!("a")), vec![format!("{access}.cluster.extensions[0].extension")]),
        (with_extension(&Value::Null), vec![format!("{access}.cluster.extensions[0].extension")]),
        (with_cluster(&json!({})), vec![format!("{access}.cluster.server")]),
        (with_cluster(&json!(null)), vec![format!("{access}.cluster")]),
        (
            with_cluster(
                &json!({"server": 1, "disable-compression": "no", "certificate-authority-data": "%"}),
            ),
            vec![
                format!("{access}.cluster.certificate-authority-data"),
                format!("{access}.cluster.disable-compression"),
                format!("{access}.cluster.server"),
            ],
        ),
        (
            json!({"spec": {"clusterManager": {"name": "m"}}, "status": {"credentialProviders": {"a": 1}}}),
            vec!["status.credentialProviders".to_owned()],
        ),
        (
            json!({"spec": {"clusterManager": {"name": "m"}}, "status": {"conditions": [condition]}}),
            ["lastTransitionTime", "reason", "status"].map(|f| format!("status.conditions[0].{f}")).into(),
        ),
        (
            json!({"spec": {"clusterManager": {"name": "m"}}, "status": {
                "properties": [{"name": "a".repeat(254), "value": "v"}], "version": "1",
            }}),
            vec!["status.properties[0].name".to_owned(), "status.version".to_owned()],
        ),
    ];
    for (body, fields) in table {
        let (status, refused) = report(&server, &body).await;
        assert_eq!((status, &refused["reason"]), (422, &json!("Invalid")), "{body}");
        let causes = refused["details"]["causes"].as_array().unwrap();
        let named: Vec<_> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
        assert_eq!(named, fields, "{refused}");
    }
}

#[tokio::test]
async fn an_array_for_an_extension_is_refused_in_a_real_servers_words() {
    let server = hub();
    let (_, refused) = report(&server, &with_extension(&json!([]))).await;
    let field = "status.accessProviders[0].cluster.extensions[0].extension";
    let expected = format!(
        r#"ClusterProfile.multicluster.x-k8s.io "p" is invalid: {field}: Invalid value: "array": {field} in body must be of type object: "array""#
    );
    assert_eq!(refused["message"], expected);
    assert_eq!(refused["details"]["causes"][0]["reason"], "FieldValueTypeInvalid");
}

#[tokio::test]
async fn unknown_fields_are_pruned_except_below_an_extension() {
    let server = hub();
    let mut body = with_extension(&json!({"any": {"thing": [1, null]}}));
    body["spec"]["unknown"] = json!(1);
    body["extra"] = json!(1);
    body["status"]["accessProviders"][0]["cluster"]["tls_server_name"] = json!("x");
    let (status, stored) = report(&server, &body).await;
    assert_eq!(status, 200);
    assert_eq!(stored["spec"], json!({"clusterManager": {"name": "m"}, "displayName": "p"}));
    assert_eq!(stored.get("extra"), None);
    assert_eq!(stored["status"], with_extension(&json!({"any": {"thing": [1, null]}}))["status"]);
}

#[tokio::test]
async fn the_cluster_manager_stays() {
    let server = hub();
    server.apply_cluster_profile("fleet", "p", profile("p"));
    let patch = json!({"spec": {"clusterManager": {"name": "another"}}});
    let (status, refused) = ask(&server, "PATCH", &format!("{OF_FLEET}/p"), &patch).await;
    assert_eq!(status, 422);
    assert!(refused["message"].as_str().unwrap().ends_with("ClusterManager is immutable"), "{refused}");
}

#[tokio::test]
async fn what_a_test_puts_in_itself_may_be_anything() {
    let server = hub();
    let body = with_extension(&json!(["a"]));
    server.put_unchecked("fleet", "p", body.clone());
    server.put_unchecked("fleet", "q", json!({"spec": 3, "kind": ["x"]}));
    let (_, list) = read(&server, PROFILES).await;
    assert_eq!(names(&list), ["p", "q"]);
    assert_eq!(list["items"][0]["status"], body["status"]);
    assert_eq!((&list["items"][1]["spec"], &list["items"][1]["kind"]), (&json!(3), &json!(["x"])));
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(
        ask(&server, "PATCH", &format!("{OF_FLEET}/p"), &patch).await.0,
        200,
        "the status is not judged"
    );
}

#[test]
#[should_panic(
    expected = "status.accessProviders[0].cluster.extensions[0].extension in body must be of type object"
)]
fn a_profile_that_a_real_server_would_refuse_ends_its_test() {
    hub().apply_cluster_profile("fleet", "p", with_extension(&json!([])));
}
