//! The reference of all keys, for people and for editors, made from the table that the readers use.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{
    schema::{About, Section, Shape},
    table::root,
};

const HEAD: &str = "\
<!-- Generated from crates/config/src/table.rs: BLESS=1 cargo test -p credbroker-config reference -->

# Configuration

The broker reads the first of these files that exists:

1. the file of `credbroker serve --config FILE`, or of `CREDBROKER_CONFIG`;
2. `$XDG_CONFIG_HOME/credbroker/config.yaml`, by default `~/.config/credbroker/config.yaml`;
3. `/etc/credbroker/config.yaml`.

Without a file, each user with an exec plugin in `KUBECONFIG` or `~/.kube/config` is a provider.

`credbroker validate --config FILE` prints every problem with its file, line and column. An unknown key is an error. The
file, and every kubeconfig and file of certificate authorities that it names, must belong to the broker's user or to root;
[operations.md](operations.md#files-that-other-users-can-change) has the rules.

For completion and checks in an editor that uses yaml-language-server, begin the file with the path of
[config.schema.json](config.schema.json):

```yaml
# yaml-language-server: $schema=config.schema.json
```

Durations are a whole number with a unit: `30s`, `10m`, `12h`. A key with the value `null` counts as absent.

The broker also reads the provider file of Kubernetes' cluster-inventory-api: JSON with `{\"providers\": [...]}`, in which
each item has `name`, `execConfig` and the policies `profileSourcedCLIArgsPolicy` and `profileSourcedEnvVarsPolicy`. An item
can also have `callerEnv`, which other readers of the file ignore.
";

/// `docs/configuration.md`.
pub fn markdown() -> String {
    let mut text = format!("{HEAD}\n## All keys\n\n```yaml\n{}```\n", example());
    for (path, section) in sections() {
        let title = if path.is_empty() { "The file".to_owned() } else { format!("`{path}`") };
        let _infallible = write!(text, "\n## {title}\n\n{}\n", paragraph(section.doc));
        for About { name, doc, example, shape, default } in section.keys.iter().map(|key| key.about()) {
            let _infallible = write!(
                text,
                "\n### `{}`\n\n{}\n\n- Type: {}\n- Default: {}\n- Example: `{name}: {example}`\n",
                if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") },
                paragraph(doc),
                shown(&shape),
                default.as_deref().unwrap_or("none, the key is required"),
            );
        }
    }
    text
}

/// Every section with its path, such as `providers[].execConfig`; the outermost first.
fn sections() -> Vec<(String, &'static Section)> {
    let mut found: Vec<(String, &'static Section)> = vec![(String::new(), &root::SECTION)];
    let mut next = 0;
    while let Some((path, section)) = found.get(next).cloned() {
        let below = section.keys.iter().filter_map(|key| {
            let About { name, shape, .. } = key.about();
            let (list, section) = section_of(&shape)?;
            let (dot, items) = (if path.is_empty() { "" } else { "." }, if list { "[]" } else { "" });
            Some((format!("{path}{dot}{name}{items}"), section))
        });
        let below: Vec<_> = below.collect();
        next += 1;
        found.splice(next..next, below);
    }
    found
}

/// The section that a value consists of, and whether it is a list of them.
fn section_of(shape: &Shape) -> Option<(bool, &'static Section)> {
    match shape {
        Shape::Map(section) | Shape::MapOrMaps(section) => Some((false, section)),
        Shape::List(item) => section_of(item).map(|(_, section)| (true, section)),
        _ => None,
    }
}

/// A document with the example of every key.
pub(super) fn example() -> String {
    let mut text = String::new();
    write_section(&mut text, &root::SECTION, 0, "");
    text
}

/// The keys of `section`, indented by `depth`; `first` comes before the first of them.
fn write_section(text: &mut String, section: &Section, depth: usize, first: &str) {
    // A key without effect is described, not recommended.
    let keys = section.keys.iter().map(|key| key.about());
    let keys = keys.filter(|key| !paragraph(key.doc).starts_with("Has no effect"));
    for (index, About { name, example, shape, .. }) in keys.enumerate() {
        let indent = "  ".repeat(depth);
        let start = if index == 0 && !first.is_empty() { first } else { &indent };
        let below = section_of(&shape);
        let _infallible = match below {
            None => writeln!(text, "{start}{name}: {example}"),
            Some(_) => writeln!(text, "{start}{name}:"),
        };
        if let Some((is_list, section)) = below {
            let first = if is_list { format!("{indent}- ") } else { String::new() };
            write_section(text, section, depth + 1, &first);
        }
    }
}

/// The lines of a doc comment as a paragraph.
fn paragraph(doc: &str) -> String {
    doc.lines().map(str::trim).collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn shown(shape: &Shape) -> String {
    match shape {
        Shape::Text(what, _) => (*what).to_owned(),
        Shape::Boolean => "boolean".to_owned(),
        Shape::Count(most) => format!("whole number from 1 to {most}"),
        Shape::Id => "number".to_owned(),
        Shape::OneOf(names) => {
            let names = names.iter().filter(|name| !name.is_empty());
            names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
        }
        Shape::List(item) => format!("list, each item: {}", shown(item)),
        Shape::Map(_) => "map".to_owned(),
        Shape::MapOrMaps(_) => "map, or list of maps".to_owned(),
    }
}

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
    let keys: Vec<_> = section.keys.iter().map(|key| key.about()).collect();
    let required: Vec<_> = keys.iter().filter(|key| key.default.is_none()).map(|key| key.name).collect();
    let properties = keys.iter().map(|key| (key.name.to_owned(), key_schema(key)));
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
fn rule(section: &Section) -> Option<Map<String, Value>> {
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

fn key_schema(key: &About) -> Value {
    let mut schema = shape_schema(&key.shape);
    let mut description = paragraph(key.doc).replace('\n', " ");
    if let Some(default) = &key.default {
        schema = nullable(schema);
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

#[cfg(test)]
mod tests;
