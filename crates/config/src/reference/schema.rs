//! The JSON Schema of the configuration.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{paragraph, sections};
use crate::keys::{Declared, Section, Shape};

/// The JSON Schema (draft 2020-12).
pub fn json_schema() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "credbroker configuration",
        "$ref": "#/$defs/root",
    });
    let named = sections().into_iter().map(|(_, section)| (section.name.to_owned(), section_schema(section)));
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("$defs".to_owned(), Value::Object(named.collect()));
    }
    schema
}

fn section_schema(section: &Section) -> Value {
    let properties = section.keys.iter().map(|key| (key.name().to_owned(), key_schema(*key)));
    let required: Vec<_> =
        section.keys.iter().filter(|key| key.default().is_none()).map(|key| key.name()).collect();
    let mut schema = json!({
        "description": paragraph(section.doc).replace('\n', " "),
        "type": "object",
        "additionalProperties": false,
        "properties": Value::Object(properties.collect()),
        "required": required,
    });
    if let (Some(fields), Some(rule)) = (schema.as_object_mut(), rule(section)) {
        fields.extend(rule);
    }
    schema
}

/// What a section demands of several keys together.
fn rule(section: &Section) -> Option<serde_json::Map<String, Value>> {
    let filled =
        |key: &str| json!({"required": [key], "properties": {(key): {"type": "array", "minItems": 1}}});
    let rule = match section.name {
        "root" => json!({"anyOf": [filled("providers"), filled("kubeconfigs")]}),
        "peers" => {
            let any = ["uids", "gids", "executables", "listeners"].map(filled);
            json!({"anyOf": any})
        }
        "allow" => {
            let verbs = || json!({"type": "array", "minItems": 1});
            let any = ["providers", "clusterProfiles"].map(|key| {
                let mut rule = filled(key);
                if let Some(properties) = rule.get_mut("properties").and_then(Value::as_object_mut) {
                    properties.insert("verbs".to_owned(), verbs());
                }
                rule
            });
            json!({"anyOf": any})
        }
        "exec" => json!({
            "if": {"properties": {"apiVersion": {"const": "client.authentication.k8s.io/v1"}}},
            "then": {
                "required": ["interactiveMode"],
                "properties": {"interactiveMode": {"enum": ["Never", "IfAvailable", "Always"]}},
            },
        }),
        _ => return None,
    };
    rule.as_object().cloned()
}

fn key_schema(key: &dyn Declared) -> Value {
    let mut schema = shape_schema(&key.shape());
    if key.default().is_some() {
        schema = nullable(schema);
    }
    let mut description = paragraph(key.doc()).replace('\n', " ");
    if let Some(default) = key.default() {
        let _infallible = write!(description, " Default: {default}.");
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("description".to_owned(), description.into());
    }
    schema
}

/// An absent value and null are the same to the broker.
fn nullable(schema: Value) -> Value {
    match schema.get("type").cloned() {
        Some(kind) if schema.get("enum").is_none() => {
            let mut schema = schema;
            if let Some(fields) = schema.as_object_mut() {
                fields.insert("type".to_owned(), json!([kind, "null"]));
            }
            schema
        }
        _ => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

fn shape_schema(shape: &Shape) -> Value {
    match shape {
        Shape::Text(_, None) => json!({"type": "string"}),
        Shape::Text(_, Some(pattern)) => json!({"type": "string", "pattern": pattern}),
        Shape::Boolean => json!({"type": "boolean"}),
        Shape::Count(most) => json!({"type": "integer", "minimum": 1, "maximum": most}),
        Shape::Id => json!({"type": "integer", "minimum": 0, "maximum": u32::MAX - 1}),
        Shape::OneOf(names) => json!({"type": "string", "enum": names}),
        Shape::List(item) => json!({"type": "array", "items": shape_schema(item)}),
        Shape::Map(section) => json!({"$ref": format!("#/$defs/{}", section.name)}),
        Shape::MapOrMaps(section) => {
            let one = shape_schema(&Shape::Map(section));
            json!({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]})
        }
    }
}
