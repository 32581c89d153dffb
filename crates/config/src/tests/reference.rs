//! The reference of all keys. `docs/configuration.md` has what a user says about each key; types, defaults and the first
//! example there, and the JSON Schema, are made from the table that the readers use.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex},
};

use serde_json::{Map as Object, Value, json};

use super::{HEAD, Home};
use crate::{
    ConfigError,
    schema::{
        Section,
        testing::{About, Absence, Declared, Shape},
    },
    table::root,
};
use credbroker_credential::document::{Aliases, yaml};
use credbroker_units::size;

const REQUIRED: &str = "none, the key is required";

/// What `docs/configuration.md` says before the keys, and below each heading.
static WRITTEN: LazyLock<(String, HashMap<String, Written>)> = LazyLock::new(|| {
    let text = fs::read_to_string(docs("configuration.md")).unwrap();
    let (introduction, keys) = text.split_once("\n## All keys\n").unwrap();
    let sections = keys.split("\n##").skip(1).map(|section| {
        let (heading, text) = section.split_once('\n').unwrap();
        (format!("##{heading}"), Written::read(text))
    });
    (introduction.to_owned(), sections.collect())
});

/// What a user wrote about a section or a key.
#[derive(Default)]
struct Written {
    doc: String,
    default: String,
    example: String,
}

impl Written {
    fn read(text: &str) -> Self {
        let (doc, rest) = text.split_once("\n- Type: ").unwrap_or((text, ""));
        let line = |start: &str| rest.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default();
        let example = line("- Example: `").trim_end_matches('`');
        Self {
            doc: doc.trim().to_owned(),
            default: line("- Default: ").to_owned(),
            example: example.split_once(": ").map(|(_, value)| value.to_owned()).unwrap_or_default(),
        }
    }
}

/// What is written below `heading`.
fn written(heading: &str) -> &'static Written {
    let found = WRITTEN.1.get(heading).filter(|found| !found.doc.is_empty());
    found.unwrap_or_else(|| panic!("docs/configuration.md says nothing about {heading}"))
}

/// A key of a section, and what is written about it.
struct Key {
    name: &'static str,
    path: String,
    shape: Shape,
    /// What applies without the key, as Markdown; `None`: it is required.
    default: Option<String>,
    doc: &'static str,
    example: &'static str,
}

/// The keys of the section at `path`.
fn keys(path: &str, section: &Section) -> Vec<Key> {
    let key = |key: &&'static (dyn Declared + Sync)| {
        let About { name, shape, absent } = key.about();
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let Written { doc, default, example } = written(&format!("### `{path}`"));
        assert!(!example.is_empty(), "docs/configuration.md has no example of {path}");
        let default = match absent {
            Absence::Required => None,
            Absence::InWords => Some(default.clone()).inspect(|words| assert!(!words.is_empty(), "{path}")),
            Absence::Value(value) => Some(value),
        };
        Key { name, path, shape, default, doc, example }
    };
    section.keys.iter().map(key).collect()
}

/// `docs/configuration.md`.
fn markdown() -> String {
    let mut text = format!("{}\n## All keys\n\n```yaml\n{}```\n", WRITTEN.0, example());
    for (path, section) in sections() {
        let _infallible = write!(text, "\n{}\n\n{}\n", heading(&path), written(&heading(&path)).doc);
        for Key { name, path, shape, default, doc, example } in keys(&path, section) {
            let (shape, default) = (shown(&shape), default.as_deref().unwrap_or(REQUIRED));
            let _infallible = write!(
                text,
                "\n### `{path}`\n\n{doc}\n\n- Type: {shape}\n- Default: {default}\n- Example: `{name}: {example}`\n"
            );
        }
    }
    text
}

fn heading(path: &str) -> String {
    if path.is_empty() { "## The file".to_owned() } else { format!("## `{path}`") }
}

