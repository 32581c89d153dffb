//! JSON values as block YAML, so that kubeconfigs in tests look like those that people have.

use std::fmt::Write;

use serde_json::Value;

/// `value` as a YAML document; scalars are written as in JSON, which YAML reads alike.
pub(crate) fn document(value: &Value) -> String {
    let mut out = String::new();
    write_block(&mut out, value, 0);
    out
}

fn write_block(out: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                write_line(out, &format!("{indent}{}:", key(name)), member, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                write_line(out, &format!("{indent}-"), item, depth + 1);
            }
        }
        scalar => writeln!(out, "{indent}{scalar}").expect("a String takes everything"),
    }
}

fn write_line(out: &mut String, start: &str, value: &Value, depth: usize) {
    let nested = value.as_object().is_some_and(|object| !object.is_empty())
        || value.as_array().is_some_and(|array| !array.is_empty());
    if nested {
        writeln!(out, "{start}").expect("a String takes everything");
        write_block(out, value, depth);
    } else {
        writeln!(out, "{start} {value}").expect("a String takes everything");
    }
}

fn key(name: &str) -> String {
    let plain =
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && name.starts_with(char::is_alphabetic);
    if plain { name.to_owned() } else { Value::from(name).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_values_become_blocks_and_scalars_stay_json() {
        let value =
            json!({"args": ["a b", "c"], "env": [{"name": "A", "value": "y"}], "none": [], "x/y": true});
        let expected = "args:\n  - \"a b\"\n  - \"c\"\nenv:\n  -\n    name: \"A\"\n    value: \"y\"\nnone: []\n\"x/y\": true\n";
        assert_eq!(document(&value), expected);
    }
}
