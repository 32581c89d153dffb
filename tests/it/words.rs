//! No text that people read has a word of `WORDS`: documents, help, errors, logs, comments and names.
//!
//! `CONTRIBUTING.md` has the rules and examples. `WORDS=crates/fleet/src/hub cargo test --test it words` checks one directory.

use std::{fs, path::Path};

/// What not to write, and what to write instead. A literal such as the user `nobody` goes in backticks.
const WORDS: [(&str, &str); 29] = [
    ("anew", "again"),
    ("any more", "no longer"),
    ("anything but", "the positive statement"),
    ("are none of", "are not"),
    ("are no", "are not"),
    ("by way of", "through"),
    ("everybody", "everyone, or who exactly: all callers, other users"),
    ("for ever", "until it stops, without end, or leave it out"),
    ("gave nothing", "failed, returned no credential"),
    ("gives nothing", "fails, returns no credential"),
    ("heals", "recovers"),
    ("in the same breath", "together"),
    ("is had", "is known, is held"),
    ("is none of", "must be one of, is not"),
    ("is no", "is not a, is not a valid"),
    ("knows no", "has no, does not know"),
    ("knows of", "knows"),
    ("nobody", "no caller, no one, another user"),
    ("of its own", "its own, a separate"),
    ("of their own", "their own, separate"),
    ("somebody", "a caller, another user, a person"),
    ("stands", "is, means"),
    ("tells", "says, reports, notifies"),
    ("these days", "now, or leave it out"),
    ("told", "given, sent, notified"),
    ("whatever", "any, everything that"),
    ("where it is for", "the cluster that it is for"),
    ("whoever", "a caller that, anyone who, users who"),
    ("whomever", "the user that"),
];

const ROOTS: [&str; 17] = [
    ".ci",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.toml",
    "README.md",
    "benches",
    "client",
    "crates",
    "clippy.toml",
    "deploy",
    "docs",
    "examples",
    "fuzz",
    "proto",
    "src",
    "systemd",
    "tests",
];

/// Generated, foreign, or this list itself.
const SKIPPED: [&str; 7] =
    ["target", "corpus", "fixtures", "generated", "node_modules", "words.rs", "Cargo.lock"];

#[test]
fn texts_use_plain_words() {
    let only = std::env::var("WORDS").unwrap_or_default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut findings = Vec::new();
    for path in ROOTS {
        visit(root, path, &mut findings);
    }
    findings.retain(|finding| finding.starts_with(&only));
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn a_phrase_is_found_across_lines_and_not_across_sentences() {
    let found = |text: &str| check(text).into_iter().map(|(line, word, _)| (line, word)).collect::<Vec<_>>();
    assert_eq!(found("/// A run of\n/// its own."), [(1, "of its own")]);
    assert_eq!(found("\n\"the key is \\\n no PEM\""), [(2, "is no")]);
    assert_eq!(found("fn a_caller_is_told() {}"), [(1, "told")]);
    assert_eq!(found("struct CallerIsTold; http.NoBody, TestANewOne"), [(1, "told")]);
    assert_eq!(found("Say what it is. No plugin runs; there is no longer one, there are no more."), []);
    assert_eq!(found("uid 65534 (`nobody`), and it is no longer one"), []);
    assert_eq!(found("<!-- words: examples -->told<!-- words: end -->"), []);
}

fn visit(root: &Path, path: &str, findings: &mut Vec<String>) {
    let (name, full) = (path.rsplit('/').next().unwrap_or(path), root.join(path));
    if SKIPPED.contains(&name) || !full.exists() {
        return;
    }
    if full.is_dir() {
        let entries = fs::read_dir(&full).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.filter_map(|name| name.into_string().ok()).collect();
        names.sort();
        for name in names {
            visit(root, &format!("{path}/{name}"), findings);
        }
    } else if let Ok(text) = fs::read_to_string(&full) {
        let found = check(&text).into_iter();
        findings.extend(found.map(|(line, word, instead)| format!("{path}:{line}: `{word}`: {instead}")));
    }
}

/// Line, word, and what to write instead.
fn check(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let tokens = tokens(text);
    let phrases = WORDS.map(|(phrase, instead)| (phrase.split(' ').collect::<Vec<_>>(), phrase, instead));
    let word = |at: usize| tokens.get(at).map_or("", |token| token.1.as_str());
    let mut found = Vec::new();
    for (start, (line, _)) in tokens.iter().enumerate() {
        let before = if start == 0 { "" } else { word(start - 1) };
        for (parts, phrase, instead) in &phrases {
            let after = word(start + parts.len());
            let is_literal = before == "`" && after == "`";
            let is_idiom = phrase.ends_with(" no") && (before == "there" || after == "longer");
            if parts.iter().zip(start..).all(|(part, at)| word(at) == *part) && !is_literal && !is_idiom {
                found.push((*line, *phrase, *instead));
            }
        }
    }
    found
}

/// `line` in lower case, and with the words of a name such as `NoBody` or `ANewOne` apart.
fn words_of_names(line: &str) -> String {
    let mut words = String::with_capacity(line.len());
    let mut before = ' ';
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let ends_acronym =
            before.is_uppercase() && characters.peek().is_some_and(|after| after.is_lowercase());
        if character.is_uppercase() && (before.is_lowercase() || ends_acronym) {
            words.push(' ');
        }
        before = character;
        words.extend(character.to_lowercase());
    }
    words
}

/// Words and punctuation with their lines, without comment markers, continued lines and the examples of what not to
/// write. Punctuation and empty lines end a phrase.
fn tokens(text: &str) -> Vec<(usize, String)> {
    let mut tokens = Vec::new();
    let mut is_example = false;
    for (line, number) in text.lines().zip(1..) {
        is_example =
            (is_example || line.contains("<!-- words: examples -->")) && !line.contains("words: end");
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || "/!#*>-".contains(c));
        let line = words_of_names(line.trim_end_matches(['\\', ' ']));
        if is_example || line.contains("words: end") {
            continue;
        }
        let mut rest = line.as_str();
        while let Some(first) = rest.chars().next() {
            let length = rest.find(|c: char| !c.is_alphanumeric()).filter(|end| *end > 0);
            let is_word = first.is_alphanumeric();
            let length = if is_word { length.unwrap_or(rest.len()) } else { first.len_utf8() };
            let (token, tail) = rest.split_at(length);
            if is_word || !(first.is_whitespace() || first == '_') {
                tokens.push((number, token.to_owned()));
            }
            rest = tail;
        }
        if line.is_empty() {
            tokens.push((number, String::new()));
        }
    }
    tokens
}
