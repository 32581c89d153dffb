use super::*;

/// Verb, group, version, namespace, resource, subresource and name, as far as they are set.
fn shown(method: &str, target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let info = match RequestInfo::of(method, path, query) {
        Ok(info) => info,
        Err(why) => return why.to_string(),
    };
    if !info.is_resource {
        return format!("{} {}", info.verb, info.path);
    }
    let fields = [
        ("group", info.api_group),
        ("namespace", info.namespace),
        ("resource", info.resource),
        ("subresource", info.subresource),
        ("name", info.name),
        ("fields", info.field_selector),
        ("labels", info.label_selector),
    ];
    let set = fields.iter().filter(|(_, value)| !value.is_empty());
    set.fold(format!("{} {}", info.verb, info.api_version), |line, (name, value)| {
        format!("{line} {name}={value}")
    })
}

/// From `requestinfo_test.go` and the documentation of `NewRequestInfo`.
#[test]
fn a_request_is_read_as_the_api_server_reads_it() {
    let cases = [
        ("GET", "/", "get /"),
        ("GET", "/healthz", "get /healthz"),
        ("POST", "/api", "post /api"),
        ("GET", "/api/v1", "get /api/v1"),
        ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
        ("GET", "/openapi/v3/apis/apps/v1", "get /openapi/v3/apis/apps/v1"),
        ("GET", "/api/v1/namespaces", "list v1 resource=namespaces"),
        ("GET", "/api/v1/namespaces/a", "get v1 namespace=a resource=namespaces name=a"),
        (
            "PUT",
            "/api/v1/namespaces/a/finalize",
            "update v1 namespace=a resource=namespaces subresource=finalize name=a",
        ),
        ("GET", "/api/v1/namespaces/a/pods", "list v1 namespace=a resource=pods"),
        ("HEAD", "/api/v1/namespaces/a/pods/x", "get v1 namespace=a resource=pods name=x"),
        ("GET", "/api/v1/namespaces/a/pods/x/log", "get v1 namespace=a resource=pods subresource=log name=x"),
        (
            "POST",
            "/api/v1/namespaces/a/pods/x/exec?command=a",
            "create v1 namespace=a resource=pods subresource=exec name=x",
        ),
        ("GET", "/api/v1/nodes/n/proxy/metrics", "get v1 resource=nodes subresource=proxy name=n"),
        (
            "POST",
            "/apis/apps/v1/namespaces/a/deployments",
            "create v1 group=apps namespace=a resource=deployments",
        ),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            "patch v1 group=apps namespace=a resource=deployments subresource=scale name=d",
        ),
        ("DELETE", "/api/v1/namespaces/a/pods/x", "delete v1 namespace=a resource=pods name=x"),
        (
            "DELETE",
            "/api/v1/namespaces/a/pods?labelSelector=a%3Db",
            "deletecollection v1 namespace=a resource=pods labels=a=b",
        ),
        ("OPTIONS", "/api/v1/pods", " v1 resource=pods"),
        ("get", "/api/v1/pods", " v1 resource=pods"),
        ("GET", "/api/v1/watch/namespaces/a/pods", "watch v1 namespace=a resource=pods"),
        ("GET", "/api/v1/proxy/namespaces/a/pods/x/y/z", "proxy v1 namespace=a resource=pods name=x"),
        ("GET", "/api/v1/watch", "the path ends where a resource has to follow"),
        ("GET", "/api/v1/pods?watch=true", "watch v1 resource=pods"),
        ("GET", "/api/v1/pods?watch", "watch v1 resource=pods"),
        ("GET", "/api/v1/pods?watch=FALSE&watch=true", "list v1 resource=pods"),
        ("GET", "/api/v1/pods?watch=1&limit=many", "watch v1 resource=pods"),
        ("GET", "/api/v1/pods?watch=0&limit=many", "list v1 resource=pods"),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Dx",
            "list v1 resource=pods name=x fields=metadata.name=x",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Dx&limit=many",
            "list v1 resource=pods fields=metadata.name=x",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Dx&labelSelector=a+b",
            "list v1 resource=pods fields=metadata.name=x labels=a b",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name!%3Dx",
            "list v1 resource=pods fields=metadata.name!=x",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3D..",
            "list v1 resource=pods fields=metadata.name=..",
        ),
        (
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "get v1 group=rbac.authorization.k8s.io resource=clusterroles name=system:node",
        ),
        ("GET", "/api/v1/pods/%zz", "the path has a `%` without two hexadecimal digits behind it"),
        ("GET", "/api/v1/pods/%ff", "the path or a selector is not UTF-8"),
        ("GET", "/api/v1/pods?labelSelector=%ff", "the path or a selector is not UTF-8"),
    ];
    for (method, target, expected) in cases {
        assert_eq!(shown(method, target), expected, "{method} {target}");
    }
}

#[test]
fn a_pair_that_go_leaves_out_is_left_out() {
    let query = Query::of("a=1;b=2&c=%zz&&d&e=a+b%2B&e=2");
    let first = |name| query.first(name).map(|value| str::from_utf8(value).unwrap());
    assert_eq!(
        [first("a"), first("b"), first("c"), first("d"), first("e")],
        [None, None, None, Some(""), Some("a b+")]
    );
}
