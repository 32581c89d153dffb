use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::*;
use crate::problem::{Findings, Report};
use credbroker_credential::Cluster;

use credbroker_plugin::{Command, Definition, Environment, Globs, Provider};

/// Files of a `KUBECONFIG` list in a separate directory.
struct Files {
    dir: TempDir,
    paths: Vec<PathBuf>,
}

impl Files {
    fn new(texts: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let write = |(index, text): (usize, &&str)| {
            let path = dir.path().join(format!("{index}/config"));
            fs::create_dir(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        let paths = texts.iter().enumerate().map(write).collect();
        Self { dir, paths }
    }

    fn import(&self, mode: Mode) -> (Vec<Provider>, Findings) {
        let env: Environment =
            [("PATH", "/bin"), ("AWS_PROFILE", "prod"), ("EDITOR", "vi")].into_iter().collect();
        let report = Report::default();
        let providers = Kubeconfig::read(&self.paths, mode, &report).providers(
            &variables(&env, Globs::default()),
            mode,
            &report,
        );
        (providers, report.findings.into_inner())
    }

    /// Providers that nothing is wrong with.
    fn providers(&self) -> Vec<Provider> {
        let (providers, report) = self.import(Mode::Ambient);
        assert!(report.problems.is_empty() && report.warnings.is_empty(), "{report:?}");
        providers
    }

    fn shown(&self, problems: &[crate::Problem]) -> String {
        let dir = format!("{}/", self.dir.path().display());
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n").replace(&dir, "")
    }
}

fn user(name: &str, command: &str) -> String {
    format!(
        "- name: {name}\n  user: {{exec: {{apiVersion: client.authentication.k8s.io/v1beta1, command: {command}}}}}\n"
    )
}

#[test]
fn each_user_that_runs_a_plugin_is_a_provider() {
    let users = [
        user("one", "plugin"),
        "- name: token\n  user: {token: abc}\n- name: nothing\n  user:\n".to_owned(),
        user("bare", "credbroker-exec"),
        user("absolute", "/opt/bin/credbroker-exec"),
        "- name: inner\n  user: {exec: {command: credbroker, args: [shim, --provider, x], apiVersion: x}}\n"
            .to_owned(),
        "- name: plugin\n  user: {exec: {command: /k/kubectl-credbroker, args: [shim], apiVersion: x}}\n"
            .to_owned(),
        user("not-the-shim", "credbroker"),
    ];
    let files = Files::new(&[&format!("apiVersion: v1\nkind: Config\nusers:\n{}", users.concat())]);
    let names: Vec<_> = files.providers().iter().map(|provider| provider.name.to_string()).collect();
    assert_eq!(names, ["one", "not-the-shim"]);
}

#[test]
fn a_provider_from_a_kubeconfig_has_the_callers_identity_and_not_the_brokers() {
    let [provider] =
        <[_; 1]>::try_from(Files::new(&[&format!("users:\n{}", user("u", "x"))]).providers()).unwrap();
    let names: Vec<_> = provider.inherited.0.keys().collect();
    assert_eq!(names, ["EDITOR", "KUBECONFIG", "PATH"]);
    assert!(!provider.caller_env.matches("KUBECONFIG"));
    assert!(provider.caller_env.matches("AWS_PROFILE") && !provider.caller_env.matches("HOME"));
}

#[test]
fn the_first_definition_of_a_user_wins_whole_and_its_file_places_its_command() {
    let one = format!("users:\n{}", user("u", "./bin/plugin"));
    let two = "users:\n- name: u\n  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /other, interactiveMode: Never, args: [a]}}\n".to_owned() + &user("v", "bin/plugin");
    let files = Files::new(&[&one, &two]);
    let [u, hidden, v] = <[_; 3]>::try_from(files.providers()).unwrap();
    assert_eq!(u.command, Command::Path(files.dir.path().join("0/bin/plugin")));
    assert!(u.args.is_empty());
    assert_eq!(v.command, Command::Path(files.dir.path().join("1/bin/plugin")));
    assert_eq!((&*hidden.name, hidden.command), ("u", Command::Path("/other".into())));
}

/// The plugin may look itself up in the kubeconfig that client-go would have read.
#[test]
fn a_plugin_gets_the_kubeconfigs_that_its_definition_is_from() {
    let (one, two) = (user("u", "x"), user("u", "x") + &user("v", "x"));
    let mut files = Files::new(&[&format!("users:\n{one}"), &format!("users:\n{two}")]);
    files.paths.push(files.dir.path().join("absent"));
    let lists = files.providers().into_iter().map(|provider| {
        let list = provider.inherited.get("KUBECONFIG").unwrap().to_str().unwrap().to_owned();
        format!("{}: {}", provider.name, list.replace(files.dir.path().to_str().unwrap(), ""))
    });
    let whole = "/0/config:/1/config:/absent";
    let expected = [format!("u: {whole}"), "u: /1/config".to_owned(), format!("v: {whole}")];
    assert_eq!(lists.collect::<Vec<_>>(), expected, "in the list, the first `u` would hide the second");
}

/// Definitions as a broker with these files has them.
fn definitions_of(files: &Files) -> Vec<Definition> {
    let (providers, _) = files.import(Mode::Named);
    providers.into_iter().map(|provider| provider.definition.unwrap()).collect()
}

#[test]
fn a_definition_is_found_at_its_file_and_its_name_and_says_what_its_stanza_runs() {
    let text = format!("users:\n{}{}", user("u", "x"), user("v", "x"));
    let files = Files::new(&[&text, &text]);
    let before = definitions_of(&files);
    let digests = |all: &[Definition]| all.iter().map(|one| one.digest.to_string()).collect::<Vec<_>>();
    assert_eq!(digests(&before), [&*before[0].digest; 4], "all run the same");
    fs::write(&files.paths[1], text.replace("command: x", "command: other")).unwrap();
    let after = definitions_of(&files);
    let places = |all: &[Definition]| all.iter().map(|one| one.identity.clone()).collect::<Vec<_>>();
    assert_eq!(places(&after), places(&before), "they are at the same places");
    assert_eq!(digests(&after)[..2], digests(&before)[..2]);
    assert_ne!(digests(&after)[2], digests(&before)[2]);
    let link = files.dir.path().join("link");
    std::os::unix::fs::symlink(&files.paths[0], &link).unwrap();
    let linked = Files { dir: files.dir, paths: vec![link, files.paths[0].clone()] };
    assert_eq!(definitions_of(&linked), before[..2], "one file under two names is read once");
}

#[test]
fn contexts_of_two_files_lead_to_the_users_of_their_files() {
    let file = |server: &str| {
        format!(
            "users:\n{}contexts:\n- {{name: c, context: {{user: u, cluster: k}}}}\nclusters:\n- {{name: k, cluster: {{server: {server}}}}}\n",
            user("u", "x")
        )
    };
    let files = Files::new(&[&file("https://one"), &file("https://two")]);
    let servers = |mode| {
        let providers = files.import(mode).0.into_iter();
        let servers = providers.map(|provider| provider.clusters.into_iter().map(|cluster| cluster.server));
        servers.map(Iterator::collect).collect::<Vec<Vec<_>>>()
    };
    for mode in [Mode::Named, Mode::Ambient] {
        assert_eq!(servers(mode), [["https://one"], ["https://two"]]);
    }
    // As client-go merges a list, the context `d` of the second file leads to the first `u`.
    let renamed = [("name: c,", "name: d,"), ("name: k,", "name: l,"), ("cluster: k}", "cluster: l}")];
    let second = renamed.iter().fold(file("https://two"), |text, (old, new)| text.replace(old, new));
    fs::write(&files.paths[1], second).unwrap();
    assert_eq!(servers(Mode::Named), [["https://one"], ["https://two"]]);
    let merged = [vec!["https://one", "https://two"], vec!["https://two"]];
    assert_eq!(servers(Mode::Ambient), merged);
}

#[test]
fn missing_files_are_skipped_unless_a_config_names_them() {
    let mut files = Files::new(&[&format!("users:\n{}", user("u", "x"))]);
    files.paths.insert(0, files.dir.path().join("absent"));
    assert_eq!(files.providers().len(), 1);
    insta::assert_snapshot!(files.shown(&files.import(Mode::Named).1.problems), @"absent: there is no such file");
}

#[test]
fn an_empty_file_is_an_empty_kubeconfig() {
    assert_eq!(Files::new(&["", "# nothing\n"]).providers().len(), 0);
}

#[test]
fn a_broken_user_does_not_affect_others_unless_a_config_names_the_file() {
    let files = Files::new(&[&format!(
        "users:\n- name: broken\n  user: {{exec: {{command: x, env: [{{name: A, value: y}}]}}}}\n- name: two\n  user: {{auth-provider: {{name: oidc}}, exec: {{command: x, apiVersion: client.authentication.k8s.io/v1beta1}}}}\n{}",
        user("good", "x")
    )]);
    let (providers, report) = files.import(Mode::Ambient);
    assert_eq!(providers.len(), 1);
    assert!(report.problems.is_empty());
    insta::assert_snapshot!(files.shown(&report.warnings), @r"
0/config:3:16: user `broken`.exec: apiVersion must be specified: `client.authentication.k8s.io/v1` or `client.authentication.k8s.io/v1beta1`
0/config:3:52: user `broken`.exec.env[0].value: expected a string, found a boolean; put it in quotes
0/config:5:9: user `two`: authProvider cannot be provided in combination with an exec plugin
");
    assert_eq!(files.import(Mode::Named).1.problems, report.warnings);
}

#[test]
fn a_name_that_would_break_a_terminal_is_shown_escaped() {
    let files = Files::new(&[
        "users: [{name: \"a\\e[31m\\nb\", user: {exec: {command: x, apiVersion: client.authentication.k8s.io/v1beta1}}}]",
    ]);
    let (_, report) = files.import(Mode::Ambient);
    insta::assert_snapshot!(files.shown(&report.warnings), @r"0/config:1:36: user `a\u{1b}[31m\nb`: a name must not be empty or contain control characters");
}

#[test]
fn what_client_go_refuses_to_load_is_an_error() {
    let table = [
        "apiVersion: v2\nkind: Secret\n",
        "users: [{name: u, user: {}}, {name: u, user: {}}]\n",
        "clusters: [{name: c, cluster: {extensions: [{name: e, extension: 1}, {name: e, extension: 2}]}}]\n",
        "users: {u: {}}\n",
        "users: [{name: on, user: {}}]\n",
        "users: [\n",
        "[]",
    ];
    let problems = table.map(|text| {
        let files = Files::new(&[text]);
        files.shown(&files.import(Mode::Ambient).1.problems)
    });
    insta::assert_snapshot!(problems.join("\n"), @r"
0/config:1:13: apiVersion: a kubeconfig has `apiVersion: v1`
0/config:2:7: kind: a kubeconfig has `kind: Config`
0/config:1:30: the name `u` appears twice in one list
0/config:1:70: the name `e` appears twice in one list
0/config:1:8: users: expected a list, found a map
0/config:1:9: an item needs a `name`, which is text; write it in quotes if it looks like something else
0/config:1:8: the document is not well-formed: a list that begins with `[` does not end with `]`
0/config:1:1: expected a map, found a list
");
}

/// Users, contexts and clusters; the file `ca.pem` is not written.
const CLUSTERS: &str = r"
users:
- {name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never, provideClusterInfo: true}}}
- {name: v, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}}}
contexts:
- {name: a, context: {user: u, cluster: one}}
- {name: b, context: {user: u, cluster: one, namespace: other}}
- {name: c, context: {user: stranger, cluster: two}}
- {name: d, context: {user: u, cluster: absent}}
- {name: e, context: {user: v, cluster: one}}
- {name: f, context: {user: v, cluster: two}}
- {name: g, context: {user: v, cluster: three}}
- {name: h, context: {user: v, cluster: four}}
clusters:
- name: one
  cluster:
    server: https://one
    tls-server-name: name
    insecure-skip-tls-verify: true
    certificate-authority: ca.pem
    proxy-url: http://proxy
    disable-compression: true
    extensions:
    - {name: other, extension: 1}
    - {name: client.authentication.k8s.io/exec, extension: {audience: a, level: 2}}
