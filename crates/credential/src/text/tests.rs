use super::*;

#[test]
fn what_a_terminal_would_obey_is_written_out() {
    for (text, clean) in [
        ("\u{1b}[31mred\u{1b}[0m", "U+001B[31mredU+001B[0m"),
        ("\u{9b}2J", "U+009B2J"),
        (
            "bell\u{7} null\0 backspace\u{8} delete\u{7f}",
            "bellU+0007 nullU+0000 backspaceU+0008 deleteU+007F",
        ),
        ("line\rover", "lineU+000Dover"),
        ("next\u{85}line\u{2028}para\u{2029}", "nextU+0085lineU+2028paraU+2029"),
        ("exe\u{202e}gpj\u{202c}\u{2066}\u{2069}\u{200f}", "exeU+202EgpjU+202CU+2066U+2069U+200F"),
        ("zero\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}\u{ad}", "zeroU+200BU+200CU+200DU+2060U+FEFFU+00AD"),
        ("tag\u{e0041} private\u{e000} none\u{378}", "tagU+E0041 privateU+E000 noneU+0378"),
    ] {
        assert_eq!(sanitize(text), clean);
        assert_eq!(sanitize(clean), clean);
    }
}

#[test]
fn text_in_any_script_stays() {
    for text in [
        "plain 'quoted' \"twice\" \\ {x}",
        "naïve e\u{301} Größe",
        "日本語 العربية हिन्दी",
        "→ ✅ 👍",
        "a\tb\nc\u{a0}d\u{3000}e",
    ] {
        assert_eq!(sanitize(text), text);
    }
}

#[test]
fn escaped_json_has_the_same_values_and_only_visible_characters() {
    let value = serde_json::json!({
        "controls \u{7f}\u{9b}2J\u{1b}[2J": "line\nbreak \u{85}\u{2028}",
        "directions": ["exe\u{202e}gpj\u{2066}", "zero\u{200b}\u{feff}", "tag\u{e0041}"],
        "text": "Größe 日本語 👍 \"quoted\" \\\\",
    });
    for document in [value.to_string(), format!("{value:#}")] {
        let escaped = escape_json(&document);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
        assert_eq!(sanitize(&escaped), escaped, "nothing is left to write out");
        assert!(escaped.contains("Größe 日本語 👍") && escaped.contains("\\udb40\\udc41"), "{escaped}");
        assert_eq!(escape_json(&escaped), escaped);
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Layer {
    text: &'static str,
    source: Option<Box<Layer>>,
}

fn layers(texts: &[&'static str]) -> Option<Box<Layer>> {
    let (text, below) = texts.split_first()?;
    Some(Box::new(Layer { text, source: layers(below) }))
}

#[test]
fn a_chain_names_each_cause_once() {
    let chained = |texts: &[&'static str]| chain(&*layers(texts).unwrap());
    assert_eq!(chained(&["cannot connect"]), "cannot connect");
    assert_eq!(
        chained(&["cannot connect", "TLS failed", "bad certificate"]),
        "cannot connect: TLS failed: bad certificate"
    );
    assert_eq!(
        chained(&["cannot connect: TLS failed", "TLS failed", "expired"]),
        "cannot connect: TLS failed: expired"
    );
}

#[test]
fn a_typo_gets_a_suggestion_and_another_word_does_not() {
    let known = ["connections", "watchesPerConnection", "pluginRuns", "gke"];
    assert_eq!(nearest("conections", known), Some("connections"));
    assert_eq!(nearest("plugin_runs", known), Some("pluginRuns"));
    assert_eq!(nearest("PLUGINRUNS", known), Some("pluginRuns"));
    assert_eq!(nearest("gek", known), Some("gke"));
    assert_eq!(nearest("socket", known), None);
    assert_eq!(nearest("", known), None);
    assert_eq!(nearest(&"x".repeat(1 << 20), ["x".repeat(1 << 20).as_str()]), None);
}

#[test]
fn a_name_is_short_and_cannot_control_a_terminal() {
    assert_eq!(shown("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
    assert_eq!(shown(&"x".repeat(101)), format!("{}…", "x".repeat(100)));
    assert_eq!(one_line(" a\n\tb\u{1b}[2J "), "a bU+001B[2J");
    assert_eq!(listed(&[]), "none");
    assert_eq!(listed(&vec!["x".to_owned(); 21]), format!("{} and 1 more", ["x"; 20].join(", ")));
}

#[test]
fn a_path_that_is_shown_keeps_its_end_and_steers_no_terminal() {
    let path = format!("/{}/\u{1b}[2J/config", "x".repeat(500));
    let shown = shown_path(Path::new(&path));
    assert!(shown.starts_with('…') && shown.ends_with("/\\u{1b}[2J/config"), "{shown}");
    assert_eq!(shown.chars().count(), 121);
}

#[test]
fn a_quoted_name_is_one_word_of_a_shell() {
    for (name, word) in [
        ("arn:aws:eks:eu-west-3:1:cluster/prod", "arn:aws:eks:eu-west-3:1:cluster/prod"),
        ("Ann Müller / on-call", "'Ann Müller / on-call'"),
        ("it's $(me)", r"'it'\''s $(me)'"),
        ("~", "'~'"),
        ("", "''"),
        ("a\u{202e}b", "'aU+202Eb'"),
    ] {
        assert_eq!(quoted(name), word);
    }
}
