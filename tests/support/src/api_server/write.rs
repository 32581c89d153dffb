//! POST, PUT, PATCH and DELETE.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::collection::{Key, Store};
use super::list::not_found;
use super::query::bad_request;
use super::resource::{Collection, Target};
use super::routes::{Answer, failure};
use super::schema;

pub(super) fn write(
    store: &mut Store,
    method: &Method,
    target: &Target<'_>,
    content_type: Option<&str>,
    body: &[u8],
) -> Answer {
    let Some(namespace) = target.namespace else { return not_allowed() };
    let key = |name: &str| (namespace.to_owned(), name.to_owned());
    if let (&Method::DELETE, Some(name)) = (method, target.name) {
        return delete(store, target.collection, &key(name));
    }
    let Ok(sent) = serde_json::from_slice::<Value>(body) else { return bad_request("the body is not JSON") };
    if !sent.is_object() {
        return bad_request("the body is not a JSON object");
    }
    match (method, target.name) {
        (&Method::POST, None) => create(store, target.collection, namespace, sent),
        (&Method::PUT, Some(name)) => update(store, target, key(name), sent),
        (&Method::PATCH, Some(name)) => {
            let merges = match content_type {
                Some("application/merge-patch+json") | None => true,
                // The same to an object without lists.
                Some("application/strategic-merge-patch+json") => !target.collection.is_custom(),
                _ => false,
            };
            if !merges {
                let message = "the body of the request was in an unknown format - accepted media types include: \
                               application/merge-patch+json";
                return failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message);
            }
            let key = key(name);
            let Some(before) = store.get(target.collection, &key) else {
                return not_found(target.collection, name);
            };
            let mut patched = (**before).clone();
            merge(&mut patched, sent);
            update(store, target, key, patched)
        }
        _ => not_allowed(),
    }
}

/// Puts `sent` in the place of what is there, or creates it, if the schema allows; status included.
pub(super) fn apply(
    store: &mut Store,
    collection: Collection,
    key: Key,
    mut sent: Value,
) -> Result<(), Value> {
    let before = store.get(collection, &key).cloned();
    schema::check_all(collection, before.as_deref(), &key.1, &mut sent)
        .map_err(|(_, status)| status)
        .map(|()| drop(store.put(collection, key, sent)))
}

fn create(store: &mut Store, collection: Collection, namespace: &str, mut sent: Value) -> Answer {
    let name = sent["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let named = sent["metadata"]["namespace"].as_str().unwrap_or(namespace);
    if named != namespace {
        return bad_request("the namespace of the object does not match the namespace on the request");
    }
    let key = (namespace.to_owned(), name.clone());
    if store.get(collection, &key).is_some() {
        let resource = collection.qualified(collection.plural());
        let message = format!("{resource} {name:?} already exists");
        return failure(StatusCode::CONFLICT, "AlreadyExists", &message);
    }
    if collection.is_custom()
        && let Some(members) = sent.as_object_mut()
    {
        members.remove("status");
    }
    if let Err(refused) = schema::check_all(collection, None, &name, &mut sent) {
        return refused;
    }
    (StatusCode::CREATED, (*store.put(collection, key, sent)).clone())
}

fn update(store: &mut Store, target: &Target<'_>, key: Key, mut sent: Value) -> Answer {
    let collection = target.collection;
    let Some(before) = store.get(collection, &key).map(Arc::clone) else {
        return not_found(collection, &key.1);
    };
    if let Some(refused) = conflict(collection, &before, &sent, &key.1) {
        return refused;
    }
    if collection.is_custom() {
        let checked = if target.status {
            schema::check_status(collection, &key.1, &mut sent)
        } else {
            schema::check_wanted(collection, Some(&before), &key.1, &mut sent)
        };
        if let Err(refused) = checked {
            return refused;
        }
        // Each side changes only its own part.
        let (mut object, from) = if target.status { ((*before).clone(), &sent) } else { (sent, &*before) };
        match (from.get("status").cloned(), object.as_object_mut()) {
            (Some(status), Some(members)) => drop(members.insert("status".to_owned(), status)),
            (None, Some(members)) => drop(members.remove("status")),
            (_, None) => {}
        }
        sent = object;
    }
    (StatusCode::OK, (*store.put(collection, key, sent)).clone())
}

fn delete(store: &mut Store, collection: Collection, key: &Key) -> Answer {
    let Some(object) = store.remove(collection, key) else { return not_found(collection, &key.1) };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {
            "name": key.1, "group": collection.group(), "kind": collection.plural(), "uid": object["metadata"]["uid"],
        },
    });
    (StatusCode::OK, status)
}

/// An update names the version that it was made from, and loses against one that came in between.
fn conflict(collection: Collection, before: &Value, sent: &Value, name: &str) -> Option<Answer> {
    let version = sent["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let resource = collection.qualified(collection.plural());
    if version.is_empty() && collection.is_custom() {
        let message = format!(
            "{resource} {name:?} is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an \
             update"
        );
        return Some(failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", &message));
    }
    let same = version.is_empty() || before["metadata"]["resourceVersion"] == version;
    let message = format!(
        "Operation cannot be fulfilled on {resource} {name:?}: the object has been modified; please apply your \
         changes to the latest version and try again"
    );
    (!same).then(|| failure(StatusCode::CONFLICT, "Conflict", &message))
}

/// RFC 7396.
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

fn not_allowed() -> Answer {
    failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "the server does not allow this method here")
}
