//! Writes a document as YAML that a YAML 1.1 parser (kubectl's) and a YAML 1.2 parser both read back as it was.

use std::fmt::Write as _;

use crate::document::{Key, Node, Value};

/// The document in block style. Text is quoted unless every reader takes it for text without quotes.
pub(super) fn yaml(node: &Node) -> String {
    let mut out = String::new();
    match &node.value {
        Value::Mapping(entries) if !entries.is_empty() => mapping(&mut out, entries, 0, false),
        Value::Sequence(items) if !items.is_empty() => sequence(&mut out, items, 0, false),
        value => {
            scalar(&mut out, value);
            out.push('\n');
        }
    }
    out
}

/// `inline`: the first entry goes on the line that is begun.
fn mapping(out: &mut String, entries: &[(Key, Node)], indent: usize, inline: bool) {
    for (index, (key, node)) in entries.iter().enumerate() {
        if index > 0 || !inline {
            out.extend(std::iter::repeat_n(' ', indent));
        }
        text(out, &key.name);
        out.push(':');
        match &node.value {
            Value::Mapping(entries) if !entries.is_empty() => {
                out.push('\n');
                mapping(out, entries, indent + 2, false);
            }
            Value::Sequence(items) if !items.is_empty() => {
                out.push('\n');
                sequence(out, items, indent, false);
            }
            value => {
                out.push(' ');
                scalar(out, value);
                out.push('\n');
            }
        }
    }
}

fn sequence(out: &mut String, items: &[Node], indent: usize, inline: bool) {
    for (index, node) in items.iter().enumerate() {
        if index > 0 || !inline {
            out.extend(std::iter::repeat_n(' ', indent));
        }
        out.push_str("- ");
        match &node.value {
            Value::Mapping(entries) if !entries.is_empty() => mapping(out, entries, indent + 2, true),
            Value::Sequence(items) if !items.is_empty() => sequence(out, items, indent + 2, true),
            value => {
                scalar(out, value);
                out.push('\n');
            }
        }
    }
}

fn scalar(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => out.push_str(number),
        Value::String(value) => text(out, value),
        Value::Sequence(_) => out.push_str("[]"), // the others are in block style
        Value::Mapping(_) => out.push_str("{}"),
    }
}

fn text(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // Printable in YAML 1.1, and no line break there.
            ' '..='~'
            | '\u{a0}'..='\u{2027}'
            | '\u{202a}'..='\u{d7ff}'
            | '\u{e000}'..='\u{fefe}'
            | '\u{ff00}'..='\u{fffd}' => out.push(c),
            _ => {
                let code = u32::from(c);
                let written =
                    if code > 0xffff { write!(out, "\\U{code:08x}") } else { write!(out, "\\u{code:04x}") };
                debug_assert!(written.is_ok(), "a String takes everything");
            }
        }
    }
    out.push('"');
}

/// Whether `text` is text without quotes too, in both versions of YAML: a letter, `/` or `--` and a letter first, so
/// no number and no indicator, and no word that means something else.
fn is_plain(text: &str) -> bool {
    let words = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let first = |c: char| c.is_ascii_alphabetic() || c == '/';
    let starts = text.strip_prefix("--").unwrap_or(text).starts_with(first);
    let rest = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_.:@+=-".contains(&byte));
    starts && rest && !text.ends_with(':') && !words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::{self, Aliases, Position};

    fn node(value: Value) -> Node {
        Node { at: Position::UNKNOWN, value }
    }

    fn tree() -> impl Strategy<Value = Node> {
        let words = prop::sample::select(vec![
            "y",
            "No",
            "null",
            "~",
            "",
            "1",
            "0x10",
            "1e3",
            ".inf",
            "1:30",
            "-",
            "?",
            "a: b",
            "a:",
            "<<",
            "=",
            "on",
            "2001-01-01",
            "#",
            "a #b",
            "*a",
            "&a",
            "!a",
            "|",
            "%a",
            "---",
            "...",
            "\u{85}\u{2028}\u{feff}\u{7f}",
            "https://host:6443/x",
            "--flag",
            "--flag=x",
            "--",
            "--1",
            "LS0t+/==",
            "a=",
            "name@host",
            "é",
            "\u{1f511}",
            " a ",
            "\"'\\",
            "\r\n\t\0\u{1b}",
            "[",
            "{}",
            "`",
        ]);
        let text = || prop_oneof![words.clone().prop_map(str::to_owned), ".{0,6}", any::<String>()];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(|number| Value::Number(number.to_string())),
            any::<f32>()
                .prop_filter("JSON has no other", |number| number.is_finite())
                .prop_map(|number| Value::Number(format!("{number:?}"))),
            text().prop_map(Value::String),
        ];
        let keys = text();
        leaf.prop_map(node).prop_recursive(5, 40, 4, move |inner| {
            let items = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Sequence);
            let entries = prop::collection::btree_map(keys.clone(), inner, 0..4).prop_map(|entries| {
                let key = |name| Key { name, at: Position::UNKNOWN };
                Value::Mapping(entries.into_iter().map(|(name, node)| (key(name), node)).collect())
            });
            prop_oneof![items, entries].prop_map(node)
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_as_it_was(tree in tree()) {
            let text = yaml(&tree);
            let back = document::yaml(text.as_bytes(), Aliases::Refuse);
            let back = back.map_err(|error| TestCaseError::fail(format!("{error} in:\n{text}")))?;
            prop_assert_eq!(back.to_json(), tree.to_json(), "{}", text);
        }

        #[test]
        fn what_is_written_is_printable(tree in tree()) {
            let text = yaml(&tree);
            prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{}", text);
        }
    }

    #[test]
    fn it_looks_as_kubectl_writes_it() {
        let text = "\
apiVersion: v1
clusters:
- cluster:
    server: https://host:6443
    extensions:
    - extension: {}
      name: \"on\"
  name: a b
empty: []
nested:
- - 1
  - null
- {}
true: 1
";
        let tree = document::yaml(text.as_bytes(), Aliases::Refuse).unwrap();
        assert_eq!(yaml(&tree), text.replace("a b", "\"a b\"").replace("true:", "\"true\":"));
    }
}
