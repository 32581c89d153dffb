//! A kubeconfig that is wrapped again.

use super::*;

/// A copy at `out` of the kubeconfig `config`, written again after `edit` changed the copy.
fn written_again(place: &Place, edit: impl FnOnce(String) -> String) -> (String, String) {
    place.run(&place.to_out());
    let edited = edit(place.text("out"));
    place.write("out", &edited);
    let (code, out, err) = place.run(&place.to_out());
    assert_eq!(code, 0, "{err}");
    (out, err)
}

const CONTEXTS: &str = "
current-context: one
clusters: [{name: c, cluster: {server: https://c}}]
contexts:
- {name: one, context: {cluster: c, user: u}}
- {name: two, context: {cluster: c, user: u}}
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x}}}]
";

#[test]
fn what_a_person_changed_in_the_copy_is_kept_and_named() {
    let place = Place::new(&[("config", CONTEXTS)]);
    let (out, err) = written_again(&place, |text| {
        let text = text.replacen("current-context: one", "current-context: mine", 1);
        let text = text.replacen("    cluster: c\n", "    cluster: c\n    namespace: shop\n", 1);
        let text = text.replacen(
            "contexts:\n",
            "contexts:\n- {name: mine, context: {cluster: local, user: local}}\n",
            1,
        );
        let text =
            text.replacen("clusters:\n", "clusters:\n- {name: local, cluster: {server: https://l}}\n", 1);
        text.replacen("users:\n", "users:\n- {name: local, user: {exec: {command: aws}}}\n", 1)
    });
    insta::assert_snapshot!(out, @r"
    ~/out: 1 user requests its credential from the broker: u
    Kept what was changed in ~/out: context `mine`, context `one`, cluster `local`, user `local`, the current context `mine`.
    Use it with `KUBECONFIG=~/out kubectl …`.
    No broker is running. Add `kubeconfigs: [~/config]` to its configuration, or if it has none set KUBECONFIG=~/config for it and start it.
    ");
    insta::assert_snapshot!(err, @"credbroker: warning: user `local` of ~/out runs its plugin itself; to use the broker for it, add it to your own kubeconfig, remove it from ~/out, and run this command again");
    let text = place.text("out");
    assert!(text.contains("current-context: mine\n") && text.contains("namespace: shop\n"), "{text}");
    // What is kept once is kept again.
    place.run(&place.to_out());
    assert_eq!(place.text("out"), text);
}

#[test]
fn what_is_unchanged_in_the_copy_follows_the_kubeconfig() {
    let place = Place::new(&[("config", CONTEXTS)]);
    let (out, err) = written_again(&place, |text| {
        let changed = CONTEXTS.replace("current-context: one", "current-context: two");
        place.write(
            "config",
            &changed.replace("{name: one,", "{name: first,").replace("https://c", "https://d"),
        );
        text
    });
    assert!(!out.contains("Kept") && err.is_empty(), "{out}{err}");
    let text = place.text("out");
    assert!(text.contains("current-context: two") && text.contains("https://d"), "{text}");
    assert!(text.contains("name: first") && !text.contains("name: one"), "{text}");
}

/// kubectl drops unknown keys and comments, sorts the lists, and writes paths below the file's directory as relative ones.
#[test]
fn a_copy_that_kubectl_rewrote_is_not_changed_by_that() {
    let place = Place::new(&[("kube/config", FULL)]);
    let args = WrapArgs { output: Some(place.path("out")), ..place.args("kube/config") };
    place.run(&args);
    let directory = place.0.path().display().to_string();
    let text = place.text("out").replace("    future: true\n", "").replace("      future: kept\n", "");
    let text = text.replace(&format!("{directory}/kube/../k.pem"), "k.pem");
    let text = text.replace(&format!("{directory}/kube/"), "kube/");
    place
        .write("out", &text.replace("interactiveMode: Never\n", "interactiveMode: Never\n      env: null\n"));
    let (_, out, err) = place.run(&args);
    assert!(!out.contains("Kept") && !err.contains("was changed"), "{out}{err}");
    assert!(place.text("out").contains("future: kept"));
}

#[test]
fn what_was_changed_in_the_copy_and_is_gone_from_the_kubeconfig_is_left_out_with_a_warning() {
    let place = Place::new(&[("config", CONTEXTS)]);
    let (out, err) = written_again(&place, |text| {
        let gone = CONTEXTS.lines().filter(|line| !line.contains("name: two")).collect::<Vec<_>>().join("\n");
        place.write("config", &gone);
        let text = text.replacen("current-context: one", "current-context: two", 1);
        text.replace("- name: two\n  context:\n", "- name: two\n  context:\n    namespace: shop\n")
    });
    assert!(!out.contains("Kept"), "{out}");
    insta::assert_snapshot!(err, @r"
    credbroker: warning: context `two` was changed in ~/out, but is no longer in your kubeconfig; it was left out
    credbroker: warning: the current context `two` was changed in ~/out, but is no longer in your kubeconfig; it was left out
    ");
    assert!(place.text("out").contains("current-context: one\n"), "{}", place.text("out"));
}

/// A user that runs the shim must have the shim and the flags of this run.
#[test]
fn a_changed_user_that_runs_the_shim_is_written_again_with_a_warning() {
    let place = Place::new(&[("config", MINIMAL)]);
    let (out, err) = written_again(&place, |text| {
        text.replace("      - --provider\n", "      - --quiet\n      - --provider\n")
    });
    assert!(!out.contains("Kept") && !place.text("out").contains("--quiet"), "{out}");
    insta::assert_snapshot!(err, @"credbroker: warning: user `u` was changed in ~/out, but runs credbroker-exec; it was written again without the change");
}

#[test]
fn a_copy_in_the_list_counts_as_the_files_that_it_was_written_from() {
    let place = Place::new(&[("config", MINIMAL)]);
    place.run(&place.to_out());
    let first = place.text("out");
    let again = WrapArgs { kubeconfig: None, ..place.to_out() };
    let out = place.path("out").display().to_string();
    let said = place.try_run(&again, &[("KUBECONFIG", &out)], "bin/credbroker-exec").unwrap();
    assert_eq!((said.0, place.text("out")), (0, first), "{said:?}");
}
