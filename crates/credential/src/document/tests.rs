mod edit;

use std::fmt::Write;

use proptest::prelude::*;
use serde::Serialize as _;
use serde_json::json;

use super::{
    ParseErrorKind::{self, *},
    node::{MAX_NODES, MAX_OUTPUT_NODES},
    *,
};

type Read = fn(&[u8]) -> Result<Node, ParseError>;

const READERS: [Read; 2] = [refusing, following];

fn refusing(bytes: &[u8]) -> Result<Node, ParseError> {
    yaml(bytes, Aliases::Refuse)
}

fn following(bytes: &[u8]) -> Result<Node, ParseError> {
    yaml(bytes, Aliases::Follow)
}

fn tree(text: &str) -> serde_json::Value {
    refusing(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}")).to_json()
}

#[track_caller]
fn refused(result: Result<Node, ParseError>, kind: ParseErrorKind, line: u32, column: u32) {
    assert_eq!(result.unwrap_err(), kind.at(Position { line, column }));
}

#[test]
fn every_reader_reads_json() {
    let text = r#" {"a": [1, -2, 1.5, true, null, "x\u00e9\ud83d\ude00\n\/"], "b": {"c": {}}, "": []}
"#;
    let expected: serde_json::Value = serde_json::from_str(text).unwrap();
    for read in READERS {
        assert_eq!(read(text.as_bytes()).unwrap().to_json(), expected);
        assert_eq!(read(format!("\u{feff}{text}").as_bytes()).unwrap().to_json(), expected);
        let long = json!({ "x".repeat(1000): "y".repeat(100_000) });
        assert_eq!(read(long.to_string().as_bytes()).unwrap().to_json(), long);
    }
}

#[test]
fn unquoted_scalars_mean_what_kubernetes_reads() {
    let cases = [
        ("~ null Null NULL", json!(null)),
        ("y Y yes Yes YES true True TRUE on On ON", json!(true)),
        ("n N no No NO false False FALSE off Off OFF", json!(false)),
        ("16 0x10 0X10 020 0o20 0b10000 +16 1_6 +0x1_0", json!(16)),
        ("-16 -0x10 -020 -0b10000", json!(-16)),
        ("18446744073709551615", json!(u64::MAX)),
        ("1.5 1.5e0 +1.5 15e-1 1_.5", json!(1.5)),
        (".5 .5_0", json!(0.5)),
        ("08", json!(8)),
        ("8. 8e0", json!(8.0)),
        ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
    ];
    for (scalars, expected) in cases {
        for scalar in scalars.split(' ') {
            assert_eq!(tree(&format!("a: {scalar}")), json!({ "a": expected }), "{scalar}");
        }
    }
    let texts = "nULL yEs tRUE 0x 0b2 1e 1e999 .e5 . + -- +-1 0x-1 1.2.3 12:30 2001-01-01 ._5 .5_ .5__0 2020-01-02T03:04:05Z v1 \
                 _1 0xg nan inf 1,5";
    for text in texts.split(' ') {
        assert_eq!(tree(&format!("a: {text}")), json!({ "a": text }));
    }
    for special in [".inf", "-.INF", "+.Inf", ".NaN"] {
        let node = refusing(special.as_bytes()).unwrap();
        assert_eq!((node.as_number(), node.to_json()), (Some(special), json!(special)));
    }
    assert_eq!(
        tree("a:\nb: ''\nc: \"1\"\nd: 'true'\ne: |\n  5\nf: >-\n  no\n"),
        json!({
            "a": null, "b": "", "c": "1", "d": "true", "e": "5\n", "f": "no",
        })
    );
    assert_eq!(tree("{1: a, y: b, 0x10: c}"), json!({ "1": "a", "true": "b", "16": "c" }));
}

