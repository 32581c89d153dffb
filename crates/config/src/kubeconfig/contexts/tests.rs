use std::{collections::BTreeMap, fs};

use credbroker_plugin::{Environment, Globs, StoredValue};
use credbroker_test_support::{private_directory, private_file};
use tempfile::TempDir;

use super::{super::variables, *};

/// Files of a `KUBECONFIG` list.
struct Files(TempDir, Vec<PathBuf>);

impl Files {
    fn new(texts: &[&str]) -> Self {
        let dir = private_directory();
        let paths = (0..texts.len()).map(|index| dir.path().join(index.to_string())).collect();
        let files = Self(dir, paths);
        texts.iter().enumerate().for_each(|(index, text)| files.write(index, text));
        files
    }

    fn write(&self, index: usize, text: &str) {
        private_file(&self.1[index], text);
    }

    fn read(&self, mode: Mode) -> Contexts {
        let (env, report) = (Environment::default(), Report::default());
        let kubeconfig = Kubeconfig::read(&self.1, mode, &report);
        let providers = kubeconfig.providers(&variables(&env, Globs::default()), mode, &report);
        kubeconfig.read_contexts(&providers, mode, &report)
    }

    fn only(&self) -> Context {
        let mut contexts = self.read(Mode::Named).contexts;
        assert_eq!(contexts.len(), 1);
        contexts.remove(0)
    }
}

const USER: &str =
    "{exec: {apiVersion: client.authentication.k8s.io/v1, command: plugin, interactiveMode: Never}}";

fn text(cluster: &str, user: &str) -> String {
    format!(
        "clusters: [{{name: paris, cluster: {cluster}}}]\nusers: [{{name: jane, user: {user}}}]\n\
         contexts: [{{name: p, context: {{cluster: paris, user: jane}}}}]\n"
    )
}

fn problem(user: &str) -> String {
    let files = Files::new(&[&text("{server: https://paris}", user)]);
    files.only().outcome.unwrap_err().to_string()
}

#[test]
fn a_context_is_the_cluster_and_the_user_that_it_names() {
    for user in [USER, "{token: abc}", "{tokenFile: token}", "{client-certificate: c, client-key: k}"] {
        let files = Files::new(&[&text("{server: https://paris, tls-server-name: t}", user)]);
        let context = files.only();
        let target = context.outcome.unwrap();
        assert_eq!((&*context.id.name, &*context.user, context.id.digest.len()), ("p", "jane", 40));
        assert_eq!((&*target.cluster.server, &*target.cluster.tls_server_name), ("https://paris", "t"));
        assert_eq!((target.user.1.as_ref(), target.gives_cluster), ("jane", false));
        assert_eq!(files.read(Mode::Named).stored.is_empty(), user == USER, "{user}");
    }
    let with_info = USER.replace("plugin,", "plugin, provideClusterInfo: true,");
    assert!(
        Files::new(&[&text("{server: https://paris}", &with_info)]).only().outcome.unwrap().gives_cluster
    );
}

#[test]
fn a_stored_credential_is_read_as_client_go_reads_it() {
    let data = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let (chain, key) = (data("chain"), data("key"));
    let user = format!(
        "{{token: abc, tokenFile: token, client-certificate-data: {chain}, client-certificate: c, client-key-data: {key}}}"
    );
    let files = Files::new(&[&text("{server: https://paris}", &user)]);
    let stored = files.read(Mode::Named).stored.remove(0);
    let credential = stored.stored.clone().unwrap();
    assert_eq!(credential.token, Some(StoredValue::File(files.0.path().join("token"))), "the file counts");
    let [chain, key] = ["chain", "key"].map(|text| StoredValue::Inline(text.into()));
    assert_eq!(credential.pair, Some([chain, key]), "data counts");
    assert_eq!(stored.clusters[0].server, "https://paris");
    assert!(stored.lifetime.max_age.is_some(), "the file is read again");
    let shown = format!("{stored:?} {credential:?}");
    assert!(!shown.contains("abc") && !shown.contains("chain\""), "{shown}");
}

