use super::*;

fn add(text: &str) -> Option<String> {
    added(text, &["/home/u/.kube/config".into(), "/a b".into()])
}

fn both_ways(text: &str, expected: &str) {
    let with = add(text).expect(text);
    assert_eq!(with, expected);
    let without = removed(&with, |item| item == "/home/u/.kube/config" || item == "/a b");
    assert_eq!(without.as_deref(), Some(text));
}

#[test]
fn a_path_is_added_and_removed_and_all_else_stays() {
    both_ways(
        "kind: x\nkubeconfigs: # mine\n  - ~/a   # first\nlimits: {}\n",
        "kind: x\nkubeconfigs: # mine\n  - ~/a   # first\n  - /home/u/.kube/config\n  - \"/a b\"\nlimits: {}\n",
    );
    both_ways(
        "kubeconfigs: [~/a] # mine\nkind: x",
        "kubeconfigs: [~/a, \"/home/u/.kube/config\", \"/a b\"] # mine\nkind: x",
    );
    both_ways(
        "{\"kubeconfigs\": [\"/c\"]}",
        "{\"kubeconfigs\": [\"/c\", \"/home/u/.kube/config\", \"/a b\"]}",
    );
    both_ways("kubeconfigs:\r\n- /c\r\n", "kubeconfigs:\r\n- /c\r\n- /home/u/.kube/config\r\n- \"/a b\"\r\n");
}

#[test]
fn a_configuration_without_the_list_gets_one_and_loses_it_again() {
    both_ways(
        "kind: x # why\n# end\n",
        "kind: x # why\nkubeconfigs:\n- /home/u/.kube/config\n- \"/a b\"\n# end\n",
    );
    both_ways("kind: x", "kind: x\nkubeconfigs:\n- /home/u/.kube/config\n- \"/a b\"");
    assert_eq!(
        add("kubeconfigs: # mine\nkind: x\n").unwrap(),
        "kubeconfigs: # mine\n- /home/u/.kube/config\n- \"/a b\"\nkind: x\n"
    );
    assert_eq!(add("{kind: x}"), None);
    assert_eq!(add("kubeconfigs: &x [/c]\nother: *x\n"), None);
}

#[test]
fn the_key_goes_with_the_last_item_because_it_would_be_null() {
    for (text, expected) in [
        ("kind: x\nkubeconfigs: # mine\n- /c\n", Some("kind: x\n")),
        ("'kubeconfigs':\r\n# kubeconfigs:\r\n- /c # 1\r\nkind: x", Some("# kubeconfigs:\r\nkind: x")),
        ("{\"kubeconfigs\": [/c]}", Some("{\"kubeconfigs\": []}")),
        ("kubeconfigs:\n- /c\n- /c\n", None),
    ] {
        assert_eq!(removed(text, |item| item == "/c").as_deref(), expected);
    }
}

#[test]
fn any_item_is_removed_with_one_comma() {
    let without = |items: &[&str]| removed("kubeconfigs: [/a, /b, /c] # x", |item| items.contains(&item));
    assert_eq!(without(&["/a"]).unwrap(), "kubeconfigs: [/b, /c] # x");
    assert_eq!(without(&["/b"]).unwrap(), "kubeconfigs: [/a, /c] # x");
    assert_eq!(without(&["/a", "/b"]).unwrap(), "kubeconfigs: [/c] # x");
    assert_eq!(without(&["/a", "/c"]).unwrap(), "kubeconfigs: [/b] # x");
    assert_eq!(without(&["/b", "/c"]).unwrap(), "kubeconfigs: [/a] # x");
}

#[test]
fn a_configuration_that_is_not_a_map_is_not_edited() {
    for text in ["", "- /c\n", "kubeconfigs", "kubeconfigs: /c]\n"] {
        assert_eq!((add(text), removed(text, |_| true)), (None, None), "{text}");
    }
}