#[test]
fn nodes_and_keys_know_their_line() {
    let node = refusing(b"# comment\na: 1\nb:\n  - x\n  - 'y'\n").unwrap();
    let [(a, one), (b, list)] = node.as_mapping().unwrap() else { panic!("{node:?}") };
    let places = [a.at, one.at, b.at, list.as_sequence().unwrap()[1].at];
    assert_eq!(places.map(|at| (at.line, at.column)), [(2, 1), (2, 4), (3, 1), (5, 5)]);
    assert_eq!(node.get("b").unwrap().value.kind(), "a list");
    assert!(node.get("c").is_none());
}

#[test]
fn one_document_may_have_markers_comments_and_blanks_around_it() {
    for text in [
        "a: 1",
        "---\na: 1\n",
        "a: 1\n---\n",
        "---\na: 1\n...\n",
        "--- # c\na: 1\n--- # c\n# c\n",
        "\n\n# c\na: 1\n\n",
        "\u{feff}---\na: 1",
        "%YAML 1.1\n---\na: 1",
        "# c\n---\na: 1",
        "a: 1\r\n",
        "---\n---\na: 1\n---\n---\n",
        "--- {a: 1}\n",
    ] {
        assert_eq!(tree(text), json!({ "a": 1 }), "{text:?}");
    }
}

#[test]
fn what_is_not_exactly_one_document_is_refused_with_its_place() {
    refused(refusing(b"a: 1\n---\nb: 2\n"), SecondDocument, 3, 1);
    refused(refusing(b"a: 1\n--- ~\n"), SecondDocument, 2, 5);
    refused(refusing(b"{a: 1}\ndone\n"), TextAfter, 2, 1);
    refused(refusing(b"{}\n{}"), TextAfter, 2, 1);
    refused(refusing(b"{\"a\":1}\nlogged in\n"), TextAfter, 2, 1);
    for read in READERS {
        refused(read(b""), Empty, 1, 1);
        refused(read(b" \n\n"), Empty, 1, 1);
    }
    refused(refusing(b"--- # nothing\n"), Empty, 1, 1);
}

