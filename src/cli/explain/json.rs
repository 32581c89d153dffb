//! `credbroker explain -o json`.

use credbroker_client::admin::{CredentialExplanation, CredentialLifetime, KeyPart, KeyPartKind};
use serde_json::{Value, json};

use super::{
    differences::{PartName, by_provider, differing},
    names,
};
use crate::cli::{credentials::state_json, time::rfc3339};
use credbroker_plugin::Environment;

/// `own`: the environment of this process, if its values are to be shown.
pub(super) fn document(explained: &[CredentialExplanation], own: Option<&Environment>) -> Value {
    let credentials = by_provider(explained).flat_map(|explained| {
        let differing = differing(explained);
        let one = move |explained: &CredentialExplanation| {
            let CredentialExplanation { state, key_parts, lifetime, next_run, next_run_at, .. } = explained;
            let parts =
                key_parts.iter().map(|part| key_part(part, differing.contains(&PartName::of(part)), own));
            let more = json!({
                "keyParts": parts.collect::<Vec<_>>(),
                "lifetime": lifetime.as_ref().map(self::lifetime),
                "nextRun": {"cause": names::cause(*next_run), "time": next_run_at.map(rfc3339)},
            });
            with(state_json(state), more)
        };
        explained.iter().map(one).collect::<Vec<_>>()
    });
    json!({"credentials": credentials.collect::<Vec<_>>()})
}

fn key_part(part: &KeyPart, differs: bool, own: Option<&Environment>) -> Value {
    let KeyPart { kind, name, origin, fingerprint, value, .. } = part;
    let document = json!({
        "kind": names::kind(*kind),
        "name": name,
        "origin": names::origin(*origin),
        "fingerprint": fingerprint,
        "value": value,
        "differs": differs,
    });
    match own.filter(|_| *kind == KeyPartKind::Variable) {
        Some(own) => with(document, json!({"ownValue": own.get(name).map(|value| value.to_string_lossy())})),
        None => document,
    }
}

/// `document` with the fields of `more`.
fn with(mut document: Value, more: Value) -> Value {
    if let (Value::Object(document), Value::Object(more)) = (&mut document, more) {
        document.extend(more);
    }
    document
}

fn lifetime(lifetime: &CredentialLifetime) -> Value {
    json!({
        "fetchTime": lifetime.fetched_at.map(rfc3339),
        "seconds": lifetime.lifetime.map(|lifetime| lifetime.as_secs()),
        "bound": names::bound(lifetime.bound),
    })
}
