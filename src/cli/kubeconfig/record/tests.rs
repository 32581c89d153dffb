use super::*;
use credbroker_credential::document::{Aliases, yaml};

fn of(text: &str) -> String {
    digest("users", &yaml(text.as_bytes(), Aliases::Refuse).unwrap())
}

#[test]
fn the_form_that_kubectl_writes_is_the_same_item() {
    let ours =
        of("{name: u, user: {exec: {command: x, args: [a, ''], provideClusterInfo: false, future: y}}}");
    assert_eq!(ours, of("{user: {exec: {args: [a, ''], command: x, env: null, installHint: ''}}, name: u}"));
    assert_eq!(
        of("{cluster: {certificate-authority: /a/../b}}"),
        of("{cluster: {certificate-authority: /b}}")
    );
    assert_eq!(
        of("{cluster: {certificate-authority-data: 'Y2E =', server: s}}"),
        of("{cluster: {server: s, certificate-authority-data: Y2E=}}")
    );
    assert_eq!(ours.len(), 16);
}

#[test]
fn what_has_a_meaning_counts() {
    let table = [
        "{name: u, context: {cluster: c, user: u}}",
        "{name: u, context: {cluster: c, user: u, namespace: shop}}",
        "{name: u, context: {cluster: c, user: v}}",
        "{name: u, user: {exec: {command: x, args: [a]}}}",
        "{name: u, user: {exec: {command: x, args: [a, '']}}}",
        "{name: u, user: {exec: {command: x, args: [a], env: [{name: A, value: b}]}}}",
        "{name: u, user: {exec: {command: x, args: [a], env: [{name: A, value: c}]}}}",
        "{name: u, cluster: {server: s, extensions: [{name: e, extension: {future: 1}}]}}",
        "{name: u, cluster: {server: s, extensions: [{name: e, extension: {future: 2}}]}}",
    ];
    let mut seen = HashMap::new();
    for text in table {
        assert_eq!(seen.insert(of(text), text), None, "{text}");
    }
}