#[test]
fn a_context_whose_credential_cannot_be_served_says_why() {
    let table = [
        "{}",
        "{username: u, password: p}",
        "{auth-provider: {name: gcp}}",
        "{token: abc, as: root}",
        "{token: abc, as-groups: [system:masters]}",
        "{token: 123}",
        "{client-certificate: c}",
        "{client-key-data: aGk=}",
        "{client-certificate-data: '!', client-key: k}",
        "{exec: {command: x}}",
        "{exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}, token: abc}",
        "{exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}, as: root}",
    ];
    let problems: Vec<_> = table.iter().map(|user| format!("{user}\n  {}", problem(user))).collect();
    insta::assert_snapshot!(problems.join("\n"));
    // Fields that say nothing.
    let user = "{token: abc, as: '', as-groups: [], username: null, exec: null}";
    assert!(Files::new(&[&text("{server: https://paris}", user)]).only().outcome.is_ok());
}

#[test]
fn a_context_without_a_cluster_or_a_user_says_why() {
    let of = |context: &str, cluster: &str| {
        let text = text(cluster, "{token: abc}").replace("{cluster: paris, user: jane}", context);
        Files::new(&[&text]).only().outcome.unwrap_err().to_string()
    };
    let paris = "{server: https://paris}";
    assert_eq!(of("{user: jane}", paris), "it names no cluster");
    assert_eq!(of("{cluster: rome, user: jane}", paris), "it names the cluster `rome`, which does not exist");
    assert_eq!(of("{cluster: paris}", paris), "it names no user");
    assert_eq!(of("{cluster: paris, user: joe}", paris), "it names the user `joe`, which does not exist");
    assert_eq!(of("{cluster: paris, user: jane}", "{}"), "cluster `paris` has no `server`");
    let missing =
        of("{cluster: paris, user: jane}", "{server: https://paris, certificate-authority: /nowhere}");
    assert!(missing.contains("`/nowhere`"), "{missing}");
}

#[test]
fn a_context_that_means_something_else_has_another_digest() {
    let paris = "{server: https://paris}";
    let base = text(paris, "{tokenFile: a}");
    let files = Files::new(&[&base]);
    let digest = |text: &str| {
        files.write(0, text);
        files.only().id.digest
    };
    let before = digest(&base);
    let same = [
        // Neither a new token nor other text in the file is another meaning.
        base.replace("contexts:", "# comment\ncontexts:"),
        base.replace("{tokenFile: a}", "{tokenFile: a, token: other}"),
    ];
    for text in same {
        assert_eq!(digest(&text), before, "{text}");
    }
    let differ = [
        text("{server: https://rome}", "{tokenFile: a}"),
        text("{server: https://paris, tls-server-name: x}", "{tokenFile: a}"),
        text("{server: https://paris, proxy-url: http://x}", "{tokenFile: a}"),
        text("{server: https://paris, insecure-skip-tls-verify: true}", "{tokenFile: a}"),
        text("{server: https://paris, certificate-authority-data: aGk=}", "{tokenFile: a}"),
        text(paris, "{tokenFile: b}"),
        text(paris, "{token: a}"),
        text(paris, "{client-certificate: a, client-key: a}"),
        text(paris, "{client-certificate: a, client-key: b}"),
        text(paris, USER),
        text(paris, &USER.replace("plugin", "other")),
        base.replace("jane", "joe"),
        base.replace("name: p,", "name: q,"),
        base.replace("paris, ", "lyon, ").replace("paris,", "lyon,"),
    ];
    let mut seen: BTreeMap<_, _> = [(Arc::clone(&before), base.clone())].into();
    for text in differ {
        let other = seen.insert(digest(&text), text.clone());
        assert!(other.is_none(), "{text}{other:?}");
    }
    let one = text(paris, "{token: one}");
    assert_eq!(digest(&one), digest(&one.replace("one", "two")), "the digest is of no secret");
    // The same text in another file.
    let elsewhere = Files::new(&[&base]);
    assert_ne!(elsewhere.only().id.digest, before);
}