- {name: two, cluster: {server: https://two, certificate-authority-data: Y2E=}}
- {name: three, cluster: {certificate-authority-data: Y2E=, server: https://two}}
- {name: four, cluster: {server: https://four, certificate-authority: ./ca.pem}}
";

#[test]
fn the_clusters_of_a_users_contexts_are_known_whether_its_plugin_gets_them_or_not() {
    let files = Files::new(&[CLUSTERS]);
    fs::write(files.dir.path().join("0/ca.pem"), "pem").unwrap();
    let [u, v] = <[_; 2]>::try_from(files.providers()).unwrap();
    assert!(u.provide_cluster_info && !v.provide_cluster_info);
    let one = Cluster {
        server: "https://one".into(),
        tls_server_name: "name".into(),
        insecure_skip_tls_verify: true,
        certificate_authority_data: "pem".into(),
        proxy_url: "http://proxy".into(),
        disable_compression: true,
        config: r#"{"audience":"a","level":2}"#.into(),
    };
    let two = Cluster {
        server: "https://two".into(),
        certificate_authority_data: "ca".into(),
        ..Cluster::default()
    };
    assert_eq!(u.clusters, std::slice::from_ref(&one), "one for several contexts");
    let four = Cluster {
        server: "https://four".into(),
        certificate_authority_data: "pem".into(),
        ..Cluster::default()
    };
    assert_eq!(v.clusters, [one, two, four], "one for several names");
    let file = |provider: &Provider| provider.clusters.last().unwrap().certificate_authority_data.as_ptr();
    assert_eq!(file(&u), file(&v), "a file is in memory once");
}

#[test]
fn a_cluster_that_cannot_be_read_is_one_warning_and_no_other_passes_for_the_only_one() {
    let broken = [
        CLUSTERS.to_owned(),
        CLUSTERS.replace("certificate-authority: ca.pem", "certificate-authority: ."),
        CLUSTERS.replace("certificate-authority: ca.pem", "certificate-authority-data: '*'"),
        CLUSTERS.replace("server: https://one", "server: ''").replace("certificate-authority: ca.pem", ""),
    ];
    let warnings = broken.map(|text| {
        let files = Files::new(&[&text]);
        let (providers, report) = files.import(Mode::Named);
        assert_eq!(providers.iter().map(|provider| provider.clusters.len()).collect::<Vec<_>>(), [0, 0]);
        assert!(report.problems.is_empty(), "it stops no provider, in a file that a config names either");
        files.shown(&report.warnings)
    });
    insta::assert_snapshot!(warnings.join("\n"), @r"
0/config:15:3: cluster `one`: certificate-authority `0/ca.pem` cannot be read: No such file or directory (os error 2)
0/config:15:3: cluster `one`: certificate-authority `0` cannot be read: it is not a regular file
0/config:15:3: cluster `one`: certificate-authority-data is not base64
0/config:15:3: cluster `one` has no `server`
");
}

#[test]
fn the_default_files_are_those_of_kubectl() {
    let paths = |variables: &[(&str, &str)]| {
        Kubeconfig::default_paths(
            &variables.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))).collect(),
        )
    };
    assert_eq!(paths(&[("HOME", "/h")]), [Path::new("/h/.kube/config")]);
    assert_eq!(paths(&[("HOME", "/h"), ("KUBECONFIG", "")]), [Path::new("/h/.kube/config")]);
    assert_eq!(paths(&[("HOME", "/h"), ("KUBECONFIG", "/a::/b:/a")]), [Path::new("/a"), Path::new("/b")]);
    assert_eq!(paths(&[]), [""; 0].map(Path::new));
}

/// The stanza of a user with the shim in front of it, as `credbroker kubeconfig inject` writes it.
fn injected(files: &Files) -> String {
    let path = &files.paths[0];
    let shim = Shim { command: "credbroker-exec".into(), is_subcommand: false, flags: Vec::new() };
    let text = fs::read_to_string(path).unwrap();
    let new = broker(&text, path.parent().unwrap(), &shim, |_| true).unwrap();
    assert_eq!(new.refused, []);
    fs::write(path, &new.text).unwrap();
    new.text
}

#[test]
fn the_shim_in_front_of_a_command_changes_neither_the_definition_nor_what_runs() {
    let stanza = "apiVersion: client.authentication.k8s.io/v1beta1, command: ./bin/x, args: [a, --], env: [{name: B, value: c}, {name: A, value: ''}, {name: B, value: d}]";
    for more in [
        "",
        ", provideClusterInfo: true",
        ", provideClusterInfo: false, interactiveMode: Always",
        ", interactiveMode: Never",
    ] {
        let files = Files::new(&[&format!("users: [{{name: u, user: {{exec: {{{stanza}{more}}}}}}}]\n")]);
        let (plain, _) = files.import(Mode::Named);
        injected(&files);
        let (brokered, warnings) = files.import(Mode::Named);
        assert!(warnings.warnings.is_empty());
        let [plain, brokered] = [&plain[0], &brokered[0]];
        assert!(plain.is_same_definition(brokered), "{more}");
        assert!(!brokered.definition.as_ref().unwrap().is_outdated);
    }
}

#[test]
fn an_edited_stanza_with_arguments_that_do_not_describe_it_is_outdated() {
    let stanza = "{apiVersion: client.authentication.k8s.io/v1beta1, command: x, interactiveMode: Never, env: [{name: A, value: b}]}";
    let files = Files::new(&[&format!("users: [{{name: u, user: {{exec: {stanza}}}}}]\n")]);
    let text = injected(&files);
    let before = definitions_of(&files).remove(0);
    let edited = |old: &str, new: &str| {
        assert!(text.contains(old), "{text}");
        fs::write(&files.paths[0], text.replace(old, new)).unwrap();
        definitions_of(&files).remove(0)
    };
    for (old, new) in [
        ("{name: A, value: b}", "{name: A, value: b}, {name: C, value: d}"),
        ("{name: A, value: b}", ""),
        ("{name: A,", "{name: C,"),
        ("k8s.io/v1beta1", "k8s.io/v1"),
        ("name: u,", "name: other,"),
    ] {
        assert!(edited(old, new).is_outdated, "{new}");
    }
    let value = edited("value: b", "value: c");
    assert!(!value.is_outdated, "the shim sends the value");
    assert_ne!(value.digest, before.digest);
    // What the shim sends for a variable that the stanza no longer sets.
    assert_ne!(edited("{name: A, value: b}", "").digest, before.digest);
}
