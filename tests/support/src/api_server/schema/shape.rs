//! The shapes of a `ClusterProfile`, as tables.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// What is wrong at one place of an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) field: String,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What a value must be.
#[derive(Debug)]
pub(super) enum Shape {
    /// Exactly these fields; others are pruned.
    Fields(&'static [Field]),
    /// An object with unknown members, which are kept.
    Open,
    List(&'static Shape),
    Text(Text),
    Flag,
    /// Not negative.
    Count,
}

#[derive(Debug)]
pub(super) struct Field {
    name: &'static str,
    required: bool,
    shape: Shape,
}

/// A text, and the bounds of its length in characters.
#[derive(Debug)]
pub(super) enum Text {
    Between(usize, usize),
    OneOf(&'static [&'static str]),
    Base64,
    DateTime,
}

const TEXT: Shape = Shape::Text(Text::Between(0, usize::MAX));
const TIME: Shape = Shape::Text(Text::DateTime);

const fn required(name: &'static str, shape: Shape) -> Field {
    Field { name, required: true, shape }
}

const fn optional(name: &'static str, shape: Shape) -> Field {
    Field { name, required: false, shape }
}

pub(super) const SPEC: Shape = Shape::Fields(&[
    required("clusterManager", Shape::Fields(&[required("name", TEXT)])),
    optional("displayName", TEXT),
]);

pub(super) const STATUS: Shape = Shape::Fields(&[
    optional("accessProviders", PROVIDERS),
    optional("conditions", Shape::List(&CONDITION)),
    optional("credentialProviders", PROVIDERS),
    optional("properties", Shape::List(&PROPERTY)),
    optional("version", Shape::Fields(&[optional("kubernetes", TEXT)])),
]);

const PROVIDERS: Shape = Shape::List(&Shape::Fields(&[optional("cluster", CLUSTER), required("name", TEXT)]));

const CLUSTER: Shape = Shape::Fields(&[
    optional("certificate-authority", TEXT),
    optional("certificate-authority-data", Shape::Text(Text::Base64)),
    optional("disable-compression", Shape::Flag),
    optional("extensions", Shape::List(&EXTENSION)),
    optional("insecure-skip-tls-verify", Shape::Flag),
    optional("proxy-url", TEXT),
    required("server", TEXT),
    optional("tls-server-name", TEXT),
]);

const EXTENSION: Shape = Shape::Fields(&[required("extension", Shape::Open), required("name", TEXT)]);

const CONDITION: Shape = Shape::Fields(&[
    required("lastTransitionTime", TIME),
    required("message", Shape::Text(Text::Between(0, 32_768))),
    optional("observedGeneration", Shape::Count),
    required("reason", Shape::Text(Text::Between(1, 1024))),
    required("status", Shape::Text(Text::OneOf(&["True", "False", "Unknown"]))),
    required("type", Shape::Text(Text::Between(1, 316))),
]);

const PROPERTY: Shape = Shape::Fields(&[
    optional("lastObservedTime", TIME),
    required("name", Shape::Text(Text::Between(1, 253))),
    required("value", Shape::Text(Text::Between(1, 1024))),
]);

impl Shape {
    /// Names every problem of `value`, which is at `field`, and removes what the shape does not know.
    pub(super) fn check(&self, field: &str, value: &mut Value, problems: &mut Vec<Problem>) {
        match (self, value) {
            (Self::Fields(fields), Value::Object(members)) => check_fields(fields, field, members, problems),
            (Self::List(item), Value::Array(items)) => {
                for (index, value) in items.iter_mut().enumerate() {
                    item.check(&format!("{field}[{index}]"), value, problems);
                }
            }
            (Self::Open, Value::Object(_)) | (Self::Flag, Value::Bool(_)) => {}
            (Self::Text(text), Value::String(value)) => problems.extend(text.check(field, value)),
            (Self::Count, Value::Number(value)) if value.is_u64() => {}
            (_, value) => {
                let (found, wanted) = (found(value), self.wanted());
                let rule = format!("{field} in body must be of type {wanted}: {found:?}");
                let problem = Problem::invalid(field, found, &rule);
                problems.push(Problem { reason: "FieldValueTypeInvalid", ..problem });
            }
        }
    }

    fn wanted(&self) -> &'static str {
        match self {
            Self::Fields(_) | Self::Open => "object",
            Self::List(_) => "array",
            Self::Text(_) => "string",
            Self::Flag => "boolean",
            Self::Count => "integer",
        }
    }
}

fn check_fields(fields: &[Field], at: &str, members: &mut Map<String, Value>, problems: &mut Vec<Problem>) {
    members.retain(|name, _| fields.iter().any(|field| field.name == name));
    for field in fields {
        let at = format!("{at}.{}", field.name);
        match members.get_mut(field.name) {
            Some(value) => field.shape.check(&at, value, problems),
            None if field.required => problems.push(Problem::required(&at)),
            None => {}
        }
    }
}

impl Text {
    fn check(&self, field: &str, value: &str) -> Option<Problem> {
        let length = value.chars().count();
        let rule = match self {
            Self::Between(shortest, _) if length < *shortest => {
                format!("{field} in body should be at least {shortest} chars long")
            }
            Self::Between(_, longest) if length > *longest => {
                format!("{field} in body should be at most {longest} chars long")
            }
            Self::OneOf(texts) if !texts.contains(&value) => format!("supported values: {texts:?}"),
            Self::Base64 if STANDARD.decode(value).is_err() => {
                format!("{field} in body must be of type byte: {value:?}")
            }
            Self::DateTime if value.parse::<jiff::Timestamp>().is_err() => {
                format!("{field} in body must be of type date-time: {value:?}")
            }
            _ => return None,
        };
        Some(Problem::invalid(field, value, &rule))
    }
}

impl Problem {
    pub(super) fn required(field: &str) -> Self {
        Self { field: field.to_owned(), reason: "FieldValueRequired", message: "Required value".to_owned() }
    }

    pub(super) fn invalid(field: &str, found: &str, rule: &str) -> Self {
        let message = format!("Invalid value: {found:?}: {rule}");
        Self { field: field.to_owned(), reason: "FieldValueInvalid", message }
    }
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
