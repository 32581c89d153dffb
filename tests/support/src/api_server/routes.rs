//! The few resources that kubectl needs to read pods and to apply a `ConfigMap`.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

type Objects = BTreeMap<String, Value>;

pub(super) fn respond(
    objects: &mut Objects,
    method: &Method,
    path: &str,
    body: &[u8],
) -> (StatusCode, Value) {
    let fixed = match path {
        "/version" => {
            Some(json!({"major": "1", "minor": "32", "gitVersion": "v1.32.0", "platform": "linux/amd64"}))
        }
        "/api" => Some(json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
        "/apis" => Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
        "/api/v1" => Some(resources()),
        "/api/v1/namespaces/default/pods" => Some(pods()),
        _ => None,
    };
    match fixed {
        Some(document) if method == Method::GET => (StatusCode::OK, document),
        None if path.starts_with(CONFIG_MAPS) => config_maps(objects, method, path, body),
        None => {
            failure(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
        }
        Some(_) => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "only GET is served here"),
    }
}

/// A `Status`, the API's own form of an error.
pub(super) fn failure(code: StatusCode, reason: &str, message: &str) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, status)
}

fn config_maps(objects: &mut Objects, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
    if method == Method::GET && path == CONFIG_MAPS {
        let items: Vec<&Value> = objects.values().collect();
        return (
            StatusCode::OK,
            json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": items}),
        );
    }
    if method == Method::GET {
        return match objects.get(path) {
            Some(object) => (StatusCode::OK, object.clone()),
            None => failure(StatusCode::NOT_FOUND, "NotFound", &format!("{path} not found")),
        };
    }
    let Ok(sent) = serde_json::from_slice::<Value>(body) else {
        return failure(StatusCode::BAD_REQUEST, "BadRequest", "the body is not JSON");
    };
    match *method {
        Method::POST => {
            let name = sent.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            objects.insert(format!("{CONFIG_MAPS}/{name}"), sent.clone());
            (StatusCode::CREATED, sent)
        }
        Method::PATCH => {
            let object = objects.entry(path.to_owned()).or_default();
            merge(object, sent);
            (StatusCode::OK, object.clone())
        }
        _ => {
            failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "GET, POST and PATCH are served here")
        }
    }
}

/// RFC 7396, which is also what a strategic merge does to an object without lists.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        let Some(members) = target.as_object_mut() else { return };
        if value.is_null() {
            members.remove(&name);
        } else {
            merge(members.entry(name).or_insert(Value::Null), value);
        }
    }
}

fn resources() -> Value {
    let resource = |name: &str, kind: &str, short: &str, verbs: &[&str]| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "shortNames": [short], "verbs": verbs});
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [
        resource("pods", "Pod", "po", &["get", "list"]),
        resource("configmaps", "ConfigMap", "cm", &["create", "get", "list", "patch"]),
    ]})
}

fn pods() -> Value {
    let pod = json!({
        "metadata": {"name": "web-0", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]},
        "status": {"phase": "Running", "containerStatuses": [
            {"name": "web", "ready": true, "restartCount": 0, "image": "web:1", "imageID": "", "state": {}},
        ]},
    });
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [pod]})
}