/// Every section with its path, such as `providers[].execConfig`; the outermost first.
fn sections() -> Vec<(String, &'static Section)> {
    let mut found: Vec<(String, &'static Section)> = vec![(String::new(), &root::SECTION)];
    let mut next = 0;
    while let Some((path, section)) = found.get(next).cloned() {
        let below = keys(&path, section).into_iter().filter_map(|key| {
            let (list, section) = section_of(&key.shape)?;
            Some((format!("{}{}", key.path, if list { "[]" } else { "" }), section))
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
fn example() -> String {
    let mut text = String::new();
    write_section(&mut text, ("", &root::SECTION), 0, "");
    text
}

/// The keys of the section at `path`, indented by `depth`; `first` comes before the first of them.
fn write_section(text: &mut String, (path, section): (&str, &Section), depth: usize, first: &str) {
    for (index, Key { name, path, example, shape, .. }) in keys(path, section).into_iter().enumerate() {
        let indent = "  ".repeat(depth);
        let start = if index == 0 && !first.is_empty() { first } else { &indent };
        let below = section_of(&shape);
        let _infallible = match below {
            None => writeln!(text, "{start}{name}: {example}"),
            Some(_) => writeln!(text, "{start}{name}:"),
        };
        if let Some((is_list, section)) = below {
            let first = if is_list { format!("{indent}- ") } else { String::new() };
            let path = if is_list { format!("{path}[]") } else { path };
            write_section(text, (&path, section), depth + 1, &first);
        }
    }
}

fn shown(shape: &Shape) -> String {
    match shape {
        Shape::Text(what, _) => what.clone(),
        Shape::Boolean => "boolean".to_owned(),
        Shape::Count(most) => format!("whole number from 1 to {most}"),
        Shape::Size(most) => {
            format!("size below {}, such as `64Mi`, `1Gi`, `500k` or a number of bytes", size::text(*most))
        }
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
fn json_schema() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "credbroker configuration",
        "$ref": "#/$defs/root",
    });
    let named = sections()
        .into_iter()
        .map(|(path, section)| (section.name.to_owned(), section_schema(&path, section)));
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("$defs".to_owned(), Value::Object(named.collect()));
    }
    schema
}

fn section_schema(path: &str, section: &Section) -> Value {
    let keys = keys(path, section);
    let required: Vec<_> = keys.iter().filter(|key| key.default.is_none()).map(|key| key.name).collect();
    let properties = keys.iter().map(|key| (key.name.to_owned(), key_schema(key)));
    let mut schema = json!({
        "description": written(&heading(path)).doc.replace('\n', " "),
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
fn rule(section: &Section) -> Option<Object<String, Value>> {
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
        "metrics" | "proxy_metrics" => json!({"anyOf": [
            {"properties": {
                "listen": {"pattern": r"^(127\.[0-9.]+|\[::1\]):[0-9]+$|^unix://"},
                "exposure": {"enum": ["Local", null]},
            }},
            {"properties": {
                "listen": {"pattern": r"^(0\.0\.0\.0|\[::\]):[0-9]+$"},
                "exposure": {"const": "Pod"},
            }, "required": ["exposure"]},
        ]}),
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

fn key_schema(key: &Key) -> Value {
    let mut schema = shape_schema(&key.shape);
    let mut description = key.doc.replace('\n', " ");
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
            let mut kinds = kind.as_array().cloned().unwrap_or_else(|| vec![kind]);
            kinds.push("null".into());
            if let Some(fields) = schema.as_object_mut() {
                fields.insert("type".to_owned(), kinds.into());
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
        Shape::Size(most) => json!({
            "type": ["integer", "string"],
            "minimum": 1,
            "maximum": most - 1,
            "pattern": size::PATTERN,
        }),
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

fn docs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file)
}

/// Compares a committed file with `text`, or writes it when `BLESS` is set.
#[expect(clippy::disallowed_methods, reason = "an option of the test, which the broker does not read")]
fn is_current(file: &str, text: &str) {
    let path = docs(file);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "docs/{file} is out of date: BLESS=1 cargo test -p credbroker-config reference"
    );
}

#[test]
fn the_committed_reference_is_current() {
    is_current("configuration.md", &markdown());
    is_current("config.schema.json", &format!("{:#}\n", json_schema()));
}

/// A home directory with the kubeconfigs of the examples.
fn home() -> Home {
    let home = Home::new("");
    home.write(
        ".kube/config",
        "users:\n- name: u\n  user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x}}\n",
    );
    home.write(".kube/hub", "clusters:\n- {name: hub, cluster: {server: \"https://hub\"}}\nusers:\n- {name: hub, user: {token: t}}\ncontexts:\n- {name: hub, context: {cluster: hub, user: hub}}\ncurrent-context: hub\n");
    home
}

fn load(home: &Home, text: &str) -> Result<(), ConfigError> {
    home.write(".config/credbroker/config.yaml", text);
    home.load().map(drop)
}

fn value(text: &str) -> Value {
    yaml(text.as_bytes(), Aliases::Follow).unwrap().to_json()
}

/// A valid document with all sections and no more keys than those need, and where each section is in it.
fn least() -> (Value, Vec<(String, &'static Section)>) {
    let document = value(&format!(
        "{HEAD}kubeconfigs: [~/.kube/config]\n\
         credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{{command: x}}]\n\
         access: [{{name: r, peers: {{uids: [0], gids: [0]}}, allow: {{providers: [gke], clusterProfiles: [a/b], verbs: [get]}}}}]\n\
         audit: {{}}\nlisten: {{}}\nproxy: {{listen: {{}}, tls: {{}}, metrics: {{listen: \"127.0.0.1:2\"}}, audit: {{file: /a}}}}\nlimits: {{}}\nmetrics: {{listen: \"127.0.0.1:1\"}}\nissuers: [{{name: gke}}]\nclusterProfiles: {{kubeconfig: InCluster, prewarm: [{{}}]}}\n\
         providers:\n- name: gke\n  execConfig:\n    apiVersion: client.authentication.k8s.io/v1\n    command: x\n    \
         interactiveMode: Never\n    env: [{{name: A}}]\n"
    ));
    (document, sections().into_iter().map(|(path, section)| (pointer(&path), section)).collect())
}

/// Where the section at `path` is in that document.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace("[]", "/0").replace('.', "/")).trim_end_matches('/').to_owned()
}

fn with(document: &Value, section: &str, key: &str, value: Value) -> Value {
    let mut document = document.clone();
    document.pointer_mut(section).unwrap().as_object_mut().unwrap().insert(key.to_owned(), value);
    document
}

#[test]
fn every_example_is_accepted() {
    let (home, schema) = (home(), json_schema());
    load(&home, &example()).unwrap();
    assert_eq!(refusal(&schema, &schema, &value(&example())), None);
    let (least, _) = least();
    let mut count = 0;
    for (path, section) in sections() {
        for Key { name, example, default, .. } in keys(&path, section) {
            let path = pointer(&path);
            let mut document = with(&least, &path, name, value(example));
            if name == "context" {
                document = with(&document, &path, "kubeconfig", json!("~/.kube/hub"));
            }
            load(&home, &document.to_string()).unwrap_or_else(|error| panic!("{path}/{name}: {error}"));
            assert_eq!(refusal(&schema, &schema, &document), None, "{path}/{name}");
            let default = default.unwrap_or_default();
            assert_ne!(default, format!("`{example}`"), "an example shows another value");
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}

#[test]
fn the_schema_accepts_what_the_broker_accepts_and_refuses_what_it_refuses() {
    let values = [
        "null",
        "true",
        "0",
        "1",
        "-1",
        "1.5",
        "5000000000",
        "\"\"",
        "x",
        "\"0660\"",
        "\"0777\"",
        "30s",
        "0s",
        "1.5h",
        "1h30m",
        "1h30",
        "\"30\"",
        "0h0m00.10m",
        "0h.0s",
        "1d",
        "64Mi",
        "0Mi",
        "1.5Gi",
        "500k",
        "100m",
        "64MiB",
        "\"1e6\"",
        "/x",
        "~/x",
        "~x",
        "a/b",
        "a/b/c",
        "\"a=b\"",
        "\"a\\tb\"",
        "\"a\\0b\"",
        "A-B",
        "Never",
        "Always",
        "Append",
        "Pod",
        "0.0.0.0:9464",
        "never",
        "[]",
        "{}",
        "[x]",
        "[1]",
        "[\"\"]",
        "[a b]",
        "[\"*\"]",
        "[{}]",
        "client.authentication.k8s.io/v1beta1",
    ];
    let (home, schema) = (home(), json_schema());
    let (least, sections) = least();
    for (path, section) in sections {
        for (key, text) in
            section.names.iter().copied().chain(["unknown"]).flat_map(|key| values.map(|text| (key, text)))
        {
            let document = with(&least, &path, key, value(text));
            let problems =
                load(&home, &document.to_string()).err().map(|error| error.problems).unwrap_or_default();
            // The others depend on files and on other sections.
            let shape =
                ["must be ", "must not ", "expected a ", "unknown key", "no longer part of Kubernetes"];
            let refused =
                problems.iter().find(|problem| shape.iter().any(|shape| problem.message.contains(shape)));
            let by_schema = refusal(&schema, &schema, &document);
            assert_eq!(
                refused.is_some(),
                by_schema.is_some(),
                "{path}/{key}: {text}: {refused:?}, {by_schema:?}"
            );
        }
    }
}

#[test]
fn required_keys_are_required_by_both() {
    let (home, schema) = (home(), json_schema());
    let (least, sections) = least();
    for (path, section) in sections {
        for name in section.names {
            let mut document = least.clone();
            document.pointer_mut(&path).unwrap().as_object_mut().unwrap().remove(*name);
            let missing = load(&home, &document.to_string())
                .is_err_and(|error| error.to_string().contains("must be specified"));
            assert_eq!(missing, refusal(&schema, &schema, &document).is_some(), "{path}/{name}");
        }
    }
    let empty = value(HEAD);
    assert!(load(&home, HEAD).is_err() && refusal(&schema, &schema, &empty).is_some());
}

/// Compiles each pattern once: there are thousands of values.
fn is_match(pattern: &str, text: &str) -> bool {
    static COMPILED: LazyLock<Mutex<HashMap<String, regex::Regex>>> = LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock().unwrap();
    let compiled = compiled.entry(pattern.to_owned()).or_insert_with(|| regex::Regex::new(pattern).unwrap());
    compiled.is_match(text)
}

/// Why `value` does not match `schema`, of which `root` has the definitions: the keywords that our schema uses.
fn refusal(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    schema.as_object().unwrap().iter().find_map(|(keyword, rule)| {
        let is_type = |name: &Value| match name.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "null" => value.is_null(),
            other => panic!("type {other}"),
        };
        let property = |name: &str| rule.get(name).zip(value.get(name));
        let holds = match keyword.as_str() {
            "$ref" => return refusal(root, root.pointer(&rule.as_str().unwrap()[1..]).unwrap(), value),
            "properties" => {
                return rule.as_object().unwrap().keys().find_map(|name| {
                    let (rule, value) = property(name)?;
                    refusal(root, rule, value).map(|why| format!("{name}: {why}"))
                });
            }
            "items" => return value.as_array()?.iter().find_map(|item| refusal(root, rule, item)),
            "if" if refusal(root, rule, value).is_none() => return refusal(root, &schema["then"], value),
            // The other half of `if`, and annotations.
            "if" | "then" | "$schema" | "title" | "description" | "$defs" => true,
            "anyOf" => rule.as_array().unwrap().iter().any(|schema| refusal(root, schema, value).is_none()),
            "type" => rule.as_array().map_or_else(|| is_type(rule), |names| names.iter().any(is_type)),
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "pattern" => value.as_str().is_none_or(|text| is_match(rule.as_str().unwrap(), text)),
            "minimum" => value.as_i64().is_none_or(|number| number >= rule.as_i64().unwrap()),
            "maximum" => value.as_i64().is_none_or(|number| number <= rule.as_i64().unwrap()),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
            "required" => {
                rule.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "additionalProperties" => {
                let known = &schema["properties"];
                value.as_object().is_none_or(|fields| fields.keys().all(|name| known.get(name).is_some()))
            }
            other => panic!("keyword {other}"),
        };
        (!holds).then(|| keyword.clone())
    })
}
