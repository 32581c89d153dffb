use super::*;

fn parsed(text: &str) -> Node {
    document::yaml(text.as_bytes(), Aliases::Follow).unwrap()
}

/// Every kubeconfig in one text: after a swap and the way back, each byte is as it was.
#[test]
fn the_way_back_is_exact_in_every_style() {
    let block = "# mine\nusers:\n- name: u # who\n  user:\n    exec:   # how\n      # the plugin\n      command: aws # c\n      args:\n      - eks\n      - |\n        x\n      env: # none\n    # end\n    as: me\n- name: v\n";
    let flow = "{users: [{name: u, user: {as: me, exec: {command: aws, args: []}}}], x: 1}\n";
    let json = "{\"users\": [{\"name\": \"u\",\n \"user\": {\"exec\": {\n\"command\": \"aws\"}}}]}";
    let crlf = block.replace('\n', "\r\n");
    let last = "users:\n  - user:\n        exec:\n          command: aws";
    let last = format!("{last}\n    name: u");
    let at_end = "users:\n- name: u\n  user:\n    exec:\n      command: aws\n";
    let mixed = "users:\n- name: u\n  user:\n    exec: {command: aws}   # keep\n";
    let new = parsed("{command: /bin/credbroker-exec, args: [--provider, 'a: b', '']}");
    for text in [block, flow, json, &crlf, &last, at_end, at_end.trim_end(), mixed] {
        let editable = Editable::of(text, "f").unwrap();
        let stanza = editable.stanza("u").unwrap();
        let (swapped, written) = editable.replaced(&[("u", New::Value(&new))]).expect(text);
        assert!(swapped.contains("credbroker-exec") && !swapped.contains("aws"), "{swapped}");
        assert_eq!(
            text.matches('#').count() - stanza.text.matches('#').count(),
            swapped.matches('#').count()
        );
        let changed = Editable::of(&swapped, "f").unwrap();
        let there = changed.stanza("u").unwrap();
        assert_eq!((there.text, there.exec.to_json()), (written[0].as_str(), new.to_json()), "{swapped}");
        let back = changed.replaced(&[("u", New::Text(stanza.text, &stanza.exec))]).expect(&swapped).0;
        assert_eq!(back, text);
    }
}

#[test]
fn a_stanza_that_other_parts_share_is_not_replaced() {
    let anchor = "users:\n- name: u\n  user:\n    exec: &x {command: aws}\n- name: v\n  user: {exec: *x}\n";
    let merge = "base: &x {exec: {command: aws}}\nusers:\n- name: u\n  user: {<<: *x}\n";
    let new = parsed("{command: credbroker-exec}");
    for text in [anchor, merge] {
        assert!(Editable::of(text, "f").unwrap().replaced(&[("u", New::Value(&new))]).is_none(), "{text}");
    }
    // The alias itself is only a use of it.
    let (swapped, _) = Editable::of(anchor, "f").unwrap().replaced(&[("v", New::Value(&new))]).unwrap();
    assert!(swapped.contains("exec: &x {command: aws}") && swapped.contains("credbroker-exec"), "{swapped}");
}
