use proptest::prelude::*;

use super::super::*;
use credbroker_credential::document::{self, Aliases, Key, Position, Value};

fn node(value: Value) -> Node {
    value.into()
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
        let text = yaml(&tree).unwrap();
        let back = document::yaml(text.as_bytes(), Aliases::Refuse);
        let back = back.map_err(|error| TestCaseError::fail(format!("{error} in:\n{text}")))?;
        prop_assert_eq!(back.to_json(), tree.to_json(), "{}", text);
    }

    #[test]
    fn what_is_written_is_printable(tree in tree()) {
        let text = yaml(&tree).unwrap();
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
    assert_eq!(yaml(&tree).unwrap(), text.replace("true:", "\"true\":"));
}