#[test]
fn a_document_that_is_not_well_formed_names_the_rule_and_quotes_nothing() {
    let table = [
        "a: [1\n",
        "{\"a\": ]",
        "{\"a\": 1",
        "clusters:\n- name: a\n  cluster: {server: https://a, tls: b: c}\n",
        "a: {b: 1 c: 2}\n",
        "a: {b: 'c' d: 2}\n",
        "a: 'b\n",
        "a: 'b' c\n",
        "a: \"\\q\"\n",
        "a:\n\tb: 1\n",
        "a:\n    b: 1\n  c: 2\n",
        "a: b: c\n",
        "a: @b\n",
        "a: 1\nsecret\n",
    ];
    let shown = table.map(|text| {
        let error = refusing(text.as_bytes()).unwrap_err();
        assert!(matches!(error.kind, Syntax(_)), "{text:?}: {error:?}");
        refused(following(text.as_bytes()), error.kind, error.at.line, error.at.column);
        format!("{text:?}: {error}")
    });
    insta::assert_snapshot!(shown.join("\n"), @r#"
"a: [1\n": the document is not well-formed: a list that begins with `[` does not end with `]` (line 1, column 4)
"{\"a\": ]": the document is not well-formed: a closing bracket or brace does not belong to the opening one (line 1, column 1)
"{\"a\": 1": the document is not well-formed: a map that begins with `{` does not end with `}` (line 1, column 1)
"clusters:\n- name: a\n  cluster: {server: https://a, tls: b: c}\n": the document is not well-formed: in a map in braces, `,` or `}` is missing (line 3, column 38)
"a: {b: 1 c: 2}\n": the document is not well-formed: in a map in braces, `,` or `}` is missing (line 1, column 11)
"a: {b: 'c' d: 2}\n": the document is not well-formed: there is text behind a closing quote (line 1, column 12)
"a: 'b\n": the document is not well-formed: a quote is not closed, or the text in it is not indented (line 2, column 1)
"a: 'b' c\n": the document is not well-formed: there is text behind a closing quote (line 1, column 8)
"a: \"\\q\"\n": the document is not well-formed: a string in quotes has an escape that is not valid (line 1, column 4)
"a:\n\tb: 1\n": the document is not well-formed: there is a tab where only spaces are allowed (line 2, column 2)
"a:\n    b: 1\n  c: 2\n": the document is not well-formed: the indentation does not fit the lines above (line 3, column 3)
"a: b: c\n": the document is not well-formed: there is a `:` where none may be; put a value with `: ` in quotes (line 1, column 5)
"a: @b\n": the document is not well-formed: a value begins with a character that needs quotes (line 1, column 4)
"a: 1\nsecret\n": the document is not well-formed: a key without `:` behind it (line 2, column 1)
"#);
}

#[test]
fn a_document_that_starts_with_a_brace_may_be_yaml() {
    let node = refusing(b"{a: 1,\n b: x} # c\n").unwrap();
    assert_eq!(node.to_json(), json!({ "a": 1, "b": "x" }));
}

#[test]
fn duplicate_keys_are_refused() {
    refused(refusing(b"a: 1\nb:\n  c: 1\n  'c': 2\n"), DuplicateKey, 4, 3);
    refused(refusing(b"{y: 1, true: 2}"), DuplicateKey, 1, 8);
    for read in READERS {
        assert_eq!(read(br#"{"a":{"x":1,"x":2}}"#).unwrap_err().kind, DuplicateKey);
        assert_eq!(read(br#"{"a":1,"\u0061":2}"#).unwrap_err().kind, DuplicateKey);
    }
}

#[test]
fn sixty_four_levels_are_accepted_and_no_more() {
    let nested =
        |open: &str, close: &str, levels| format!("{}1{}", open.repeat(levels), close.repeat(levels));
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        for read in READERS {
            read(nested(open, close, 64).as_bytes()).unwrap();
            for levels in [65, 200, 100_000] {
                assert_eq!(read(nested(open, close, levels).as_bytes()).unwrap_err().kind, TooDeep);
            }
        }
    }
    let block = |levels| (0..levels).fold(String::new(), |text, level| text + &" ".repeat(level) + "a:\n");
    refusing(block(64).as_bytes()).unwrap();
    assert_eq!(refusing(block(65).as_bytes()).unwrap_err().kind, TooDeep);
    let mixed = |flow| format!("{}{}{}", "- ".repeat(32), "[".repeat(flow), "]".repeat(flow));
    refusing(mixed(32).as_bytes()).unwrap();
    assert_eq!(refusing(mixed(33).as_bytes()).unwrap_err().kind, TooDeep);
    let aliased = format!("- &a {}\n- {}*a{}\n", nested("[", "]", 40), "[".repeat(30), "]".repeat(30));
    assert_eq!(following(aliased.as_bytes()).unwrap_err().kind, TooDeep);
}

#[test]
fn what_is_not_text_is_refused() {
    for read in READERS {
        refused(read(b"{\"a\":\n\"\xc3\xa9\xff\"}"), NotUtf8, 2, 3);
        assert!(matches!(read(br#"{"a":"\ud800"}"#).unwrap_err().kind, Syntax(_)));
        assert!(matches!(read(br#"{"a":"\udc00x"}"#).unwrap_err().kind, Syntax(_)));
        assert!(matches!(read(b"{\"a\":\"\x01\"}").unwrap_err().kind, Syntax(_)));
    }
    let utf16: Vec<_> = "{\"a\":1}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(matches!(refusing(&utf16).unwrap_err().kind, Syntax(_)));
}

#[test]
fn plugin_output_has_no_aliases_tags_or_merges() {
    refused(refusing(b"a: &x 1\nb: *x\n"), Alias, 2, 4);
    refused(refusing(b"a: *x\n"), Alias, 1, 4);
    refused(refusing(b"a: {b: 1}\n<<: {c: 1}\n"), MergeKey, 2, 1);
    for tag in ["!!str", "!!binary", "!custom", "!", "!<tag:x>", "!x!y"] {
        assert_eq!(refusing(format!("a: {tag} x\n").as_bytes()).unwrap_err().kind, Tag, "{tag}");
    }
    assert_eq!(refusing(b"a: !!map {}\n").unwrap_err().kind, Tag);
    refused(refusing(b"[a]: 1\n"), Key, 1, 1);
    refused(refusing(b"? {a: 1}\n: 1\n"), Key, 1, 3);
    refused(refusing(b"~: 1\n"), Key, 1, 1);
    assert_eq!(tree("'<<': 1"), json!({ "<<": 1 }));
}

#[test]
fn a_config_may_have_anchors_merges_and_the_text_tag() {
    let text = "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\none:\n  b: 5\n  <<: *base\n\
                both:\n  <<: [*base, *more]\n  d: 6\nlist: &l [x]\nagain: *l\ntext: !!str 1\nnone: !!str\nz: 1\n";
    assert_eq!(
        following(text.as_bytes()).unwrap().to_json(),
        json!({
            "base": { "a": 1, "b": 2 }, "more": { "b": 3, "c": 4 },
            "one": { "a": 1, "b": 5 }, "both": { "a": 1, "b": 2, "c": 4, "d": 6 },
            "list": ["x"], "again": ["x"], "text": "1", "none": "", "z": 1,
        })
    );
    refused(following(b"a: *x\n"), Alias, 1, 4);
    refused(following(b"a: &x [*x]\n"), Alias, 1, 8);
    refused(following(b"a:\n  <<: 1\n"), MergeKey, 2, 7);
    refused(following(b"a:\n  <<: [{}, 1]\n"), MergeKey, 2, 12);
    refused(following(b"a: {<<: {}, <<: {}}\n"), DuplicateKey, 1, 13);
    assert_eq!(following(b"a: !!binary x\n").unwrap_err().kind, Tag);
}

#[test]
fn aliases_cannot_blow_a_document_up() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let alias = format!("*a{},", level - 1).repeat(10);
        writeln!(text, "a{level}: &a{level} [{alias}]").unwrap();
    }
    let error = following(text.as_bytes()).unwrap_err();
    assert_eq!(error.kind, TooBig);
    insta::assert_snapshot!(error, @"anchors and aliases add more than 200000 keys and values, or more than 4 MiB of text; write fewer of them (line 5, column 9)");
}

#[test]
fn the_keys_and_values_of_a_document_are_limited() {
    let list = |values: usize| format!("{{\"a\": [1{}]}}", ",1".repeat(values - 1));
    // The map, its key and the list count too.
    for (most, read) in [(MAX_NODES - 3, following as Read), (MAX_OUTPUT_NODES - 3, refusing)] {
        assert!(read(list(most).as_bytes()).is_ok());
        assert_eq!(read(list(most + 1).as_bytes()).unwrap_err().kind, TooMany(most + 3));
    }
    let map = |keys: usize| {
        (0..keys).fold(String::new(), |mut text, key| {
            writeln!(text, "k{key}: 1").unwrap();
            text
        })
    };
    assert!(following(map(1000).as_bytes()).is_ok());
    assert_eq!(following(map(MAX_NODES / 2).as_bytes()).unwrap_err().kind, TooMany(MAX_NODES));
}

/// A copy of a small value takes many times its text.
#[test]
fn copies_of_aliases_are_counted_by_number_and_by_text() {
    let of = |anchored: &str, aliases: usize| {
        let text = format!("a: &a {anchored}\nb: [{}]\n", "*a,".repeat(aliases));
        following(text.as_bytes()).map_err(|error| error.kind)
    };
    assert!(of("x", 199_999).is_ok());
    assert_eq!(of("x", 200_000).unwrap_err(), TooBig);
    assert_eq!(of("[]", 200_000).unwrap_err(), TooBig);
    assert_eq!(of("{k: v}", 70_000).unwrap_err(), TooBig);
    let text = "x".repeat(1 << 20);
    assert!(of(&text, 3).is_ok());
    assert_eq!(of(&text, 4).unwrap_err(), TooBig);
    assert_eq!(of(&format!("{{{}: v}}", "x".repeat(1000)), 4200).unwrap_err(), TooBig);
    // An anchor keeps a copy too, in each collection around it.
    let nested = format!("{}x{}", "&a [".repeat(60), "]".repeat(60));
    assert_eq!(
        following(format!("[{}]", format!("{nested},").repeat(200)).as_bytes()).unwrap_err().kind,
        TooBig
    );
}

#[test]
fn a_kubeconfig_with_anchors_for_each_of_a_thousand_clusters_is_read() {
    let mut text = "authority: &ca ".to_owned()
        + &"A".repeat(2000)
        + "\nexec: &exec {command: c, args: [a, b], env: [{name: n, value: v}]}\n";
    text += "list:\n";
    for number in 0..1000 {
        writeln!(
            text,
            "- {{name: n{number}, ca: *ca, user: {{exec: {{<<: *exec, interactiveMode: Never}}}}}}"
        )
        .unwrap();
    }
    assert!(following(text.as_bytes()).is_ok());
}

#[test]
fn neither_debug_nor_an_error_shows_any_text() {
    let canary = "CaNaRy";
    let tree = following(format!("{canary}: [{canary}, '{canary}', 12345678]\n").as_bytes()).unwrap();
    let shown = format!("{tree:?} {tree:#?}");
    assert!(!shown.contains(canary) && !shown.contains("12345678"), "{shown}");
    for text in [
        "a: *@",
        "a: !@ x",
        "a: !@!x y",
        "@: 1\n@: 2",
        "[@]: 1",
        "a: @\n---\n@",
        "{\"a\":\"@\"} @",
        "{\"@\":\"\\u@\"}",
        "%@ x\n--- @",
        "a: {@",
        "a: '@",
        "@: @: @",
        "{\"a\": @}",
        "a: [@]]",
        "<<: @",
        "- @\n@",
        "\"@\\q\"",
        "&@ @",
    ] {
        let text = text.replace('@', canary);
        for read in READERS {
            if let Err(error) = read(text.as_bytes()) {
                let shown = format!("{error} {error:?}");
                assert!(!shown.contains(canary), "{text:?}: {shown}");
                assert!(std::error::Error::source(&error).is_none());
            }
        }
    }
}

#[test]
fn messages_say_what_and_where() {
    let error = refusing(b"a: 1\na: 2\n").unwrap_err();
    assert_eq!(error.to_string(), "a key appears twice in one map (line 2, column 1)");
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for read in READERS {
            drop(read(&bytes));
        }
    }

    #[test]
    fn no_yaml_like_text_makes_a_reader_panic(
        text in "([a-c*&!<>|%#'\"\\[\\]{}:,~ \\n\\t-]|- |: |\n  |---\n|\\.\\.\\.\n|<<: |\\\\u[d8]{4}){0,60}",
    ) {
        for read in READERS {
            drop(read(text.as_bytes()));
        }
    }

    #[test]
    fn json_is_read_as_it_is(value in json_value()) {
        let mut pretty = Vec::new();
        let format = serde_json::ser::PrettyFormatter::with_indent(b"\t");
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut pretty, format)).unwrap();
        for text in [value.to_string().into_bytes(), pretty] {
            prop_assert_eq!(refusing(&text).unwrap().to_json(), value.clone());
        }
    }
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|value| json!(value)),
        any::<i64>().prop_map(|value| json!(value)),
        any::<String>().prop_map(|value| json!(value)),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| json!(items)),
            prop::collection::btree_map("[a-z/ ]{0,4}", inner, 0..5).prop_map(|entries| json!(entries)),
        ]
    })
}
