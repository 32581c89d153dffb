use crate::document::{Aliases, yaml};

fn found<'a>(text: &'a str, path: &[&str]) -> &'a str {
    let root = yaml(text.as_bytes(), Aliases::Follow).unwrap();
    let part = path.iter().fold(&root, |part, key| match key.parse::<usize>() {
        Ok(index) => &part.as_sequence().unwrap()[index],
        Err(_) => part.get(key).unwrap(),
    });
    &text[part.range.clone()]
}

const BLOCK: &str = "# head
users:
- name: é   # a comment
  user:
    exec:
      command: aws
      args:
      - eks
      - |
        two
        lines

      env:   # nothing
    # after
    other: {a: [1, 2], b: }
- name: second
";

#[test]
fn each_part_is_found_without_the_space_and_the_comments_behind_it() {
    let exec = "command: aws\n      args:\n      - eks\n      - |\n        two\n        lines\n\n      env:";
    assert_eq!(found(BLOCK, &["users", "0", "user", "exec"]), exec);
    assert_eq!(found(BLOCK, &["users", "0", "name"]), "é");
    assert_eq!(found(BLOCK, &["users", "0", "user", "other"]), "{a: [1, 2], b: }");
    assert_eq!(found(BLOCK, &["users", "0", "user", "other", "a"]), "[1, 2]");
    assert_eq!(found(BLOCK, &["users", "1"]), "name: second");
    assert_eq!(found(BLOCK, &["users", "0", "user", "exec", "env"]), "");
    let root = yaml(BLOCK.as_bytes(), Aliases::Follow).unwrap();
    let users = root.get("users").unwrap().as_sequence().unwrap();
    let exec = users[0].get("user").unwrap().get("exec").unwrap();
    assert_eq!((exec.at.column, exec.is_block(BLOCK)), (7, true));
}

#[test]
fn json_and_a_text_with_a_byte_order_mark_are_found_too() {
    let json = "\u{feff}{\"users\": [{\"name\": \"u\", \"user\": {\"exec\": {\"command\": \"x\"}}}]}\r\n";
    assert_eq!(found(json, &["users", "0", "user", "exec"]), "{\"command\": \"x\"}");
    assert_eq!(found(json, &["users"]), &json[13..json.len() - 3]);
}

#[test]
fn aliases_and_quoted_texts_are_found_whole() {
    let text = "a: &x {b: c}\nd: *x\ne: 'it''s'\nf: \"\\n\" # g\n";
    assert_eq!(found(text, &["d"]), "*x");
    assert_eq!(found(text, &["e"]), "'it''s'");
    assert_eq!(found(text, &["f"]), "\"\\n\"");
}
