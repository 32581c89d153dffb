use super::*;
use crate::problem::lines;
use credbroker_credential::document::{Aliases, yaml};

#[test]
fn a_mode_is_one_that_a_socket_can_use() {
    for (text, expected) in
        [("0600", 0o600), ("600", 0o600), ("0660", 0o660), ("0666", 0o666), ("0620", 0o620)]
    {
        assert_eq!(mode(text), Some(expected), "{text}");
    }
    for text in ["", "0", "0400", "0060", "0700", "0670", "4600", "00600", "0o600", "+600", "0680", "rw"] {
        assert_eq!(mode(text), None, "{text}");
    }
}

#[test]
fn everything_that_is_wrong_is_reported_with_its_place() {
    let text = "a: 1\nb: text\nc: [x, 2]\nlimts: 4\nn:\n";
    let node = yaml(text.as_bytes(), Aliases::Follow).unwrap();
    let report = Report::default();
    let root = Cursor::new(Path::new("f"), Dialect::Strict, &node, &report);
    let fields = root.fields(&["a", "b", "c", "limits", "n"]).unwrap();
    assert_eq!(fields.get("a").unwrap().text(), None);
    assert_eq!(fields.get("b").unwrap().boolean(), None);
    assert_eq!(fields.items_of("c").iter().filter_map(Cursor::text).collect::<Vec<_>>(), ["x"]);
    assert!(fields.get("n").is_none());
    insta::assert_snapshot!(lines(&report.findings.borrow().problems), @r"
f:4:1: unknown key `limts`, did you mean `limits`?
f:5:1: unknown key `false`
f:1:4: a: expected a string, found a number; put it in quotes
f:2:4: b: expected a boolean, found a string
f:3:8: c[1]: expected a string, found a number; put it in quotes
");
}