#[test]
fn each_file_has_its_own_contexts_except_where_the_list_is_one_kubeconfig() {
    let [one, two] =
        ["https://one", "https://two"].map(|server| text(&format!("{{server: '{server}'}}"), "{token: a}"));
    let files = Files::new(&[&one, &two]);
    let servers = |mode| {
        let contexts = files.read(mode).contexts.into_iter();
        contexts.map(|context| context.outcome.unwrap().cluster.server.clone()).collect::<Vec<_>>()
    };
    assert_eq!(servers(Mode::Named), ["https://one", "https://two"]);
    assert_eq!(servers(Mode::Ambient), ["https://one"]);
    // The context of the first file leads to the second one.
    let contexts = "contexts: [{name: p, context: {cluster: paris, user: jane}}]\n";
    fs::write(&files.1[0], contexts).unwrap();
    assert_eq!(servers(Mode::Named), ["https://two", "https://two"]);
}

#[test]
fn a_rule_for_a_provider_of_the_configuration_never_allows_a_user_of_a_context() {
    let files = Files::new(&[&text("{server: https://paris}", "{token: abc}")]);
    let (report, env) = (Report::default(), Environment::default());
    let kubeconfig = Kubeconfig::read(&files.1, Mode::Named, &report);
    let user = text("{server: https://paris}", USER);
    let other = Files::new(&[&user]);
    let providers = Kubeconfig::read(&other.1, Mode::Named, &report).providers(
        &variables(&env, Globs::default()),
        Mode::Named,
        &report,
    );
    let configured = providers.into_iter().map(|provider| Provider { definition: None, ..provider });
    let contexts = kubeconfig.read_contexts(&configured.collect::<Vec<_>>(), Mode::Named, &report);
    let problem = contexts.contexts[0].outcome.clone().unwrap_err();
    assert_eq!(
        &*problem,
        "its user has the name of the provider `jane` in the configuration; rename one of them"
    );
}

/// What a command reads in a kubeconfig that a broker reads too.
#[test]
fn own_contexts_have_the_digests_of_the_broker_their_namespaces_and_a_meaning_that_a_copy_shares() {
    let plain = text("{server: https://paris}", USER).replace("user: jane}", "user: jane, namespace: shop}");
    let files = Files::new(&[&plain, &plain, &text("{server: https://paris}", "{token: abc}")]);
    let env = Environment::default();
    let own = |index: usize| {
        let kubeconfig = Kubeconfig::read(&files.1[index..=index], Mode::Named, &Report::default());
        own_contexts(&kubeconfig, Mode::Ambient, &env).remove(0)
    };
    let of_broker: Vec<_> = files.read(Mode::Named).contexts.into_iter().map(|context| context.id).collect();
    let contexts = [own(0), own(1), own(2)];
    assert_eq!(contexts.each_ref().map(|own| own.id.clone()).as_slice(), of_broker);
    assert_eq!(contexts.each_ref().map(|own| own.namespace.as_str()), ["shop", "shop", ""]);
    assert!(contexts[0].meaning.is_some() && contexts[0].meaning == contexts[1].meaning);
    assert_ne!(contexts[0].id, contexts[1].id);
    assert_eq!(contexts[2].meaning, None);

    files.write(1, &plain.replace("command: plugin", "command: other"));
    assert_ne!(own(0).meaning, own(1).meaning);
    files.write(1, &plain.replace("https://paris", "https://rome"));
    assert_ne!(own(0).meaning, own(1).meaning);

    let both = Kubeconfig::read(&files.1[..2], Mode::Ambient, &Report::default());
    let counts = [Mode::Ambient, Mode::Named].map(|mode| own_contexts(&both, mode, &env).len());
    assert_eq!(counts, [1, 2]);
}
