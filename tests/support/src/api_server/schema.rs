//! The custom resource's schema: what is missing or of the wrong type is refused, what is unknown is pruned.

use http::StatusCode;
use serde_json::{Value, json};

use self::shape::{Problem, SPEC, STATUS};
use super::query::bad_request;
use super::resource::Collection;
use super::routes::{Answer, failure};

mod shape;

/// Checks and prunes a whole object.
pub(super) fn check_all(
    collection: Collection,
    before: Option<&Value>,
    name: &str,
    sent: &mut Value,
) -> Result<(), Answer> {
    check_wanted(collection, before, name, sent)?;
    check_status(collection, name, sent)
}

/// Checks and prunes everything but the status.
pub(super) fn check_wanted(
    collection: Collection,
    before: Option<&Value>,
    name: &str,
    sent: &mut Value,
) -> Result<(), Answer> {
    check_metadata(name, sent)?;
    if !collection.is_custom() {
        return Ok(());
    }
    if let Some(members) = sent.as_object_mut() {
        members.retain(|name, _| {
            matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "spec" | "status")
        });
    }
    for (field, expected) in [("apiVersion", collection.api_version()), ("kind", collection.kind())] {
        if sent.get(field).is_some_and(|sent| sent != expected) {
            return Err(bad_request(&format!("the object's {field} is not {expected:?}")));
        }
    }
    let mut problems = Vec::new();
    match sent.get_mut("spec") {
        Some(spec) => SPEC.check("spec", spec, &mut problems),
        None => problems.push(Problem::required("spec")),
    }
    // The one transition rule of the resource.
    let manager = |object: &Value| object.pointer("/spec/clusterManager").cloned();
    if let Some(old) = before.and_then(manager)
        && manager(sent).is_some_and(|new| new != old)
    {
        problems.push(Problem::invalid("spec.clusterManager", "object", "ClusterManager is immutable"));
    }
    refuse(collection, name, &problems)
}

/// Checks and prunes the status, if there is one.
pub(super) fn check_status(collection: Collection, name: &str, sent: &mut Value) -> Result<(), Answer> {
    let mut problems = Vec::new();
    if let Some(status) = sent.get_mut("status").filter(|_| collection.is_custom()) {
        STATUS.check("status", status, &mut problems);
    }
    refuse(collection, name, &problems)
}

fn check_metadata(name: &str, sent: &Value) -> Result<(), Answer> {
    let label = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        let message =
            format!("metadata.name: Invalid value: {name:?}: a lowercase RFC 1123 subdomain is needed");
        return Err(failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", &message));
    }
    if sent["metadata"]["name"].as_str().is_some_and(|sent| sent != name) {
        return Err(bad_request("the name of the object does not match the name on the URL"));
    }
    for map in ["labels", "annotations"] {
        let texts = match &sent["metadata"][map] {
            Value::Null => true,
            Value::Object(members) => members.values().all(Value::is_string),
            _ => false,
        };
        if !texts {
            return Err(bad_request(&format!("metadata.{map} is not a map of strings")));
        }
    }
    Ok(())
}

fn refuse(collection: Collection, name: &str, problems: &[Problem]) -> Result<(), Answer> {
    if problems.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = problems.iter().map(|one| format!("{}: {}", one.field, one.message)).collect();
    let texts = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
    let message = format!("{} {name:?} is invalid: {texts}", collection.qualified(collection.kind()));
    let (code, mut status) = failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", &message);
    let causes: Vec<Value> = problems
        .iter()
        .map(|one| json!({"reason": one.reason, "message": one.message, "field": one.field}))
        .collect();
    status["details"] =
        json!({"name": name, "group": collection.group(), "kind": collection.kind(), "causes": causes});
    Err((code, status))
}
