use super::hub::*;
use super::*;
use serde_json::json;

#[tokio::test]
async fn all_pages_show_what_was_there_at_the_first() {
    let server = hub();
    for (namespace, name) in [("a", "1"), ("a", "2"), ("b", "1"), ("b", "3"), ("c", "5")] {
        server.apply_cluster_profile(namespace, name, profile("first"));
    }
    let (_, first) = read(&server, &format!("{PROFILES}?limit=2")).await;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["1", "2"], &json!(3)));

    server.delete_cluster_profile("b", "1");
    server.apply_cluster_profile("b", "2", profile("late"));
    server.apply_cluster_profile("b", "3", profile("late"));
    let page = |after: &Value| {
        format!("{PROFILES}?limit=2&continue={}", after["metadata"]["continue"].as_str().unwrap())
    };
    let (_, second) = read(&server, &page(&first)).await;
    assert_eq!(names(&second), ["1", "3"]);
    assert_eq!(second["items"][1]["spec"]["displayName"], "first");
    let (_, third) = read(&server, &page(&second)).await;
    assert_eq!(names(&third), ["5"]);
    assert_eq!(third["metadata"].get("continue"), None);
    assert_eq!(revision(&third), revision(&first));
    assert_eq!(server.lists(Collection::ClusterProfiles), 3);

    server.compact();
    let (status, gone) = read(&server, &page(&first)).await;
    assert_eq!((status, &gone["reason"], &gone["code"]), (410, &json!("Expired"), &json!(410)));
    assert_eq!(names(&read(&server, PROFILES).await.1), ["1", "2", "2", "3", "5"]);
}

#[tokio::test]
async fn a_list_is_of_one_namespace_or_of_all() {
    let server = hub();
    for (namespace, name) in [("fleet", "b"), ("fleet", "a"), ("other", "c")] {
        server.apply_cluster_profile(namespace, name, profile("d"));
    }
    assert_eq!(names(&read(&server, OF_FLEET).await.1), ["a", "b"]);
    assert_eq!(names(&read(&server, PROFILES).await.1), ["a", "b", "c"]);
    for query in ["limit=many", "continue=x"] {
        assert_eq!(read(&server, &format!("{PROFILES}?{query}")).await.0, 400, "{query}");
    }
    assert_eq!(server.requests()[2].query, "limit=many");
}

#[tokio::test]
async fn a_list_is_the_newest_and_never_from_the_future() {
    let server = hub();
    server.apply_cluster_profile("fleet", "a", profile("a"));
    let old = revision(&read(&server, PROFILES).await.1);
    server.apply_cluster_profile("fleet", "b", profile("b"));
    for query in ["resourceVersion=0".to_owned(), format!("resourceVersion={old}")] {
        assert_eq!(names(&read(&server, &format!("{PROFILES}?{query}")).await.1), ["a", "b"], "{query}");
    }
    let (status, refused) = read(&server, &format!("{PROFILES}?resourceVersion={}", old + 1000)).await;
    assert_eq!((status, &refused["reason"]), (504, &json!("Timeout")));
}

#[tokio::test]
async fn discovery_names_every_collection() {
    let server = hub();
    let (_, groups) = read(&server, "/apis").await;
    assert_eq!(groups["groups"][0]["preferredVersion"]["groupVersion"], "multicluster.x-k8s.io/v1alpha1");
    let resources = async |path: &str| {
        let (_, list) = read(&server, path).await;
        let resources = list["resources"].as_array().unwrap();
        resources.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let hub = resources("/apis/multicluster.x-k8s.io/v1alpha1").await;
    assert_eq!(hub, ["clusterprofiles"]);
    assert_eq!(resources("/api/v1").await, ["configmaps", "secrets", "pods"]);
}

#[tokio::test]
async fn a_secret_is_read_and_listed_as_it_was_put() {
    let server = hub();
    server.put_secret("fleet", "prod", &[("token", b"s3cret"), ("ca.crt", b"\xff\x00")]);
    let (_, secret) = read(&server, "/api/v1/namespaces/fleet/secrets/prod").await;
    assert_eq!(secret["data"], json!({"token": "czNjcmV0", "ca.crt": "/wA="}));
    assert_eq!(names(&read(&server, "/api/v1/namespaces/fleet/secrets").await.1), ["prod"]);
    assert_eq!(read(&server, "/api/v1/namespaces/other/secrets/prod").await.0, 404);
}
