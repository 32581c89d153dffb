use std::path::Path;

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn shim() -> Shim {
    Shim { command: "credbroker-exec".into(), is_subcommand: false, flags: Vec::new() }
}

fn brokered_text(text: &str) -> Edited {
    broker(text, Path::new("/home/ann/.kube"), &shim(), |_| true).unwrap()
}

/// Puts the shim into `text` and takes it away again.
#[track_caller]
fn there_and_back(text: &str) -> String {
    let new = brokered_text(text);
    assert_eq!(new.refused, [], "{text}");
    let back = restore(&new.text, |_| true).unwrap();
    assert_eq!(back.text, text);
    assert_eq!(back.changed, new.changed);
    new.text
}

const BLOCK: &str = r#"apiVersion: v1
users:
# production
- name: prod
  user:
    exec: # of the cloud
      apiVersion: client.authentication.k8s.io/v1beta1
      command: "aws"   # from pip
      args:
      # which cluster
      - eks
      - get-token
      env:
      - name: AWS_PROFILE
        value: prod
      interactiveMode: 'Always'
      provideClusterInfo: false
"#;

#[test]
fn the_shim_is_in_front_of_the_original() {
    insta::assert_snapshot!(there_and_back(BLOCK));
}

#[test]
fn a_stanza_in_flow_style_stays_on_its_line() {
    let text = "users: [{name: prod, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, args: [eks, 'x'], interactiveMode: Never}}}]\n";
    insta::assert_snapshot!(there_and_back(text));
}

#[test]
fn json_stays_json() {
    let text = r#"{"users":[{"name":"prod","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"./bin/aws","provideClusterInfo":true}}}]}"#;
    let new = there_and_back(text);
    serde_json::from_str::<serde_json::Value>(&new).unwrap();
    insta::assert_snapshot!(new);
}

#[test]
fn a_brokered_user_is_not_brokered_again() {
    let once = brokered_text(BLOCK).text;
    let twice = brokered_text(&once);
    assert_eq!((twice.text.as_str(), twice.changed.len()), (once.as_str(), 0));
}

#[test]
fn only_wanted_users_change() {
    let text =
        format!("{BLOCK}{}", BLOCK.split_once("users:\n").unwrap().1.replace("name: prod", "name: dev"));
    let new = broker(&text, Path::new("/"), &shim(), |name| name == "dev").unwrap();
    assert_eq!(new.changed, ["dev"]);
    assert_eq!(restore(&new.text, |name| name == "prod").unwrap().text, new.text);
    assert_eq!(restore(&new.text, |name| name == "dev").unwrap().text, text);
}

#[test]
fn a_stanza_that_another_user_shares_is_refused_and_the_others_change() {
    let text = format!(
        "{BLOCK}- name: a\n  user: {{exec: &exec {{apiVersion: x/v1, command: aws}}}}\n- name: b\n  user: {{exec: *exec}}\n"
    );
    let new = brokered_text(&text);
    assert_eq!(new.changed, ["prod"]);
    let refused = [("b".to_owned(), Refusal::Connected), ("a".to_owned(), Refusal::Connected)];
    assert_eq!(new.refused, refused);
    assert_eq!(restore(&new.text, |_| true).unwrap().text, text);
}

/// kubectl writes a file in its own form: keys sorted, no comments, its own quotes.
#[test]
fn what_kubectl_wrote_again_is_restored_in_that_form() {
    let new = brokered_text(BLOCK).text;
    let root = document::yaml(new.as_bytes(), Aliases::Refuse).unwrap();
    let kubectl = serde_saphyr::to_string(&root.to_json()).unwrap();
    let back = restore(&kubectl, |_| true).unwrap();
    assert_eq!(back.changed, ["prod"]);
    let original = document::yaml(BLOCK.as_bytes(), Aliases::Refuse).unwrap();
    let back = document::yaml(back.text.as_bytes(), Aliases::Refuse).unwrap();
    assert_eq!(back.to_json(), original.to_json());
}

#[test]
fn arguments_that_cannot_be_read_are_refused() {
    let text = brokered_text(BLOCK).text.replace("--api-version", "--unknown");
    let back = restore(&text, |_| true).unwrap();
    assert_eq!(back.refused, [("prod".to_owned(), Refusal::Arguments)]);
    assert_eq!(back.text, text);
}

/// A stanza in some notation.
fn exec() -> impl Strategy<Value = String> {
    let command =
        select(&["aws", "\"aws\"", "'a''b'", "./bin/x", "\"\\u00e9\"", "a: b", "'null'", "a,b"][..]);
    let args = select(
        &[
            "",
            "args:",
            "args: # none",
            "args: null",
            "args: ~",
            "args: []",
            "args: [ ]",
            "args: [eks, \"--x\", 'y' ]",
            "args: [ # first\n        eks,\n        get ]",
            "args:\n      - eks\n      - --  # its own\n      - |\n        two\n        lines",
            "args:\n        # more\n        - \"eks\"\n\n        - 'get'",
        ][..],
    );
    let info = select(
        &["", "provideClusterInfo: true", "provideClusterInfo: false # no", "provideClusterInfo:"][..],
    );
    let mode = select(
        &["", "interactiveMode: Always", "interactiveMode: \"Always\" # x", "interactiveMode: Never"][..],
    );
    let env = select(&["", "env: null", "env: [{name: A, value: b}, {name: A, value: c}]"][..]);
    let is_ours = any::<bool>();
    (command, args, info, mode, env, is_ours).prop_map(|(command, args, info, mode, env, first)| {
        let command = if command == "a: b" { "a b" } else { command };
        let version = "apiVersion: client.authentication.k8s.io/v1beta1";
        let command = format!("command: {command}  # of the plugin");
        let keys = if first { [&command, version] } else { [version, &command] };
        let keys = keys.into_iter().chain([args, info, mode, env, "x-unknown: {a: [1]}"]);
        keys.filter(|key| !key.is_empty()).flat_map(|key| ["      ", key, "\n"]).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_notation_is_restored_to_the_byte(
        execs in vec(exec(), 1..4),
        (head, is_crlf, has_mark) in (select(&["", "# head\n", "---\n"][..]), any::<bool>(), any::<bool>()),
        name in "[a-zé:/ -]{1,12}",
    ) {
        let users = execs.iter().enumerate().map(|(index, exec)| {
            let name = format!("{name}{index}");
            format!("- name: {name:?}\n  user:\n    exec:\n{exec}\n- name: {name:?}\n  user: {{token: {index}}}\n")
        });
        let users = users.collect::<Vec<_>>().concat();
        let mut text = format!("{head}users:\n{users}contexts: []  # end\n");
        if is_crlf {
            text = text.replace('\n', "\r\n");
        }
        if has_mark {
            text.insert(0, '\u{feff}');
        }
        let new = brokered_text(&text);
        prop_assert_eq!(new.refused, []);
        prop_assert_eq!(new.changed.len(), execs.len());
        prop_assert_eq!(restore(&new.text, |_| true).unwrap().text, text);
    }
}
