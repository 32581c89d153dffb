use std::{fs, path::Path};

use super::*;
use crate::{
    ConfigError,
    tests::{HEAD, Home},
};
use credbroker_credential::document::{Aliases, yaml};

/// Compares a committed file with `text`, or writes it when `BLESS` is set.
#[expect(clippy::disallowed_methods, reason = "an option of the test, which the broker does not read")]
fn is_current(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
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
         audit: {{}}\nlisten: {{}}\nlimits: {{}}\nmetrics: {{listen: \"127.0.0.1:1\"}}\nissuers: [{{name: gke}}]\nclusterProfiles: {{kubeconfig: in-cluster, prewarm: [{{}}]}}\n\
         providers:\n- name: gke\n  execConfig:\n    apiVersion: client.authentication.k8s.io/v1\n    command: x\n    \
         interactiveMode: Never\n    env: [{{name: A}}]\n"
    ));
    let pointer = |path: String| {
        format!("/{}", path.replace("[]", "/0").replace('.', "/")).trim_end_matches('/').to_owned()
    };
    (document, sections().into_iter().map(|(path, section)| (pointer(path), section)).collect())
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
    let (least, sections) = least();
    let mut keys = 0;
    for (path, section) in sections {
        for About { name, example, default, .. } in section.keys.iter().map(|key| key.about()) {
            let mut document = with(&least, &path, name, value(example));
            if name == "context" {
                document = with(&document, &path, "kubeconfig", json!("~/.kube/hub"));
            }
            load(&home, &document.to_string()).unwrap_or_else(|error| panic!("{path}/{name}: {error}"));
            assert_eq!(refusal(&schema, &schema, &document), None, "{path}/{name}");
            let default = default.unwrap_or_default();
            assert_ne!(default, format!("`{example}`"), "an example shows another value");
            keys += 1;
        }
    }
    assert!(keys > 40, "{keys}");
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
            "pattern" => value
                .as_str()
                .is_none_or(|text| regex::Regex::new(rule.as_str().unwrap()).unwrap().is_match(text)),
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
