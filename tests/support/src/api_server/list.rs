//! GET of one object and LIST of many.

use http::StatusCode;
use serde_json::{Value, json};

use super::collection::{Gone, Key, Store};
use super::query::{Continued, Query};
use super::resource::{Collection, Target};
use super::routes::{Answer, failure};

pub(super) fn get(store: &Store, target: &Target<'_>, key: &Key) -> Answer {
    match store.get(target.collection, key) {
        Some(object) => (StatusCode::OK, (**object).clone()),
        None => not_found(target.collection, &key.1),
    }
}

/// Every page shows the objects as they were when the first page was read.
pub(super) fn list(store: &Store, collection: Collection, query: &Query) -> Answer {
    if let Some(refused) = too_new(store, query.revision) {
        return refused;
    }
    let revision = query.continued.as_ref().map_or(store.revision(), |from| from.revision);
    let objects = match store.objects_at(collection, revision) {
        Ok(objects) => objects,
        Err(gone) => return expired(&gone),
    };
    let mut selected = query.filter.select(&objects);
    if let Some(continued) = &query.continued {
        selected.retain(|(key, _)| **key >= continued.from);
    }
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    let shown = query.limit.unwrap_or(usize::MAX).min(selected.len());
    let (page, rest) = selected.split_at(shown);
    if let Some((next, _)) = rest.first() {
        metadata["continue"] = json!(Continued { revision, from: (*next).clone() }.encode());
        metadata["remainingItemCount"] = json!(rest.len());
    }
    let items: Vec<&Value> = page.iter().map(|(_, object)| *object).collect();
    let list = json!({
        "kind": format!("{}List", collection.kind()), "apiVersion": collection.api_version(),
        "metadata": metadata, "items": items,
    });
    (StatusCode::OK, list)
}

pub(super) fn not_found(collection: Collection, name: &str) -> Answer {
    let resource = collection.qualified(collection.plural());
    let (code, mut status) =
        failure(StatusCode::NOT_FOUND, "NotFound", &format!("{resource} {name:?} not found"));
    status["details"] = json!({"name": name, "group": collection.group(), "kind": collection.plural()});
    (code, status)
}

/// The response to a revision that is older than what the server remembers.
pub(super) fn expired(gone: &Gone) -> Answer {
    let Gone { asked, oldest } = gone;
    failure(StatusCode::GONE, "Expired", &format!("too old resource version: {asked} ({oldest})"))
}

/// A client may have learnt its revision from another server, or from one that lost its data.
pub(super) fn too_new(store: &Store, revision: Option<u64>) -> Option<Answer> {
    let (asked, newest) = (revision?, store.revision());
    let message = format!("Too large resource version: {asked}, current: {newest}");
    (asked > newest).then(|| failure(StatusCode::GATEWAY_TIMEOUT, "Timeout", &message))
}
